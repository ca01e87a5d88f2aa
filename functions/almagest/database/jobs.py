"""Scheduled runs and their steps in the database: claimed, kept alive, ended, and read; over a plain connection."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb


@dataclass(frozen=True)
class Claim:
    """What came of asking for a run.

    Attributes
    ----------
    outcome
        `claimed`, `done`, `running` or `skipped`, as `engine.claim_run` tells them apart.
    run
        Its id.
    attempt
        How often it was begun.
    other
        Id of the run that is at work, where it is in the way.
    """

    outcome: str
    run: int
    attempt: int
    other: int | None


@dataclass(frozen=True)
class BegunStep:
    """What came of beginning a step.

    Attributes
    ----------
    outcome
        `begun`, `done` (by an earlier attempt, with these `figures`) or `lost`.
    figures
        Of the earlier attempt, else None.
    checkpoint
        Where an earlier attempt got to, else None.
    """

    outcome: str
    figures: dict[str, Any] | None
    checkpoint: dict[str, Any] | None


class Jobs:
    """Calls of the engine's functions for scheduled runs; each is a transaction of its own.

    What a worker writes is taken only while the run is its own: `False` says that it no longer is.

    Parameters
    ----------
    connection
        In autocommit mode.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def claim(self, job: str, scheduled_for: datetime, worker: str, seconds: float, stack: str = "local") -> Claim:
        """Ask for a run, to hold it for so many seconds and to do it in a stack."""
        row = self._row(
            "select * from engine.claim_run(%s, %s, %s, %s, %s)", job, scheduled_for, worker, seconds, stack
        )
        return Claim(*row)

    def beat(self, run: int, worker: str, seconds: float) -> bool:
        """Hold a run for so many seconds from now on."""
        return bool(self._row("select engine.beat_run(%s, %s, %s)", run, worker, seconds)[0])

    def begin_step(self, run: int, worker: str, name: str) -> BegunStep:
        """Begin a step, or take it up."""
        return BegunStep(*self._row("select * from engine.begin_step(%s, %s, %s)", run, worker, name))

    def save_checkpoint(self, run: int, worker: str, step: str, checkpoint: dict[str, Any]) -> bool:
        """Keep where a step has got to."""
        found = self._row("select engine.save_checkpoint(%s, %s, %s, %s)", run, worker, step, Jsonb(checkpoint))
        return bool(found[0])

    def end_step(self, run: int, worker: str, step: str, figures: dict[str, Any], error: str | None = None) -> bool:
        """End a step; with an error, it failed."""
        found = self._row("select engine.end_step(%s, %s, %s, %s, %s)", run, worker, step, Jsonb(figures), error)
        return bool(found[0])

    def end(self, run: int, worker: str, figures: dict[str, Any], error: str | None = None) -> bool:
        """End a run; with an error, it failed."""
        return bool(self._row("select engine.end_run(%s, %s, %s, %s)", run, worker, Jsonb(figures), error)[0])

    def latest(self) -> dict[str, dict[str, Any]]:
        """The latest run of each job, by its name, and with it the last time `on_schedule`."""
        rows = self._named(self._connection.execute("select * from engine.latest_runs()"))
        return {row["job"]: row for row in rows}

    def history(self, job: str | None, most: int) -> list[dict[str, Any]]:
        """The latest runs of a job or of all, the last begun first, with their steps."""
        return self._named(self._connection.execute("select * from engine.run_history(%s, %s)", (job, most)))

    def installation(self) -> str | None:
        """The stack whose schedules run; None where none has run."""
        stack: str | None = self._row("select engine.installation()")[0]
        return stack

    def expire(self, before: datetime, batch: int) -> int:
        """Delete up to `batch` runs that began before a moment, but the latest of each job; how many."""
        return int(self._row("select engine.expire_runs(%s, %s)", before, batch)[0])

    def _row(self, statement: str, *parameters: object) -> tuple[Any, ...]:
        row = self._connection.execute(statement.encode(), parameters).fetchone()
        assert row is not None  # noqa: S101 - one row a call
        return row

    @staticmethod
    def _named(cursor: psycopg.Cursor[Any]) -> list[dict[str, Any]]:
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
