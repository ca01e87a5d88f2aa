"""Writing memories: each becomes an item that can be found when the call returns."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from almagest.ingestion.text import content_hash
from almagest.models.call import Call
from almagest.models.caller import Caller
from almagest.models.errors import errors_of, summary
from almagest.models.fields import MAX_CONTENT
from almagest.models.write import BatchResult, BatchWrite, MemoryWrite, WriteResult
from almagest.operations.chunks import chunk_all
from almagest.operations.indexing import invoke_index_function
from almagest.problems import Problem
from almagest.runtime import Runtime


def write_memory(runtime: Runtime, caller: Caller, request: MemoryWrite, call: Call) -> WriteResult:
    """Write one memory.

    Raises
    ------
    Problem
        As `api.write_memories` raises it: 404 for a project, client or deal that the caller cannot see, 409 for an
        idempotency key that was used for something else.
    """
    idempotency = call.idempotency("write_memory", request.model_dump(mode="json", exclude_unset=True))
    result = _write(runtime, caller, [request], call, idempotency, atomic=True)[0]
    return WriteResult.model_validate(result)


def write_memories(runtime: Runtime, caller: Caller, request: BatchWrite, call: Call) -> BatchResult:
    """Write those memories of a batch that are valid, in one transaction, and say of each other one what is wrong.

    Raises
    ------
    Problem
        413 `too_much_text` for more than a million characters together, which one transaction could not take in time.
    """
    checked = [_check(raw) for raw in request.memories]
    valid = [memory for memory in checked if isinstance(memory, MemoryWrite)]
    idempotency = call.idempotency("write_memories", {"memories": request.memories})
    written = iter(_write(runtime, caller, valid, call, idempotency, atomic=False) if valid else [])
    results = [next(written) if isinstance(entry, MemoryWrite) else entry for entry in checked]
    return BatchResult.model_validate({"results": results})


def _check(raw: Any) -> MemoryWrite | dict[str, Any]:
    try:
        return MemoryWrite.model_validate(raw)
    except ValidationError as error:
        errors = errors_of(error, raw)
        return {"problem": {"status": 422, "code": "invalid", "detail": summary(errors), "errors": errors}}


def _write(
    runtime: Runtime,
    caller: Caller,
    memories: Sequence[MemoryWrite],
    call: Call,
    idempotency: dict[str, str],
    *,
    atomic: bool,
) -> list[dict[str, Any]]:
    if sum(len(memory.content) for memory in memories) > MAX_CONTENT:
        raise Problem(413, "too_much_text", f"One request takes {MAX_CONTENT:,} characters of text; send several.")
    chunked = chunk_all(runtime, [(memory.title, memory.content) for memory in memories])
    entries = [
        {**memory.model_dump(mode="json"), "content_hash": content_hash(memory.content), "chunks": chunks}
        for memory, chunks in zip(memories, chunked.chunks, strict=True)
    ]
    answer = runtime.rpc.call(
        "write_memories",
        caller,
        {
            "memories": entries,
            "model": chunked.model,
            "atomic": atomic,
            "idempotency": idempotency,
            "request_id": call.request_id,
        },
        retry=True,
    )
    if chunked.deferred:
        invoke_index_function(runtime, caller)
    return [
        result if "problem" in result else {**result, "cleaned": memory.cleaned}
        for result, memory in zip(answer["results"], memories, strict=True)
    ]
