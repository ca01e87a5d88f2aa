"""orphaned_embeddings: chunks, vectors, statistics and indexes belong together."""

from typing import TYPE_CHECKING

from almagest import deadline
from almagest.operations.health.check import Check, Found, Probe, Status, counted
from almagest.operations.health.sampled_vectors import compare

if TYPE_CHECKING:
    from almagest.runtime import Runtime

# What is counted, each by a query of its own, and what a person is told of one and of several.
KINDS = {
    "chunks_without_vectors": ("chunk without a vector", "chunks without a vector"),
    "chunks_without_terms": ("chunk without its terms", "chunks without their terms"),
    "copies_that_differ": (
        "row of terms or a vector whose scope or state is not its item's",
        "rows of terms or vectors whose scope or state is not their item's",
    ),
    "chunks_of_another_model": (
        "chunk with vectors of another model alone",
        "chunks with vectors of another model alone",
    ),
    "superfluous_vectors": (
        "vector of another model beside the right one",
        "vectors of another model beside the right one",
    ),
    "zero_vectors": ("vector of zeros", "vectors of zeros"),
    "chunks_without_item": ("chunk without an item", "chunks without an item"),
    "rows_without_chunk": ("row of terms or vector without a chunk", "rows of terms or vectors without a chunk"),
    "items_without_chunks": ("item marked ready without chunks", "items marked ready without chunks"),
    "items_to_index_again": ("item that is still to be indexed again", "items that are still to be indexed again"),
    "leases_over": ("lease past its time", "leases past their time"),
    "drifted_statistics": ("org with drifted statistics", "orgs with drifted statistics"),
    "indexes_missing": ("missing index", "missing indexes"),
    "indexes_invalid": ("invalid index", "invalid indexes"),
    "duplicates": ("group of duplicates in the way of an index", "groups of duplicates in the way of an index"),
    "indexes_changed": ("index other than it was made", "indexes other than they were made"),
}
# What no search finds, every search waits for, or only the second privacy layer keeps from the wrong eyes; of the
# others, search only finds less by meaning or by words.
GRAVE = {"items_without_chunks", "copies_that_differ", "indexes_missing", "indexes_invalid"}
# One kind that takes long must leave time for the others: at a million chunks each takes 0.1 to 3 seconds here.
KIND_SECONDS = 20.0
# Chunks whose vectors are compared with what is made of them now: about a second of embedding.
SAMPLE = 20
# Nothing is orphaned in a system that works: writes put an item, its chunks and its vectors in place in one
# transaction.
THRESHOLD = 0


def look(probe: Probe) -> Found:
    """Count each kind of what has lost its counterpart.

    measured: all kinds together; None where none is known of, and not all could be counted.
    """
    counts = _count(probe, model_in_force(probe.runtime))
    compared = compare(probe, SAMPLE)
    wrong = compared.wrong if compared else 0
    total = wrong + sum(count for count in counts.values() if count)
    uncounted = [kind for kind, count in counts.items() if count is None]
    parts = [counted(count, *KINDS[kind]) for kind, count in counts.items() if count]
    parts += [f"how many {KINDS[kind][1]} there are could not be counted" for kind in uncounted]
    if compared and wrong:
        parts.append(
            f"{wrong} of {counted(compared.chunks, 'vector')} that {'was' if compared.chunks == 1 else 'were'}"
            " compared says something else than its chunk"
        )
    sentence = "; ".join(parts) or "nothing is orphaned"
    figures: dict[str, object] = dict(counts)
    figures |= {"vectors_that_differ": wrong, "vectors_compared": compared.chunks if compared else 0}
    # One that is invalid and not ours is named here, and is no fault of the system.
    if faults := probe.health.index_faults():
        figures["indexes"] = [{"index": name, "fault": fault} for name, fault, _ in faults]
    return Found(
        "degraded" if wrong and _status(counts) == "ok" else _status(counts),
        f"{sentence[0].upper()}{sentence[1:]}.",
        measured=None if total == 0 and uncounted else total,
        threshold=THRESHOLD,
        unit="orphans",
        figures=figures,
    )


def model_in_force(runtime: "Runtime") -> str | None:
    """The label of the model that vectors are made with now; None where there is no embedder to say so."""
    from almagest.embedding.embedder import EmbeddingUnavailable

    try:
        return runtime.embedder.model
    except EmbeddingUnavailable:
        return None


def _count(probe: Probe, model: str | None) -> dict[str, int | None]:
    import psycopg

    counts: dict[str, int | None] = {}
    for kind in KINDS:
        probe.health.limit(min(KIND_SECONDS, max(0.1, deadline.remaining(KIND_SECONDS))))
        try:
            counts[kind] = probe.health.count_orphans(kind, model)
        except psycopg.errors.QueryCanceled:
            counts[kind] = None
    return counts


def _status(counts: dict[str, int | None]) -> Status:
    if any(counts[kind] for kind in GRAVE):
        return "failed"
    return "degraded" if any(count != 0 for count in counts.values()) else "ok"


CHECK = Check("orphaned_embeddings", "Chunks, vectors, statistics and indexes belong together.", 120, look)
