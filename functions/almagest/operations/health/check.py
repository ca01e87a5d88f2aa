"""What a check is, and how one is made by itself: with its own time, and without taking others down with it."""

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from almagest import deadline
from almagest.models.caller import Caller
from almagest.runtime import Runtime

if TYPE_CHECKING:
    import psycopg

    from almagest.database.health import Health

logger = logging.getLogger(__name__)

Status = Literal["ok", "degraded", "failed"]

# What a cancelled statement has to end in, and a check to clean up after itself.
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Found:
    """What a check found.

    Attributes
    ----------
    status
        ok; degraded: it works, and someone should look; failed: it does not.
    measured, threshold, unit
        The figure that decided, what it is compared with, and what both count; None where nothing could be measured.
    sentence
        For a person; no content, no name of a person or an org.
    figures
        Further figures and ids.
    """

    status: Status
    sentence: str
    measured: float | None = None
    threshold: float | None = None
    unit: str | None = None
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Probe:
    """What a check works with.

    Attributes
    ----------
    runtime
        As a function's: settings, the request path's door, the embedder.
    connection
        In autocommit mode, of this check alone; what it still does when the check's time is over is cancelled.
    """

    runtime: Runtime
    connection: "psycopg.Connection"

    @cached_property
    def health(self) -> "Health":
        """The database, by the engine's health functions."""
        from almagest.database.health import Health

        return Health(self.connection)

    @cached_property
    def caller(self) -> Caller:
        """Who writes and asks in the checks' own org."""
        return Caller.model_validate(self.health.system_caller())


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    name
        Stable; what results, metrics and Hub entries are known by.
    sentence
        What it looks at.
    seconds
        How long it may take.
    look
        Makes it.
    """

    name: str
    sentence: str
    seconds: float
    look: Callable[[Probe], Found]


@dataclass(frozen=True)
class Result:
    """What a check found, and how many milliseconds it took."""

    name: str
    found: Found
    duration_ms: float

    def row(self) -> dict[str, Any]:
        """As it is stored."""
        return {"name": self.name, **self.found.__dict__, "duration_ms": self.duration_ms}


def hub_key(check: str) -> str:
    """The key of a check's entry in the Hub."""
    return f"health.{check}"


def perform(check: Check, runtime: Runtime) -> Result:
    """Make one check in a thread and over a connection of its own.

    One that raises or takes longer than it may is `failed`, with a sentence. A thread that does not end is left behind:
    it is a daemon, so it keeps no process from ending.
    """
    attempt = _Attempt(check, runtime)
    started = time.perf_counter()
    found = attempt.outcome(min(check.seconds, deadline.remaining(check.seconds)))
    return Result(check.name, found, round((time.perf_counter() - started) * 1000, 1))


class _Attempt:
    """One check on its way."""

    def __init__(self, check: Check, runtime: Runtime) -> None:
        self._check = check
        self._runtime = runtime
        self._connection: psycopg.Connection | None = None
        self._found: Found | None = None

    def outcome(self, seconds: float) -> Found:
        """What it found within so many seconds."""
        if seconds <= 0:
            return Found("failed", "There was no time left for this check.")
        # The thread knows what surrounds this one: the deadline, and the id of the request.
        surroundings = contextvars.copy_context()
        thread = threading.Thread(
            target=surroundings.run, args=(self._run, seconds), daemon=True, name=self._check.name
        )
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self._cancel()
            thread.join(GRACE_SECONDS)
            return Found("failed", f"It took longer than {counted(round(seconds), 'second')}, and was ended.")
        return self._found or Found("failed", "It ended without an answer.")

    def _run(self, seconds: float) -> None:
        from almagest.database.session import connect

        try:
            with connect(self._runtime.settings, autocommit=True) as connection, deadline.limit(seconds):
                self._connection = connection
                probe = Probe(self._runtime, connection)
                probe.health.limit(seconds)
                self._found = self._check.look(probe)
        except Exception as error:
            # Its message may quote content, so only its kind is told.
            logger.error("check failed", extra={"check": self._check.name, "error": type(error).__name__})
            self._found = Found("failed", f"It broke off: {_told(error)}.", figures={"error": type(error).__name__})

    def _cancel(self) -> None:
        with suppress(Exception):
            if self._connection is not None:
                self._connection.cancel_safe(timeout=GRACE_SECONDS)


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """How many of something, as it is said of one and of several; the plural adds an s where none is given."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def _told(error: Exception) -> str:
    """What went wrong, in words; where there are none, its kind."""
    from almagest.problems import Problem

    if isinstance(error, Problem):
        return f"the system answered {error.code}"
    import psycopg

    for kind, words in (
        (psycopg.errors.LockNotAvailable, "another run was at the same for too long"),
        (psycopg.errors.QueryCanceled, "a statement took too long"),
        (psycopg.errors.UndefinedTable, "a table is missing"),
        (psycopg.errors.UndefinedColumn, "a column is missing"),
        (psycopg.errors.UndefinedFunction, "a function is missing in the database"),
        (psycopg.errors.UndefinedObject, "a role or type is missing in the database"),
        (psycopg.errors.InsufficientPrivilege, "the database refused it for want of a right"),
        (psycopg.errors.ReadOnlySqlTransaction, "the database takes no writes"),
        (psycopg.errors.DiskFull, "the disk of the database is full"),
        (psycopg.OperationalError, "the database did not answer"),
        (psycopg.Error, f"the database refused it ({type(error).__name__})"),
    ):
        if isinstance(error, kind):
            return words
    return f"an error that nobody expected ({type(error).__name__})"
