"""Searching: a question in, ranked items out, and the items themselves."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field, StrictInt

from almagest.models.base import Request, Result
from almagest.models.fields import (
    ConversationId,
    Flag,
    Fraction,
    Name,
    Names,
    Query,
    Reference,
    References,
    Slug,
    Slugs,
    SourceRef,
    Tags,
    Timestamp,
    Title,
)
from almagest.models.write import IndexState, Origin

Kind = Literal["memory", "page", "skill", "file", "source", "fact"]
Mode = Literal["hybrid", "vector", "lexical", "substring"]
Relevance = Literal["high", "standard", "low"]

DEFAULT_K = 10
DEFAULT_PAGE = 50
MAX_PAGE = 100


class Filters(Request):
    """Conditions that every result meets. All that are given must hold; of a list, any one may."""

    kind: Kind | Annotated[list[Kind], Field(max_length=50)] | None = None
    type: Reference | References | None = None
    tags: Tags | None = Field(None, description="The item has all of these.")
    tags_any: Tags | None = Field(None, description="The item has at least one of these.")
    project: Slug | Slugs | None = None
    client: Slug | Slugs | None = None
    deal: Slug | Slugs | None = None
    origin: Origin | Annotated[list[Origin], Field(max_length=50)] | None = None
    agent_name: Name | Names | None = None
    source_ref: SourceRef | None = None
    title: Title | None = Field(None, description="The title contains this, whatever the case.")
    conversation: ConversationId | None = Field(None, description="The conversation's id.")
    created_after: Timestamp | None = None
    created_before: Timestamp | None = None
    occurred_after: Timestamp | None = None
    occurred_before: Timestamp | None = None
    priority_min: Fraction | None = None


class SearchRequest(Request):
    """A question in plain words."""

    query: Query
    k: Annotated[StrictInt, Field(ge=1, le=100)] = DEFAULT_K
    profile: Reference = "user_search"
    filters: Filters = Filters()
    include_archived: Flag = False
    explain: Flag = False
    why_not: UUID | None = Field(None, description="An item: `explain.why_not` says at which step it fell out.")


class ConversationPlace(Result):
    """The place of a message in its conversation."""

    id: str
    position: int


class Scores(Result):
    """Each 0..1, higher is better; null where that leg did not score the item."""

    hybrid: float | None = None
    vector: float | None = None
    keyword: float | None = None
    metadata: float | None = None
    strength: float | None = None
    final: float


class SearchResult(Result):
    """One item, by its best chunk."""

    id: UUID
    kind: Kind
    type: str | None = None
    title: str | None = None
    snippet: str
    source_ref: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    agent_name: str | None = None
    conversation: ConversationPlace | None = None
    created_at: AwareDatetime
    relevance: Relevance
    scores: Scores
    explain: dict[str, Any] | None = Field(None, description="How the scores came about, when asked for.")


class SearchResponse(Result):
    """The ranked answer, how it was found, and the trace that tells why."""

    mode: Mode
    degraded_reason: str | None = None
    results: list[SearchResult]
    trace_id: UUID | None = None
    explain: dict[str, Any] | None = Field(None, description="How the search was carried out, when asked for.")


class Item(Result):
    """One item, whole."""

    id: UUID
    kind: Kind
    type: str | None = None
    title: str | None = None
    content: str
    summary: str | None = None
    tags: list[str] = Field(default_factory=list)
    origin: str | None = None
    source_ref: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent_name: str | None = None
    conversation: ConversationPlace | None = None
    project: str | None = None
    client: str | None = None
    deal: str | None = None
    scope: Literal["workspace", "agent", "library"] = "library"
    private: bool = False
    importance: float
    tier: Literal["hot", "warm", "archive"]
    evergreen: bool = False
    state: Literal["active", "provisional", "revoked", "archived"]
    version: int
    index_status: IndexState
    index_error: str | None = None
    occurred_at: AwareDatetime | None = None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    validated_at: AwareDatetime | None = Field(None, description="When it was last confirmed, or written.")
    archived_at: AwareDatetime | None = None


class Chunk(Result):
    """A slice of the item's content: `content[start:end]`, counted in characters."""

    position: int
    start: int
    end: int
    text: str


class ChunkPage(Result):
    """Chunks in their order; `next_cursor` is null on the last page."""

    chunks: list[Chunk]
    next_cursor: str | None = None
