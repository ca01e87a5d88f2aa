"""embedding_function: text becomes the vectors that it should, and soon enough."""

import math
import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from almagest.operations.health.check import Check, Found, Probe
from almagest.operations.health.planted import cosine
from almagest.settings import MODEL_NAME

if TYPE_CHECKING:
    from almagest.embedding.embedder import Embedder

# Every question waits for one vector. It takes 3 ms on the two cores that the system was measured on, and 25 while they
# do something else; what takes a hundred times as long is a machine that is starved, or another model.
LATENCY_MS = 300.0
LATENCY_TRIES = 5
# Int8 kernels differ a little from processor to processor (in the third digit); another model, or a broken file, is off
# by tenths.
TOLERANCE = 0.03
# The half precision of the column keeps three digits of a length of 1.
UNIT_TOLERANCE = 1e-3

TEXT = "The deployment failed because the database was restarting."
PARAPHRASE = "A restart of the database made the release fail."
UNRELATED = "She planted tulips along the garden wall."
# Cosines of the shipped model, as it gave them when this was written.
KNOWN = ((TEXT, PARAPHRASE, 0.730), (TEXT, UNRELATED, 0.165), (PARAPHRASE, UNRELATED, 0.123))


def look(probe: Probe) -> Found:
    """Embed texts whose relation is known. measured: the median milliseconds of a question's vector."""
    from almagest.embedding.embedder import EmbeddingUnavailable

    embedder = probe.runtime.embedder
    try:
        vectors = dict(zip((TEXT, PARAPHRASE, UNRELATED), _passages(embedder), strict=True))
        milliseconds = _latency(embedder)
        label = embedder.model
    except EmbeddingUnavailable as error:
        return Found(
            "failed", f"Texts cannot be embedded ({error.reason}).", threshold=LATENCY_MS, unit="ms",
            figures={"reason": error.reason},
        )  # fmt: skip
    wrong = _fault(vectors, label)
    slow = milliseconds > LATENCY_MS
    sentence = wrong or (
        f"A vector takes {milliseconds:.0f} ms, which is slow." if slow else "Vectors are as they should be."
    )
    return Found(
        "failed" if wrong else "degraded" if slow else "ok",
        sentence,
        measured=milliseconds,
        threshold=LATENCY_MS,
        unit="ms",
        figures={
            "model": label,
            "cosines": [round(cosine(vectors[one], vectors[other]), 3) for one, other, _ in KNOWN],
        },
    )


def fault(embedder: "Embedder") -> str | None:
    """What is wrong with an embedder's vectors, in a sentence; None where they are as they should be.

    Raises
    ------
    EmbeddingUnavailable
        Without one.
    """
    return _fault(dict(zip((TEXT, PARAPHRASE, UNRELATED), _passages(embedder), strict=True)), embedder.model)


def _fault(vectors: dict[str, list[float]], label: str) -> str | None:
    return _wrong(list(vectors.values())) or _misplaced(vectors, known=label.startswith(f"{MODEL_NAME}@"))


def _passages(embedder: "Embedder") -> list[list[float]]:
    return embedder.embed_passages([TEXT, PARAPHRASE, UNRELATED])


def _latency(embedder: "Embedder") -> float:
    taken = []
    for _ in range(LATENCY_TRIES):
        started = time.perf_counter()
        embedder.embed_query(TEXT)
        taken.append((time.perf_counter() - started) * 1000)
    return round(median(taken), 1)


def _wrong(vectors: Sequence[Sequence[float]]) -> str | None:
    """What is wrong with vectors by themselves, whatever the model."""
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        return "A vector holds something that is not a number."
    if not all(any(vector) for vector in vectors):
        return "A vector is all zeros."
    if any(abs(math.hypot(*vector) - 1) > UNIT_TOLERANCE for vector in vectors):
        return "A vector is not of unit length."
    return None


def _misplaced(vectors: dict[str, list[float]], *, known: bool) -> str | None:
    """What is wrong with vectors beside each other; cosines are known of the shipped model alone."""
    if cosine(vectors[TEXT], vectors[PARAPHRASE]) <= cosine(vectors[TEXT], vectors[UNRELATED]):
        return "A paraphrase is not nearer than a text about something else."
    if known and any(abs(cosine(vectors[one], vectors[other]) - value) > TOLERANCE for one, other, value in KNOWN):
        return f"A known cosine is off by more than {TOLERANCE}."
    return None


CHECK = Check("embedding_function", "Text becomes the vectors that it should, and soon enough.", 60, look)
