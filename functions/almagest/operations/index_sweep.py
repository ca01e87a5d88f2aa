"""The job that does what the requests left: vectors, terms of an older tokeniser, counts of large partitions."""

from typing import TYPE_CHECKING, Any

from almagest import deadline
from almagest.database.health import Health
from almagest.database.queue import Queue
from almagest.operations.index_pending import index_pending
from almagest.operations.retokenise import retokenise

if TYPE_CHECKING:
    from almagest.operations.jobs.job import Run, Step

# Kept back from the work to count what still waits, which a backlog that takes all the time would end before.
COUNT_SECONDS = 5.0


def sweep(run: "Run") -> dict[str, Any]:
    """Bring the index up to date, as far as the time goes; the next sweep goes on.

    Returns
    -------
    dict
        How many items were `indexed`, became `stale` in between or `failed`; of how many chunks the terms were
        `retokenised`; how many partitions were `counted`; what still waits then: `index_backlog` items, the oldest for
        `index_backlog_seconds`.
    """
    queue = Queue(run.connection)

    def index(_: "Step") -> dict[str, Any]:
        return dict(index_pending(run.runtime, queue, _seconds_left()))

    def make_terms_again(step: "Step") -> dict[str, Any]:
        return {"retokenised": retokenise(queue, _seconds_left(), step)}

    def count(_: "Step") -> dict[str, Any]:
        return {"counted": queue.refresh_statistics()}

    figures: dict[str, Any] = {}
    for name, work in {"index": index, "retokenise": make_terms_again, "statistics": count}.items():
        # A backlog may take all the time there is, and that is no failure.
        if _seconds_left() > 0:
            figures |= run.step(name, work)
    items, seconds = Health(run.connection).backlog()
    return figures | {"index_backlog": items, "index_backlog_seconds": round(seconds, 1)}


def _seconds_left() -> float:
    return deadline.remaining(float("inf")) - COUNT_SECONDS
