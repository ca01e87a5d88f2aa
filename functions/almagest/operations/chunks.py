"""An item's text -> its chunks, with vectors while a request is small enough to wait for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from almagest.operations.vectors import passage_text, passages
from almagest.runtime import Runtime


@dataclass(frozen=True)
class Chunked:
    """Chunks of several texts.

    Attributes
    ----------
    chunks
        For each text, its chunks `{position, start, end, text, embedding}`.
    model
        Label of the model, or None where there are no vectors.
    deferred
        Whether vectors are left to the index function.
    """

    chunks: list[list[dict[str, Any]]]
    model: str | None
    deferred: bool


def chunk_all(runtime: Runtime, texts: Sequence[tuple[str | None, str]]) -> Chunked:
    """Chunk texts, each with its title, and embed the chunks."""
    from almagest.ingestion.chunk import chunk

    slices = [(title, chunk(text)) for title, text in texts]
    to_embed = [passage_text(title, piece.text) for title, pieces in slices for piece in pieces]
    vectors = passages(runtime, to_embed)
    literals = iter(vectors.literals)
    chunks = [
        [
            {"position": p.position, "start": p.start, "end": p.end, "text": p.text, "embedding": next(literals)}
            for p in pieces
        ]
        for _, pieces in slices
    ]
    return Chunked(chunks, vectors.model, vectors.deferred)
