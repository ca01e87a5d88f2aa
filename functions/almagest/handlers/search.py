"""The search function: ranked answers, items, chunks."""

from typing import Annotated, Any

from aws_lambda_powertools.event_handler.openapi.params import Query

from almagest.edge.app import App, path_id
from almagest.models.search import DEFAULT_PAGE, MAX_PAGE, ChunkPage, Item, SearchRequest, SearchResponse
from almagest.operations.search import get_chunks, get_item, search

app = App("search")


@app.post("/v1/search", summary="Rank items by how well they answer a question", operation_id="search")
def post_search(request: SearchRequest) -> SearchResponse:
    """By meaning and by keywords; by keywords alone, and saying so, when there is no embedder."""
    response = search(app.runtime, app.caller, request, app.call)
    app.mode = response.mode
    return response


@app.get("/v1/search/items/<item>", summary="Get one item, whole", operation_id="get_item")
def get_one(item: str) -> Item:
    """The current version."""
    return get_item(app.runtime, app.caller, path_id(item))


@app.get("/v1/search/items/<item>/chunks", summary="List an item's chunks", operation_id="get_chunks")
def list_chunks(
    item: str,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,9}$")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
) -> ChunkPage:
    """In their order; give `next_cursor` as `cursor` to get the next page."""
    return get_chunks(app.runtime, app.caller, path_id(item), cursor, limit)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request."""
    return app.handle(event, context)
