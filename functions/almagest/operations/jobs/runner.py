"""How a run of a job is done: claimed by one worker, limited in time, and ended with what became of it."""

import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from almagest import deadline
from almagest.database.jobs import Jobs
from almagest.database.session import connect, demand_schema
from almagest.operations.jobs import heartbeat
from almagest.operations.jobs.errors import LeaseLost, describe
from almagest.operations.jobs.job import Figures, Job, Run
from almagest.operations.workers import new_worker
from almagest.problems import Problem
from almagest.runtime import Runtime

logger = logging.getLogger(__name__)


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
        claim = Jobs(connection).claim(job.name, scheduled_for, worker, heartbeat.LEASE_SECONDS, runtime.settings.stack)
        if claim.outcome != "claimed":
            return Outcome(job.name, scheduled_for, claim.run, claim.attempt, claim.outcome, other=claim.other)
        run = Run(runtime, connection, claim.run, scheduled_for, worker)
        with heartbeat.Heartbeat(run, seconds) as beating:
            figures, cause = _worked(run, job, seconds)
        error = None if cause is None else beating.explain(cause)
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
        run.leave_transaction()
        return run.jobs.end(run.id, run.worker, figures, error)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        with connect(run.runtime.settings, autocommit=True) as connection:
            return Jobs(connection).end(run.id, run.worker, figures, error)
