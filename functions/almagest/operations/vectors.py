"""Text -> the vectors that a request to the database carries; without an embedder, the reason why there are none."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from almagest import deadline
from almagest.runtime import Runtime

# A caller waits for as many vectors as can be made in this time; a text of nothing but identifiers takes many tokens.
INLINE_SECONDS = 5.0
# Texts between two looks at the clock.
STRIDE = 8


@dataclass(frozen=True)
class Vectors:
    """Vectors of several texts, as literals that the database reads.

    Attributes
    ----------
    literals
        One for each text, in their order; None for one that has no vector yet.
    model
        Label of the model that made them; None where there are none.
    deferred
        Whether vectors are left to the index function, since there was no time to make them now.
    """

    literals: Sequence[str | None]
    model: str | None
    deferred: bool


def query_fields(runtime: Runtime, query: str | None) -> dict[str, Any]:
    """The fields `embedding`, `model` and `degraded_reason` of a question."""
    from almagest.embedding.embedder import EmbeddingUnavailable, to_literal

    if query is None:
        return {"embedding": None, "model": None, "degraded_reason": None}
    try:
        vector, model = to_literal(runtime.embedder.embed_query(query)), runtime.embedder.model
    except EmbeddingUnavailable as error:
        return {"embedding": None, "model": None, "degraded_reason": error.reason}
    return {"embedding": vector, "model": model, "degraded_reason": None}


def passages(runtime: Runtime, texts: Sequence[str]) -> Vectors:
    """Vectors of passages: all, or those that there is time for, or none when the embedder is not available."""
    from almagest.embedding.embedder import EmbeddingUnavailable, to_literal

    if len(texts) > runtime.settings.inline_chunks:
        return Vectors([None] * len(texts), None, deferred=True)
    literals: list[str | None] = []
    end = time.monotonic() + deadline.remaining(INLINE_SECONDS)
    try:
        while len(literals) < len(texts) and time.monotonic() < end:
            stride = texts[len(literals) : len(literals) + STRIDE]
            literals += [to_literal(vector) for vector in runtime.embedder.embed_passages(stride)]
        missing = len(texts) - len(literals)
        return Vectors(literals + [None] * missing, runtime.embedder.model, deferred=missing > 0)
    except EmbeddingUnavailable:
        return Vectors([None] * len(texts), None, deferred=False)
