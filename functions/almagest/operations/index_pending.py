"""Bringing the index up to date: lease what is outstanding, chunk it, embed it, put it in place."""

import logging
from collections.abc import Iterator
from typing import Any

from almagest import deadline
from almagest.database.queue import Disconnected, Leased, Queue
from almagest.embedding.embedder import EmbeddingUnavailable, to_literal
from almagest.operations.chunks import cut
from almagest.operations.workers import new_worker
from almagest.runtime import Runtime

logger = logging.getLogger(__name__)

LEASE_SECONDS = 120
# Chunks that are embedded between two looks at the lease: a few seconds of work.
STRIDE = 64
# An item is begun only while there is at least this much time, so that most are finished within it.
RESERVE_SECONDS = 5.0


class _LeaseLost(Exception):
    """Another worker has the item now, since this one was slow to renew its lease."""


def index_pending(runtime: Runtime, queue: Queue, seconds: float) -> dict[str, int]:
    """Index what is outstanding until nothing is, or until the time is over.

    Parameters
    ----------
    queue
        The outstanding items, on a connection of this worker's own.
    seconds
        How much time there is.

    Returns
    -------
    dict
        How many items were `indexed`, became `stale` in between, or `failed`.

    Raises
    ------
    Disconnected
        When the database goes away; leases then end by themselves.
    """
    worker = new_worker()
    counts = {"indexed": 0, "stale": 0, "failed": 0}
    with deadline.limit(seconds):
        for item in _leased(queue, worker):
            counts[_index(runtime, queue, worker, item)] += 1
    return counts


def _leased(queue: Queue, worker: str) -> Iterator[Leased]:
    """Leased items, one at a time: what this worker does not come to is free for others, and counts no attempt."""
    while _time_left() and (items := queue.lease(worker, 1, LEASE_SECONDS)):
        yield from items


def _time_left() -> bool:
    return deadline.remaining(float("inf")) > RESERVE_SECONDS


def _index(runtime: Runtime, queue: Queue, worker: str, item: Leased) -> str:
    try:
        chunks = _embedded(runtime, queue, worker, item)
        status = queue.complete(worker, item, chunks, runtime.embedder.model)
        return "indexed" if status == "search_ready" else "stale"
    except _LeaseLost:
        return "stale"
    except Disconnected:
        raise
    except EmbeddingUnavailable as error:
        reason = error.reason
    except Exception as error:
        # One item that cannot be indexed must not keep the others from it.
        reason = "index_failed"
        logger.error("item not indexed", extra={"item": str(item.id), "error": type(error).__name__})
    queue.fail(worker, item, reason)
    return "failed"


def _embedded(runtime: Runtime, queue: Queue, worker: str, item: Leased) -> list[dict[str, Any]]:
    pieces = cut(runtime.embedder, item.title, item.content)
    rows: list[dict[str, Any]] = []
    for start in range(0, len(pieces), STRIDE):
        if start and not queue.renew(worker, item.id, LEASE_SECONDS):
            raise _LeaseLost
        stride = pieces[start : start + STRIDE]
        vectors = runtime.embedder.embed_passages([piece.passage for piece in stride])
        rows += [{**piece.row, "embedding": to_literal(vector)} for piece, vector in zip(stride, vectors, strict=True)]
    return rows
