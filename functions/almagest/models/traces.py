"""How one search or one context came about."""

from typing import Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from almagest.models.base import Result
from almagest.models.search import Mode, Relevance


class TraceItem(Result):
    """An item that a trace names."""

    item: UUID
    title: str | None = None


class TraceCandidate(TraceItem):
    """An item that could have been in the answer, with its scores; null where a leg did not score it."""

    chunk: int | None = Field(None, description="Its best chunk, by number.")
    keyword: float | None = None
    matched: float | None = Field(
        None, description="Share of the query's words, by how rare they are, that stand there."
    )
    vector: float | None = None
    metadata: float | None = None
    boosts: dict[str, float] | None = Field(None, description="What each boost added to the fused score.")
    hybrid: float | None = Field(None, description="The fused score.")
    relevance: Relevance | None = None
    strength: float | None = None
    final: float | None = None
    rank: int | None = Field(None, description="Its place by score; null where it fell out.")
    cut: str | None = Field(None, description="Why it fell out; null where it went on to be ranked.")


class Trace(Result):
    """The account of one retrieval, for the one who asked."""

    id: UUID
    created_at: AwareDatetime
    request_id: str | None = None
    purpose: Literal["search", "bootstrap"]
    profile: str
    mode: Mode
    degraded_reason: str | None = None
    query: str | None = Field(None, description="Null once an item that it found was erased.")
    terms: list[str] = Field(default_factory=list, description="What the keyword leg looked for.")
    filters: dict[str, Any] = Field(default_factory=dict)
    knobs: dict[str, Any] = Field(default_factory=dict, description="Those that counted: weights, floor, thresholds …")
    legs: dict[str, Any] = Field(default_factory=dict, description="What each leg sent.")
    exact: bool | None = Field(None, description="Whether the keyword leg is proved to have missed nothing.")
    stages_ms: dict[str, float] = Field(default_factory=dict, description="How long each stage took, in milliseconds.")
    found: int = Field(description="How many candidates there were.")
    candidates: list[TraceCandidate] = Field(description="The best of them, 100 at the most: the answer first.")
    mmr: list[dict[str, Any]] = Field(
        description="Of each pick in turn: its rank by score, and how similar it is to those before."
    )
    results: list[TraceItem]
    hidden: int = Field(description="Items that are left out, since the caller may not see them any more.")
