"""orphaned_embeddings: chunks, vectors, statistics and indexes belong together."""

from typing import TYPE_CHECKING

from almagest import deadline
from almagest.operations.health.check import Check, Found, Probe, Status

if TYPE_CHECKING:
    from almagest.runtime import Runtime

# What is counted, each by a query of its own, and what a person is told of it.
KINDS = {
    "chunks_without_vectors": "chunks without a vector",
    "chunks_of_another_model": "chunks with vectors of another model alone",
    "superfluous_vectors": "vectors of another model beside the right one",
    "zero_vectors": "vectors of zeros",
    "chunks_without_item": "chunks without an item",
    "rows_without_chunk": "terms or vectors without a chunk",
    "items_without_chunks": "items marked ready without chunks",
    "leases_over": "leases past their time",
    "drifted_statistics": "orgs with drifted statistics",
    "indexes_missing": "missing indexes",
    "indexes_invalid": "invalid indexes",
    "indexes_changed": "indexes other than they were made",
}
# What no search finds, or every search waits for; of the others, search only finds less by meaning.
GRAVE = {"items_without_chunks", "indexes_missing", "indexes_invalid"}
# One kind that takes long must leave time for the others: at a million chunks each takes 0.1 to 2 seconds here.
KIND_SECONDS = 20.0
# Nothing is orphaned in a system that works: writes put an item, its chunks and its vectors in place in one
# transaction.
THRESHOLD = 0


def look(probe: Probe) -> Found:
    """Count each kind of what has lost its counterpart. measured: all kinds together."""
    counts = _count(probe, model_in_force(probe.runtime))
    total = sum(count for count in counts.values() if count)
    uncounted = [kind for kind, count in counts.items() if count is None]
    parts = [f"{count} {KINDS[kind]}" for kind, count in counts.items() if count]
    parts += [f"{KINDS[kind]} could not be counted" for kind in uncounted]
    figures: dict[str, object] = dict(counts)
    # One that is invalid and not ours is named here, and is no fault of the system.
    if faults := probe.health.index_faults():
        figures["indexes"] = [{"index": name, "fault": fault} for name, fault, _ in faults]
    return Found(
        _status(counts),
        ("; ".join(parts) or "Nothing is orphaned") + ".",
        measured=total,
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
