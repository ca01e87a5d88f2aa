"""What keeps a run's lease alive while it works, and ends its queries when its time is over."""

import logging
import threading
import time

import psycopg

from almagest.database.jobs import Jobs
from almagest.database.session import connect
from almagest.operations.jobs.errors import OutOfTime, describe
from almagest.operations.jobs.job import Run
from almagest.settings import Settings

logger = logging.getLogger(__name__)

# A run whose worker is gone is taken up after this; a beat may be late by three quarters of it.
LEASE_SECONDS = 60.0
BEAT_SECONDS = 15.0
# What Postgres is still doing for a run when its time is over is cancelled, again and again.
CANCEL_SECONDS = 2.0
# A run that does not end then either has hung: its lease is left to end.
PATIENCE_SECONDS = 60.0


class Heartbeat:
    """Keeps a run's lease alive on a connection of its own, and cancels what Postgres does when the time is over.

    The connection is made by the first beat, so that a run of a few seconds needs none.
    """

    def __init__(self, run: Run, seconds: float) -> None:
        self._settings: Settings = run.runtime.settings
        self._run = run
        self._ends = time.monotonic() + seconds
        self._stopped = threading.Event()
        self._cancelled = False
        self._connection: psycopg.Connection | None = None
        self._thread = threading.Thread(target=self._go, name=f"heartbeat of run {run.id}", daemon=True)

    def __enter__(self) -> "Heartbeat":
        """Begin to beat."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop at once."""
        self._stopped.set()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def explain(self, error: Exception) -> str:
        """What a run failed of: that its query was cancelled is a matter of time."""
        cancelled = self._cancelled and isinstance(error, psycopg.errors.QueryCanceled)
        return describe(OutOfTime() if cancelled else error)

    def _go(self) -> None:
        next_beat = time.monotonic() + BEAT_SECONDS
        while not self._stopped.wait(self._pause(next_beat)):
            now = time.monotonic()
            if now >= self._ends + PATIENCE_SECONDS:
                return
            if now >= self._ends:
                self._cancel()
            if now >= next_beat:
                next_beat = now + BEAT_SECONDS
                if not self._beat():
                    return

    def _pause(self, next_beat: float) -> float:
        now = time.monotonic()
        cancels = self._ends - now if now < self._ends else CANCEL_SECONDS
        return max(0.0, min(next_beat - now, cancels))

    def _beat(self) -> bool:
        """Whether there is a lease to be kept; a database that does not answer is asked again at the next beat."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._settings, autocommit=True)
            return Jobs(self._connection).beat(self._run.id, self._run.worker, LEASE_SECONDS)
        except psycopg.Error as error:
            logger.warning("heartbeat missed", extra={"run": self._run.id, "error": type(error).__name__})
            if self._connection is not None:
                self._connection.close()
            return True

    def _cancel(self) -> None:
        self._cancelled = True
        try:
            self._run.connection.cancel_safe(timeout=CANCEL_SECONDS)
        except psycopg.Error as error:
            logger.warning("query not cancelled", extra={"run": self._run.id, "error": type(error).__name__})
