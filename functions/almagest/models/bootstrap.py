"""Starting a session: what every run knows, and what this one should."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, StrictInt

from almagest.models.base import Request, Result
from almagest.models.fields import Query
from almagest.models.search import Mode, SearchResponse

DEFAULT_BUDGET = 4000


class BootstrapRequest(Request):
    """What the session is about, if that is known, and how much it may read."""

    query: Query | None = None
    budget_tokens: Annotated[StrictInt, Field(ge=1, le=200_000)] = DEFAULT_BUDGET


class BootstrapResponse(Result):
    """Two texts for a run: what it is told as its own, and what it is shown as data."""

    prefix: str = Field(description="Canon, whole: the same bytes for every run that shares it.")
    tail: str = Field(description="A table of contents and what the query recalled, within the budget.")
    mode: Mode | None = Field(None, description="How the query was answered; null without one.")
    degraded_reason: str | None = None
    trace_id: UUID | None = None


class CanonItem(Result):
    """An item that is in every run, whole."""

    type: str
    title: str | None = None
    content: str


class TypeCount(Result):
    """How many items say this."""

    type: str
    count: int


class ContentsEntry(Result):
    """One line of the table of contents."""

    id: UUID
    type: str
    title: str | None = None


class Contents(Result):
    """What there is to ask for."""

    types: list[TypeCount]
    items: list[ContentsEntry]


class Knowledge(Result):
    """What the database gives a session to start from."""

    canon: list[CanonItem]
    contents: Contents
    search: SearchResponse | None = None
    trace_id: UUID | None = None
