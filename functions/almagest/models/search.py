"""Searching: a question in, ranked items out, and the items themselves."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    ConfigDict,
    Field,
    StrictInt,
    StringConstraints,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from almagest.models.base import Request, Result
from almagest.models.fields import (
    ConversationId,
    Extension,
    Flag,
    Fraction,
    MetadataFilter,
    MimeType,
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
    TitlePart,
)
from almagest.models.write import IndexState, Origin

Kind = Literal["memory", "page", "skill", "file", "source", "fact"]
Mode = Literal["hybrid", "vector", "lexical", "substring"]
Relevance = Literal["high", "standard", "low"]

Tier = Literal["hot", "warm", "archive"]


def _distinct(values: list[str]) -> list[str]:
    if len(set(values)) < len(values):
        raise ValueError("must not name anything twice")
    return values


Legs = Annotated[
    list[Literal["keyword", "vector"]],
    Field(min_length=1, max_length=2, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_distinct),
]
Ids = Annotated[list[UUID], Field(max_length=50)]
Cursor = Annotated[str, StringConstraints(min_length=1, max_length=100)]

DEFAULT_K = 10
DEFAULT_PAGE = 50
MAX_PAGE = 100
DEFAULT_REACH = 2
MAX_REACH = 5


class Conditions(Request):
    """All that are given must hold; of a list, any value may, and of an empty one none can."""

    kind: Kind | Annotated[list[Kind], Field(max_length=50)] | None = None
    type: Reference | References | None = None
    tags: Tags | None = Field(None, description="The item has all of these.")
    tags_any: Tags | None = Field(None, description="The item has at least one of these.")
    folder: UUID | Ids | None = Field(None, description="The folder that the item lies in, by id.")
    folder_tree: UUID | Ids | None = Field(None, description="A folder that the item lies in or below, by id.")
    project: Slug | Slugs | None = None
    client: Slug | Slugs | None = None
    deal: Slug | Slugs | None = None
    agent: Slug | Slugs | None = Field(None, description="An agent that the item is assigned to.")
    origin: Origin | Annotated[list[Origin], Field(max_length=50)] | None = None
    agent_name: Name | Names | None = Field(None, description="Whom the item is attributed to.")
    source_ref: SourceRef | Annotated[list[SourceRef], Field(max_length=50)] | None = None
    mime_type: MimeType | Annotated[list[MimeType], Field(max_length=50)] | None = None
    extension: Extension | Annotated[list[Extension], Field(max_length=50)] | None = Field(
        None, description="How the file's name ends: `md`, `tar.gz`."
    )
    title: TitlePart | None = Field(None, description="The title contains this, whatever the case.")
    metadata: MetadataFilter | None = Field(None, description="The item's metadata contain this, at any depth.")
    conversation: ConversationId | Annotated[list[ConversationId], Field(max_length=50)] | None = Field(
        None, description="The conversation's id."
    )
    tier: Tier | Annotated[list[Tier], Field(max_length=3)] | None = None
    created_after: Timestamp | None = Field(None, description="This moment included, as with all that say `after`.")
    created_before: Timestamp | None = Field(
        None, description="This moment not included, as with all that say `before`."
    )
    updated_after: Timestamp | None = Field(None, description="When the version began.")
    updated_before: Timestamp | None = None
    occurred_after: Timestamp | None = None
    occurred_before: Timestamp | None = None
    priority_min: Fraction | None = None
    priority_max: Fraction | None = None


class Filters(Conditions):
    """Conditions that every result meets. All that are given must hold; of a list, any value may."""

    any: Annotated[list[Conditions], Field(max_length=10)] | None = Field(
        None, description="At least one of these holds, beside all the others."
    )


class SearchRequest(Request):
    """A question in plain words; or the cursor of an earlier answer, and nothing that would rank anew."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["query"]}, {"required": ["cursor"]}]})

    # First, since the other fields are checked against it.
    cursor: Cursor | None = Field(None, description="`next_cursor` of an answer: gives the results that follow.")
    query: Annotated[Query | None, Field(validate_default=True, description="Needed, unless there is a `cursor`.")] = (
        None
    )
    k: Annotated[StrictInt, Field(ge=1, le=100)] = DEFAULT_K
    profile: Reference = "user_search"
    filters: Filters = Filters()
    as_of: Timestamp | None = Field(None, description="Search what was known at this time, as it was said then.")
    include_archived: Flag = False
    legs: Legs | None = Field(None, description="Ask for some ways of searching alone; all where left out.")
    level: Literal["item", "chunk"] = Field(
        "item", description="`chunk`: several slices of one item may be in the answer."
    )
    explain: Flag = False
    why_not: UUID | None = Field(None, description="An item: `explain.why_not` says at which step it fell out.")

    @field_validator("query")
    @classmethod
    def _query_or_cursor(cls, query: str | None, info: ValidationInfo) -> str | None:
        # Where the cursor itself is wrong, it is missing here, and one complaint is enough.
        if query is None and info.data.get("cursor", ...) is None:
            raise PydanticCustomError("missing", "required")
        return query

    @field_validator(
        "profile", "filters", "as_of", "include_archived", "legs", "level", "explain", "why_not", mode="before"
    )
    @classmethod
    def _not_with_cursor(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("cursor") is not None:
            raise ValueError("must not be given with a cursor, which goes on with the search that gave it")
        return value


class ConversationPlace(Result):
    """The place of a message in its conversation."""

    id: str
    position: int


class ChunkPlace(Result):
    """Where a chunk lies in its item: `content[start:end]`, counted in characters."""

    position: int
    start: int
    end: int
    heading_path: str | None = None


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
    version: int = Field(1, description="Of the item; with `as_of`, the one valid then.")
    chunk: ChunkPlace | None = None
    snippet: str = Field(description="At most 400 characters of the chunk, those that say most of the query.")
    marks: list[tuple[int, int]] = Field(
        default_factory=list, description="Start and end of the query's words in the snippet, in characters."
    )
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
    next_cursor: str | None = Field(
        None,
        description="Give it as `cursor` for the results that follow; null at the end. The pages hold what the search"
        " ranked, which is at most 100 results: null does not say that nothing else matches.",
    )
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
    tier: Tier
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
    heading_path: str | None = None
    text: str


class ChunkPage(Result):
    """Chunks in their order; `next_cursor` is null on the last page."""

    chunks: list[Chunk]
    next_cursor: str | None = None


class Message(Result):
    """An item of a conversation, whole."""

    id: UUID
    kind: Kind
    type: str | None = None
    title: str | None = None
    content: str
    source_ref: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    agent_name: str | None = None
    conversation: ConversationPlace
    created_at: AwareDatetime


class Neighbours(Result):
    """The messages around an item in its conversation, in its order; both are empty where it belongs to none."""

    before: list[Message]
    after: list[Message]
