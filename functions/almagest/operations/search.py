"""Finding items: ranked by a question, or whole by their id; and how a ranking came about."""

from uuid import UUID

from almagest.models.call import Call
from almagest.models.caller import Caller
from almagest.models.search import ChunkPage, Item, Neighbours, SearchRequest, SearchResponse
from almagest.models.traces import Trace
from almagest.operations.vectors import query_fields
from almagest.runtime import Runtime


def search(runtime: Runtime, caller: Caller, request: SearchRequest, call: Call) -> SearchResponse:
    """Rank what the caller may see by how well it answers, or go on with an earlier answer.

    By keywords alone when there is no embedder.
    """
    fields = request.model_dump(mode="json")
    fields["filters"] = request.filters.model_dump(mode="json", exclude_none=True)
    if request.cursor is None:
        fields |= query_fields(runtime, request.query)
    answer = runtime.rpc.call("search", caller, {**fields, "request_id": call.request_id}, retry=True)
    return SearchResponse.model_validate(answer)


def get_item(runtime: Runtime, caller: Caller, item: UUID) -> Item:
    """One item, whole.

    Raises
    ------
    Problem
        404 when there is none that the caller may see.
    """
    return Item.model_validate(runtime.rpc.call("get_item", caller, {"id": str(item)}, retry=True))


def get_chunks(runtime: Runtime, caller: Caller, item: UUID, cursor: str | None, limit: int) -> ChunkPage:
    """One page of an item's chunks."""
    request = {"id": str(item), "cursor": cursor, "limit": limit}
    return ChunkPage.model_validate(runtime.rpc.call("get_chunks", caller, request, retry=True))


def get_chunks_around(runtime: Runtime, caller: Caller, item: UUID, position: int, reach: int) -> ChunkPage:
    """One chunk of an item, with so many before it and after it.

    Raises
    ------
    Problem
        404 when there is no such item that the caller may see, or no chunk at the position.
    """
    request = {"id": str(item), "around": position, "reach": reach}
    return ChunkPage.model_validate(runtime.rpc.call("get_chunks", caller, request, retry=True))


def get_neighbours(runtime: Runtime, caller: Caller, item: UUID, reach: int) -> Neighbours:
    """The messages around an item in its conversation, so many on each side.

    Raises
    ------
    Problem
        404 when there is no such item that the caller may see.
    """
    request = {"id": str(item), "reach": reach}
    return Neighbours.model_validate(runtime.rpc.call("get_neighbours", caller, request, retry=True))


def get_trace(runtime: Runtime, caller: Caller, trace: UUID) -> Trace:
    """How a search or a context of the caller's own came about.

    Raises
    ------
    Problem
        404 when there is none, or it is somebody else's.
    """
    return Trace.model_validate(runtime.rpc.call("get_trace", caller, {"id": str(trace)}, retry=True))
