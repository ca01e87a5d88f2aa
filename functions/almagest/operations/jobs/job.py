"""A job, and what its work is given: one run of it, in steps that are not done twice."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from almagest import deadline
from almagest.database.jobs import Jobs
from almagest.operations.jobs.errors import LeaseLost, OutOfTime, describe
from almagest.runtime import Runtime

Figures = dict[str, Any]


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
            self.leave_transaction()
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

    def leave_transaction(self) -> None:
        """Roll back what the work broke off in."""
        if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.connection.rollback()
