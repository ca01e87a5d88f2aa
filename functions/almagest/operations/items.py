"""What is done to an item after it was written: changed, confirmed, archived, restored, erased, pinned."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

from almagest.ingestion.text import content_hash
from almagest.models.call import Call
from almagest.models.caller import Caller
from almagest.models.write import EraseResult, ItemUpdate, Pin, PinResult, StateResult, UpdateResult, ValidateResult
from almagest.operations.chunks import chunk_all
from almagest.operations.indexing import invoke_index_function
from almagest.problems import Problem
from almagest.runtime import Runtime


def update_item(runtime: Runtime, caller: Caller, item: UUID, request: ItemUpdate, call: Call) -> UpdateResult:
    """Change an item that still has the version the caller read.

    Raises
    ------
    Problem
        404 when the caller cannot see the item, 409 `version_conflict` when it has been changed since.
    """
    changes = request.changes()
    hashed = call.idempotency("update_item", {"id": str(item), "version": request.version, "changes": changes})
    fields: dict[str, Any] = {"id": str(item), "version": request.version, "changes": changes, "idempotency": hashed}
    if "content" in changes:
        title = changes["title"] if "title" in changes else _title(runtime, caller, item)
        chunked = chunk_all(runtime, [(title, changes["content"])])
        fields |= {
            "content_hash": content_hash(changes["content"]),
            "chunks": chunked.chunks[0],
            "model": chunked.model,
        }
    answer = runtime.rpc.call("update_item", caller, fields, retry=True)
    result = UpdateResult.model_validate({**answer, "cleaned": request.cleaned})
    if result.index_status != "search_ready":
        # More chunks than a caller waits for; or another title, which is part of what every chunk's vector says.
        invoke_index_function(runtime, caller)
    return result


def validate_item(runtime: Runtime, caller: Caller, item: UUID, call: Call) -> ValidateResult:
    """Confirm that an item still holds: it is trusted as if it were new, and a little more than before."""
    return ValidateResult.model_validate(_change(runtime, "validate_item", caller, item, {}, call))


def archive_item(runtime: Runtime, caller: Caller, item: UUID, call: Call) -> StateResult:
    """Take an item out of everyday search."""
    return StateResult.model_validate(_change(runtime, "archive_item", caller, item, {}, call))


def restore_item(runtime: Runtime, caller: Caller, item: UUID, call: Call) -> StateResult:
    """Bring an archived item back as if it had never left."""
    return StateResult.model_validate(_change(runtime, "restore_item", caller, item, {}, call))


def erase_item(runtime: Runtime, caller: Caller, item: UUID, strict: bool, call: Call) -> EraseResult:
    """Redact an item everywhere, for ever; with `strict`, its name in the audit log too."""
    return EraseResult.model_validate(_change(runtime, "erase_item", caller, item, {"strict": strict}, call))


def pin_item(runtime: Runtime, caller: Caller, item: UUID, request: Pin, call: Call) -> PinResult:
    """Put an item whole into the prefix of every run, or of the caller's own runs."""
    fields = request.model_dump(mode="json", exclude_unset=True)
    return PinResult.model_validate(_change(runtime, "pin_item", caller, item, fields, call))


def unpin_item(runtime: Runtime, caller: Caller, item: UUID, private: bool, call: Call) -> PinResult:
    """Take an item out of the prefix again."""
    return PinResult.model_validate(_change(runtime, "unpin_item", caller, item, {"private": private}, call))


def _change(
    runtime: Runtime, name: str, caller: Caller, item: UUID, fields: dict[str, Any], call: Call
) -> dict[str, Any]:
    request = {"id": str(item), **fields}
    return runtime.rpc.call(name, caller, {**request, "idempotency": call.idempotency(name, request)}, retry=True)


def _title(runtime: Runtime, caller: Caller, item: UUID) -> str | None:
    """The title that stays; None where the item is gone, since a repeated request has its answer nevertheless."""
    try:
        looked_up = runtime.rpc.call("get_item", caller, {"id": str(item), "record": False}, retry=True)
        title: str | None = looked_up["title"]
    except Problem as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return title
