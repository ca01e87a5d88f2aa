"""Starting a session: what every run knows, and what this one should."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, StrictInt

from almagest.models.base import Request, Result
from almagest.models.fields import Query

DEFAULT_BUDGET = 4000


class BootstrapRequest(Request):
    """What the session is about, if that is known, and how much it may read."""

    query: Query | None = None
    budget_tokens: Annotated[StrictInt, Field(ge=1, le=200_000)] = DEFAULT_BUDGET


class BootstrapResponse(Result):
    """`prefix` is the same bytes for every run of a scope; `tail` is for this one."""

    prefix: str
    tail: str
    trace_id: UUID | None = None
