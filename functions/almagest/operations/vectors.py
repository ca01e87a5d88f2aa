"""Text -> the vectors that a request to the database carries; without an embedder, the reason why there are none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from almagest.runtime import Runtime


@dataclass(frozen=True)
class Vectors:
    """Vectors of several texts, as literals that the database reads.

    Attributes
    ----------
    literals
        One for each text, in their order; each None when the embedder is not available.
    model
        Label of the model that made them.
    """

    literals: Sequence[str | None]
    model: str | None


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
    """Vectors of passages, or none at all when the embedder is not available."""
    from almagest.embedding.embedder import EmbeddingUnavailable, to_literal

    try:
        vectors = [to_literal(vector) for vector in runtime.embedder.embed_passages(texts)]
        return Vectors(vectors, runtime.embedder.model)
    except EmbeddingUnavailable:
        return Vectors([None] * len(texts), None)


def passage_text(title: str | None, text: str) -> str:
    """What is embedded of a chunk: its item's title says what the slice is about."""
    return f"{title}\n{text}" if title else text
