"""The search function: ranked answers, items, chunks, traces, the profiles that answers are ranked by, and the Hub."""

from typing import Annotated, Any

from aws_lambda_powertools.event_handler.openapi.params import Query

from almagest.edge.app import App, path_id
from almagest.models.base import Empty
from almagest.models.errors import summary
from almagest.models.fields import INT32_MAX, PAGE_CURSOR
from almagest.models.hub import HubEntry, HubPage, HubState, Severity
from almagest.models.profiles import DescribedProfile, Profile, ProfileList, ProfileReset, ProfileWrite
from almagest.models.search import (
    DEFAULT_PAGE,
    DEFAULT_REACH,
    MAX_PAGE,
    MAX_REACH,
    ChunkPage,
    Item,
    Neighbours,
    SearchRequest,
    SearchResponse,
)
from almagest.models.traces import Trace
from almagest.operations.hub import list_hub, mark_hub
from almagest.operations.profiles import delete_profile, get_profile, list_profiles, put_profile
from almagest.operations.search import (
    get_chunks,
    get_chunks_around,
    get_item,
    get_neighbours,
    get_trace,
    search,
)
from almagest.problems import Problem

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
    cursor: Annotated[str | None, Query(pattern=PAGE_CURSOR)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
    around: Annotated[int | None, Query(ge=0, le=INT32_MAX)] = None,
    reach: Annotated[int | None, Query(ge=0, le=MAX_REACH)] = None,
) -> ChunkPage:
    """In their order; give `next_cursor` as `cursor` to get the next page.

    With `around`, the chunk at this position with `reach` others on each side (1 where it is left out).
    """
    if around is not None:
        if cursor is not None:
            raise _invalid("cursor", "must not be given with around")
        return get_chunks_around(app.runtime, app.caller, path_id(item), around, 1 if reach is None else reach)
    if reach is not None:
        raise _invalid("reach", "must not be given without around")
    return get_chunks(app.runtime, app.caller, path_id(item), cursor, limit)


@app.get("/v1/search/items/<item>/neighbours", summary="Get the messages around an item", operation_id="get_neighbours")
def list_neighbours(item: str, reach: Annotated[int, Query(ge=0, le=MAX_REACH)] = DEFAULT_REACH) -> Neighbours:
    """Whole, so many on each side: of the item's conversation, and seen by the same people as the item."""
    return get_neighbours(app.runtime, app.caller, path_id(item), reach)


@app.get("/v1/search/traces/<trace>", summary="Get a trace", operation_id="get_trace")
def get_one_trace(trace: str) -> Trace:
    """How an answer came about: what the legs sent, each candidate's scores, what was cut and why, and the time taken.

    Only for the one who asked.
    """
    return get_trace(app.runtime, app.caller, path_id(trace))


@app.get("/v1/search/profiles", summary="List search profiles", operation_id="list_profiles")
def get_profiles() -> ProfileList:
    """Those that are built in, and the org's own; for owners and admins."""
    return list_profiles(app.runtime, app.caller)


@app.get("/v1/search/profiles/<name>", summary="Get a search profile", operation_id="get_profile")
def get_one_profile(name: str) -> DescribedProfile:
    """Its knobs as they count, the org's own among them, and what each may be; for owners and admins."""
    return get_profile(app.runtime, app.caller, name)


@app.put("/v1/search/profiles/<name>", summary="Set a search profile", operation_id="put_profile")
def put_one_profile(name: str, request: ProfileWrite) -> Profile:
    """The org's own knobs, in place of those it had; the next search uses them. For owners and admins."""
    return put_profile(app.runtime, app.caller, name, request)


@app.delete("/v1/search/profiles/<name>", summary="Reset a search profile", operation_id="delete_profile")
def delete_one_profile(name: str) -> ProfileReset:
    """Back to what is built in; one that is not built in is gone. For owners and admins."""
    return delete_profile(app.runtime, app.caller, name)


@app.get("/v1/search/hub", summary="List what people are told", operation_id="list_hub")
def get_hub(
    state: Annotated[HubState, Query()] = "open",
    severity: Annotated[Severity | None, Query()] = None,
    include_dismissed: Annotated[bool, Query()] = False,
    cursor: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
) -> HubPage:
    """What the system could not settle by itself: of the installation for owners and admins, of the org for all of it,
    of a person for that person alone. The worst first, and of them the newest; give `next_cursor` as `cursor` to get
    the next page.
    """
    return list_hub(
        app.runtime,
        app.caller,
        state=state,
        severity=severity,
        include_dismissed=include_dismissed,
        cursor=cursor,
        limit=limit,
    )


@app.post("/v1/search/hub/<entry>/read", summary="Mark an entry of the Hub as read", operation_id="read_hub")
def post_read(entry: str, request: Empty) -> HubEntry:
    """For the caller's user alone; a key without a user gets a 403."""
    return mark_hub(app.runtime, app.caller, path_id(entry), "read")


@app.delete("/v1/search/hub/<entry>/read", summary="Mark an entry of the Hub as unread", operation_id="unread_hub")
def delete_read(entry: str) -> HubEntry:
    """As if it had not been read."""
    return mark_hub(app.runtime, app.caller, path_id(entry), "read", taken_back=True)


@app.post("/v1/search/hub/<entry>/dismiss", summary="Dismiss an entry of the Hub", operation_id="dismiss_hub")
def post_dismiss(entry: str, request: Empty) -> HubEntry:
    """Out of the user's own list, until it becomes worse; a key without a user gets a 403."""
    return mark_hub(app.runtime, app.caller, path_id(entry), "dismissed")


@app.delete("/v1/search/hub/<entry>/dismiss", summary="Take back a dismissal", operation_id="undismiss_hub")
def delete_dismiss(entry: str) -> HubEntry:
    """Back in the user's own list."""
    return mark_hub(app.runtime, app.caller, path_id(entry), "dismissed", taken_back=True)


def _invalid(field: str, message: str) -> Problem:
    errors = [{"field": field, "message": message}]
    return Problem(422, "invalid", summary(errors), errors=errors)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request."""
    return app.handle(event, context)
