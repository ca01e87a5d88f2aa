"""Writing: memories in, ids out; and what is done to an item afterwards."""

from typing import Any, Literal, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator, model_validator

from almagest.models.base import Request, Result
from almagest.models.fields import (
    Content,
    ConversationId,
    Flag,
    Fraction,
    Metadata,
    Name,
    Position,
    Reference,
    Slug,
    SourceRef,
    Tags,
    Timestamp,
    Title,
    Version,
)

MAX_BATCH = 500

Origin = Literal["upload", "chat", "connector", "agent"]
IndexState = Literal["pending", "indexing", "text_ready", "search_ready", "failed"]


class Conversation(Request):
    """The place of a message in a sequence of chat messages."""

    id: ConversationId
    position: Position


class MemoryWrite(Request):
    """One thing learned. Who writes it comes from the credential; `agent_name` is attribution only."""

    content: Content
    title: Title | None = None
    type: Reference | None = None
    importance: Fraction | None = Field(None, description="0..1; stored as the item's priority.")
    tags: Tags = Field(default_factory=list)
    origin: Origin | None = None
    source_ref: SourceRef | None = None
    conversation: Conversation | None = None
    occurred_at: Timestamp | None = None
    private: Flag = False
    project: Slug | None = None
    client: Slug | None = None
    deal: Slug | None = None
    agent_name: Name | None = None
    metadata: Metadata = Field(default_factory=dict)


class BatchWrite(BaseModel):
    """Several memories at once. Each is checked by itself, so that one that is wrong does not stop the others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memories: list[Any] = Field(
        min_length=1,
        max_length=MAX_BATCH,
        json_schema_extra={"items": {"$ref": "#/components/schemas/MemoryWrite"}},
    )


class ItemUpdate(Request):
    """Fields to change, and the version that they were read from. A field that is left out stays as it is."""

    version: Version
    title: Title | None = None
    content: Content | None = None
    type: Reference | None = None
    importance: Fraction | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None
    occurred_at: Timestamp | None = None
    source_ref: SourceRef | None = None
    agent_name: Name | None = None
    evergreen: Flag | None = Field(
        None, description="Whether it keeps its strength; of a shared item, for owners and admins."
    )

    @field_validator("content", "type", "importance", "tags", "metadata", "evergreen")
    @classmethod
    def _not_cleared(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("must not be null; leave it out to keep it as it is")
        return value

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set - {"version"}:
            raise ValueError("name at least one field to change")
        return self

    def changes(self) -> dict[str, Any]:
        """The fields that were named, as JSON values; null clears."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"version"})


class Pin(Request):
    """Where a pinned item stands in the prefix of every run."""

    position: Position | None = None
    private: Flag = False


class WriteResult(Result):
    """What became of one memory."""

    id: UUID
    version: int
    index_status: IndexState
    deduplicated: bool
    cleaned: bool = Field(False, description="Characters that cannot be stored were taken out.")


class FieldError(Result):
    """One field that is wrong, and why."""

    field: str = Field(description="Its path, such as `filters.type[2]`; empty for the request as a whole.")
    message: str


class BatchProblem(Result):
    """Why one memory of a batch was not written."""

    status: int
    code: str
    detail: str
    errors: list[FieldError] = Field(default_factory=list)


class Refused(Result):
    """The place in a batch of a memory that was not written."""

    problem: BatchProblem


class BatchResult(Result):
    """One entry for each memory, in the order of the request."""

    results: list[WriteResult | Refused]


class UpdateResult(Result):
    """The item's new version."""

    id: UUID
    version: int
    index_status: IndexState
    cleaned: bool = False


class StateResult(Result):
    """The item's state after archiving or restoring."""

    id: UUID
    state: str
    version: int


class ValidateResult(Result):
    """What the system thinks of an item that was confirmed."""

    id: UUID
    validated_at: AwareDatetime
    confidence: float = Field(description="0..1; each confirmation takes a fifth of the doubt, to 0.95 at the most.")
    strength: float = Field(description="0.05..1; how far the item is trusted now.")


class EraseResult(Result):
    """What was erased with the item, counted."""

    id: UUID
    state: Literal["erased"]
    erased: dict[str, int]


class PinResult(Result):
    """Whether the item is now pinned."""

    id: UUID
    pinned: bool


class IndexStatus(Result):
    """How many items wait for the index, are in it right now, or could not be indexed."""

    pending: int
    indexing: int
    failed: int
