"""An item's text -> its chunks, with vectors while a request is small enough to wait for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from almagest.operations.vectors import passages
from almagest.runtime import Runtime

if TYPE_CHECKING:
    from almagest.embedding.embedder import Embedder


@dataclass(frozen=True)
class Slice:
    """A chunk on its way to the database.

    Attributes
    ----------
    row
        Its `{position, start, end, text, heading_path}`.
    passage
        What is embedded of it.
    """

    row: dict[str, Any]
    passage: str


@dataclass(frozen=True)
class Chunked:
    """Chunks of several texts.

    Attributes
    ----------
    chunks
        For each text, its chunks `{position, start, end, text, heading_path, embedding}`.
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
    slices = [cut(runtime.embedder, title, text) for title, text in texts]
    vectors = passages(runtime, [piece.passage for pieces in slices for piece in pieces])
    literals = iter(vectors.literals)
    chunks = [[{**piece.row, "embedding": next(literals)} for piece in pieces] for pieces in slices]
    return Chunked(chunks, vectors.model, vectors.deferred)


def cut(embedder: "Embedder", title: str | None, text: str) -> list[Slice]:
    """Chunk a text so that the model reads each chunk whole; whoever chunks does it by this function.

    Without an embedder the chunks are as long as their characters allow, and the index function makes them anew
    together with their vectors.
    """
    from almagest.embedding.model import EmbeddingUnavailable
    from almagest.ingestion.chunk import chunk, passage_text

    try:
        chunks = chunk(text, title, embedder)
    except EmbeddingUnavailable:
        chunks = chunk(text, title)
    return [
        Slice(
            {"position": c.position, "start": c.start, "end": c.end, "text": c.text, "heading_path": c.heading_path},
            passage_text(title, c.heading_path, c.text),
        )
        for c in chunks
    ]
