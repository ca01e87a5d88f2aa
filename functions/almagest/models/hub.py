"""The Hub: what people are told, because the system could not settle it by itself."""

from typing import Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from almagest.models.base import Result

Severity = Literal["critical", "warning", "info"]
HubState = Literal["open", "closed", "all"]
Mark = Literal["read", "dismissed"]


class HubEntry(Result):
    """One matter: what was found, what the system tried, and what a person can do."""

    id: UUID
    source: str = Field(description="What tells it, such as `health`.")
    key: str = Field(description="Names the matter; while one is open, there is no second entry of its key.")
    severity: Severity
    title: str
    found: str
    tried: list[Any] = Field(default_factory=list, description="What was done about it, oldest first.")
    to_do: str
    figures: dict[str, Any] = Field(default_factory=dict, description="Ids and figures.")
    tries: int = Field(description="How often it has been told since it opened.")
    opened_at: AwareDatetime
    updated_at: AwareDatetime
    closed_at: AwareDatetime | None = None
    read_at: AwareDatetime | None = Field(None, description="When the caller's user marked it as read.")
    dismissed_at: AwareDatetime | None = Field(None, description="When the caller's user dismissed it.")


class HubPage(Result):
    """Entries, the worst first and of them the newest; `next_cursor` is null on the last page."""

    entries: list[HubEntry]
    next_cursor: str | None = None
