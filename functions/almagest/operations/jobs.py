"""The runner of all scheduled work: one worker a run, a lease with a heartbeat, steps that are not done twice."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import Any

import psycopg

from almagest import deadline
from almagest.database.jobs import Jobs
from almagest.database.session import connect, demand_schema
from almagest.operations.workers import new_worker
from almagest.problems import Problem
from almagest.runtime import Runtime
from almagest.settings import Settings

logger = logging.getLogger(__name__)

# A run whose worker is gone is taken up after this; a beat may be late by three quarters of it.
LEASE_SECONDS = 60.0
BEAT_SECONDS = 15.0
# What Postgres is still doing for a run when its time is over is cancelled, again and again.
CANCEL_SECONDS = 2.0
# A run that does not end then either has hung: its lease is left to end.
PATIENCE_SECONDS = 60.0

Figures = dict[str, Any]


class LeaseLost(Exception):
    """The run is another worker's by now, or was given up: nothing more may be written for it."""


class OutOfTime(Exception):
    """The run's time was over before its work was."""


@dataclass(frozen=True)
class Job:
    """Work that is done by schedule.

    Attributes
    ----------
    name
        Lower case, with underscores; events name it.
    sentence
        What it does, for people.
    schedule
        EventBridge's expression, in UTC, as the template has it.
    seconds
        How much time a run has at most.
    work
        Does it, and returns figures: JSON values, ids and numbers, never content.
    """

    name: str
    sentence: str
    schedule: str
    seconds: float
    work: Callable[["Run"], Figures]


@dataclass(frozen=True)
class Outcome:
    """What became of asking for a run.

    Attributes
    ----------
    job, scheduled_for, run, attempt
        Which run it is, and how often it was begun.
    state
        `succeeded` or `failed`, where this worker did it; `done`, `running` or `skipped`, where there was nothing to do
        (see `engine.claim_run`); `lost`, where another worker took it over.
    figures
        What the job found and did.
    error
        The class of what went wrong, and a sentence without content.
    milliseconds
        Of this attempt.
    other
        Id of the run that is at work, where it is in the way.
    cause
        What was raised.
    """

    job: str
    scheduled_for: datetime
    run: int
    attempt: int
    state: str
    figures: Figures = field(default_factory=dict)
    error: str | None = None
    milliseconds: float = 0.0
    other: int | None = None
    cause: Exception | None = field(default=None, repr=False, compare=False)

    def as_data(self) -> dict[str, Any]:
        """JSON values of it, those that say something."""
        told = {
            "job": self.job,
            "scheduled_for": self.scheduled_for.isoformat(),
            "run": self.run,
            "attempt": self.attempt,
            "state": self.state,
            "figures": self.figures,
            "error": self.error,
            "milliseconds": round(self.milliseconds, 1),
            "other": self.other,
        }
        return {name: value for name, value in told.items() if value is not None}


class Step:
    """A part of a run, while it is done.

    Attributes
    ----------
    checkpoint
        What an earlier attempt saved last; None when there was none.
    """

    def __init__(self, run: "Run", name: str, checkpoint: dict[str, Any] | None) -> None:
        self.checkpoint = checkpoint
        self._run = run
        self._name = name

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Keep where this has got to, for the attempt that takes it up if this one breaks off.

        Raises
        ------
        LeaseLost
            When the run is no longer this worker's.
        """
        self._run.demand(self._run.jobs.save_checkpoint(self._run.id, self._run.worker, self._name, checkpoint))
        self.checkpoint = checkpoint


class Run:
    """One run of a job, in the hands of this worker.

    Attributes
    ----------
    runtime
        What operations work with.
    connection
        Of this run alone, in autocommit mode.
    id
        Of `almagest.job_runs`.
    scheduled_for
        The time that it is the run of, in UTC.
    worker
        Who holds its lease.
    jobs
        The calls for its steps.
    """

    def __init__(
        self, runtime: Runtime, connection: psycopg.Connection, id_: int, scheduled_for: datetime, worker: str
    ) -> None:
        self.runtime = runtime
        self.connection = connection
        self.id = id_
        self.scheduled_for = scheduled_for
        self.worker = worker
        self.jobs = Jobs(connection)

    def step(self, name: str, work: Callable[[Step], Figures]) -> Figures:
        """Do a part of the job, unless an earlier attempt of this run has done it; returns its figures.

        Raises
        ------
        LeaseLost
            When the run is no longer this worker's.
        OutOfTime
            When its time is over; what was done stays done.
        """
        if deadline.remaining(float("inf")) <= 0:
            raise OutOfTime
        begun = self.jobs.begin_step(self.id, self.worker, name)
        self.demand(begun.outcome != "lost")
        if begun.outcome == "done":
            return begun.figures or {}
        try:
            figures = work(Step(self, name, begun.checkpoint))
        except LeaseLost:
            raise
        except Exception as error:
            self._fail(name, error)
            raise
        self.demand(self.jobs.end_step(self.id, self.worker, name, figures))
        return figures

    def _fail(self, step: str, error: Exception) -> None:
        try:
            _leave_transaction(self.connection)
            self.demand(self.jobs.end_step(self.id, self.worker, step, {}, describe(error)))
        except psycopg.Error:
            # The connection is gone, and with the end of the run its steps end.
            return

    def demand(self, held: bool) -> None:
        """Go on only while the run is this worker's.

        Raises
        ------
        LeaseLost
            When it is not.
        """
        if not held:
            raise LeaseLost


def run_job(runtime: Runtime, job: Job, scheduled_for: datetime, seconds: float) -> Outcome:
    """Do a run of a job, once however often it is asked for.

    Parameters
    ----------
    scheduled_for
        The time that the run is for, with its zone.
    seconds
        How much time there is; the job's own limit where that is less.

    Returns
    -------
    Outcome
        What became of it. What the work raises is stored and in the outcome, not raised.

    Raises
    ------
    Problem
        503 `schema_mismatch`, or `misconfigured` without a database.
    psycopg.Error
        When the database cannot be reached before the work begins.
    """
    begun = time.monotonic()
    scheduled_for = scheduled_for.astimezone(UTC)
    seconds = min(seconds, job.seconds)
    worker = new_worker()
    with connect(runtime.settings, autocommit=True) as connection:
        demand_schema(connection)
        claim = Jobs(connection).claim(job.name, scheduled_for, worker, LEASE_SECONDS, runtime.settings.stack)
        if claim.outcome != "claimed":
            return Outcome(job.name, scheduled_for, claim.run, claim.attempt, claim.outcome, other=claim.other)
        run = Run(runtime, connection, claim.run, scheduled_for, worker)
        with _Heartbeat(run, seconds) as heartbeat:
            figures, cause = _worked(run, job, seconds)
        error = None if cause is None else heartbeat.explain(cause)
        state, cause = _concluded(run, figures, error, cause)
    milliseconds = (time.monotonic() - begun) * 1000
    if state != "succeeded":
        figures = {}
    error = None if cause is None else error or describe(cause)
    return Outcome(job.name, scheduled_for, claim.run, claim.attempt, state, figures, error, milliseconds, cause=cause)


def read_time(text: object) -> datetime:
    """Read the time of a run, as Scheduler writes it: ISO 8601, with its zone.

    Raises
    ------
    Problem
        422 `invalid_time` when it is none.
    """
    try:
        time_ = datetime.fromisoformat(str(text))
        if time_.tzinfo is not None:
            return time_.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    sentence = f"{str(text)[:40]!r} is no time of a run: it must be like 2026-11-30T12:00:00Z."
    raise Problem(422, "invalid_time", sentence)


def _worked(run: Run, job: Job, seconds: float) -> tuple[Figures, Exception | None]:
    try:
        with deadline.limit(seconds):
            return job.work(run), None
    except Exception as error:
        return {}, error
    except BaseException as error:
        # Ctrl-C, say: nobody has to wait for the lease to end.
        _concluded(run, {}, describe(error), None)
        raise


def _concluded(run: Run, figures: Figures, error: str | None, cause: Exception | None) -> tuple[str, Exception | None]:
    """Store how a run ended; returns its state, and of what it failed.

    One whose end could not be stored has failed: when it is asked for again, the steps that were done stay done.
    """
    if isinstance(cause, LeaseLost):
        return "lost", None
    try:
        held = _ended(run, figures, error)
    except Exception as lost:
        # Figures that are no JSON, or a database that does not answer.
        cause = cause or lost
        error = error or describe(cause)
        try:
            held = _ended(run, {}, error)
        except psycopg.Error as still:
            logger.error("end of a run not stored", extra={"run": run.id, "error": type(still).__name__})
            return "failed", cause
    if not held:
        return "lost", None
    return "failed" if error else "succeeded", cause


def _ended(run: Run, figures: Figures, error: str | None) -> bool:
    """Store the end of a run, also when its connection is gone; False where the run was no longer this worker's."""
    try:
        _leave_transaction(run.connection)
        return run.jobs.end(run.id, run.worker, figures, error)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        with connect(run.runtime.settings, autocommit=True) as connection:
            return Jobs(connection).end(run.id, run.worker, figures, error)


def _leave_transaction(connection: psycopg.Connection) -> None:
    """Roll back what the work broke off in."""
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        connection.rollback()


def describe(error: BaseException) -> str:
    """The class of an error, and where it came from; not its message, which may quote what people wrote."""
    name = type(error).__name__
    if isinstance(error, OutOfTime):
        return f"{name}: the run's time was over before its work was."
    if isinstance(error, Problem):
        return f"{name}: {error.code} ({error.status})."
    frames = extract_tb(error.__traceback__)
    place = f", raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    if isinstance(error, psycopg.Error) and error.sqlstate:
        return f"{name}: Postgres refused with {error.sqlstate}{place}."
    return f"{name}{place}."


class _Heartbeat:
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

    def __enter__(self) -> "_Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
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
