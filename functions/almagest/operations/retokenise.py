"""Making terms again that an older tokeniser made, batch by batch, while searches go on with the old ones."""

from typing import Any, Protocol

from almagest import deadline
from almagest.database.queue import Queue

# Chunks a transaction: a fifth of a second of work.
BATCH = 200
# Left for what comes after it.
RESERVE_SECONDS = 5.0
# Of one run: what is written meanwhile waits for its vectors until the run is over, and old terms can wait longer.
MOST_SECONDS = 60.0


class Progress(Protocol):
    """Where a run that was broken off had got to, and where this one does."""

    checkpoint: dict[str, Any] | None

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Keep it."""


def retokenise(queue: Queue, seconds: float, progress: Progress | None = None) -> int:
    """Make terms again until all are of this version, or until the time is over; returns of how many chunks.

    With `progress`, it goes on behind the batches that are done, and counts them.

    Raises
    ------
    Disconnected
        When the database goes away; what was made stays.
    """
    done = (progress.checkpoint if progress else None) or {"made": 0, "before": None}
    made, before = int(done["made"]), done["before"]
    with deadline.limit(min(seconds, MOST_SECONDS + RESERVE_SECONDS)):
        while deadline.remaining(float("inf")) > RESERVE_SECONDS:
            of_batch, before = queue.retokenise(before, BATCH)
            made += of_batch
            if before is None:
                break
            if progress:
                progress.save({"made": made, "before": before})
    return made
