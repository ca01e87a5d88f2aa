"""Vectors that say something else than their chunks: a sample is embedded again, since nothing else can tell."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from almagest.operations.health.embedding_function import fault
from almagest.operations.health.planted import cosine

if TYPE_CHECKING:
    from almagest.operations.health.check import Probe

# What the same model makes of the same text is as good as the same (0.99 and more, from processor to processor).
NEAREST = 0.9


@dataclass(frozen=True)
class Compared:
    """How many chunks were compared, of how many the vector is wrong, and of which items those are."""

    chunks: int
    wrong: int
    items: list[UUID]


def compare(probe: "Probe", most: int) -> Compared | None:
    """Embed up to so many chunks again; None where the embedder is wrong itself, which embedding_function tells."""
    from almagest.embedding.model import EmbeddingUnavailable
    from almagest.ingestion.chunk import passage_text

    embedder = probe.runtime.embedder
    try:
        if fault(embedder):
            return None
        sample = probe.health.sample_vectors(embedder.model, most)
        again = embedder.embed_passages([passage_text(title, path, text) for _, title, path, text, _ in sample])
    except EmbeddingUnavailable:
        return None
    wrong = [item for (item, *_, had), has in zip(sample, again, strict=True) if cosine(had, has) < NEAREST]
    return Compared(len(sample), len(wrong), sorted(set(wrong)))
