"""The write function: memories in; items changed, confirmed, archived, restored, erased, pinned."""

from typing import Annotated, Any

from aws_lambda_powertools.event_handler.openapi.params import Query

from almagest.edge.app import App, path_id
from almagest.models.base import Empty
from almagest.models.write import (
    BatchResult,
    BatchWrite,
    EraseResult,
    IndexStatus,
    ItemUpdate,
    MemoryWrite,
    Pin,
    PinResult,
    StateResult,
    UpdateResult,
    ValidateResult,
    WriteResult,
)
from almagest.operations.indexing import index_status
from almagest.operations.items import (
    archive_item,
    erase_item,
    pin_item,
    restore_item,
    unpin_item,
    update_item,
    validate_item,
)
from almagest.operations.write import write_memories, write_memory

app = App("write")


@app.post("/v1/write/memories", status_code=201, summary="Write one memory", operation_id="write_memory")
def post_memory(request: MemoryWrite) -> WriteResult:
    """It can be found when this returns. The same text in the same place is stored once: `deduplicated` says so."""
    return write_memory(app.runtime, app.caller, request, app.call)


@app.post("/v1/write/memories/batch", status_code=207, summary="Write up to 500", operation_id="write_memories")
def post_memories(request: BatchWrite) -> BatchResult:
    """The valid ones in one transaction; each other one gets its problem, in its place."""
    return write_memories(app.runtime, app.caller, request, app.call)


@app.patch("/v1/write/items/<item>", summary="Change an item", operation_id="update_item")
def patch_item(item: str, request: ItemUpdate) -> UpdateResult:
    """409 `version_conflict` when the item has been changed since it was read."""
    return update_item(app.runtime, app.caller, path_id(item), request, app.call)


@app.delete("/v1/write/items/<item>", summary="Erase an item", operation_id="erase_item")
def delete_item(item: str, strict: Annotated[bool, Query()] = False) -> EraseResult:
    """Its content is gone everywhere, for ever; with `strict` its name leaves the audit log too."""
    return erase_item(app.runtime, app.caller, path_id(item), strict, app.call)


@app.post("/v1/write/items/<item>/validate", summary="Confirm an item", operation_id="validate_item")
def post_validate(item: str, request: Empty) -> ValidateResult:
    """It still holds: its strength stops fading, and starts anew with a little more confidence."""
    return validate_item(app.runtime, app.caller, path_id(item), app.call)


@app.post("/v1/write/items/<item>/archive", summary="Archive an item", operation_id="archive_item")
def post_archive(item: str, request: Empty) -> StateResult:
    """Out of everyday search; `restore` brings it back."""
    return archive_item(app.runtime, app.caller, path_id(item), app.call)


@app.post("/v1/write/items/<item>/restore", summary="Restore an archived item", operation_id="restore_item")
def post_restore(item: str, request: Empty) -> StateResult:
    """As if it had never left."""
    return restore_item(app.runtime, app.caller, path_id(item), app.call)


@app.post("/v1/write/items/<item>/pin", summary="Pin an item", operation_id="pin_item")
def post_pin(item: str, request: Pin) -> PinResult:
    """Whole in the prefix of every run; with `private`, of the caller's own runs."""
    return pin_item(app.runtime, app.caller, path_id(item), request, app.call)


@app.delete("/v1/write/items/<item>/pin", summary="Unpin an item", operation_id="unpin_item")
def delete_pin(item: str, private: Annotated[bool, Query()] = False) -> PinResult:
    """Out of the prefix; with `private`, of the caller's own runs."""
    return unpin_item(app.runtime, app.caller, path_id(item), private, app.call)


@app.get("/v1/write/index", summary="How much indexing is outstanding", operation_id="index_status")
def get_index() -> IndexStatus:
    """Of the items that the caller may see."""
    return index_status(app.runtime, app.caller)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request."""
    return app.handle(event, context)
