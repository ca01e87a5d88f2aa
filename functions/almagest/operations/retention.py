"""Ending what is kept for a time only: traces, idempotency keys, old runs, Hub entries; by the daily job or by hand."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from almagest import deadline
from almagest.database.jobs import Jobs
from almagest.database.retention import TABLES, Busy, Retention, Step

if TYPE_CHECKING:
    import psycopg

    from almagest.operations.jobs.job import Run

BATCH = 5_000
# For how long it is kept what scheduled work did and found, and what the Hub told once it is closed.
RUN_DAYS = 90
# A step whose lock is not free is tried again; searches are short, so one of these times nearly always comes through.
TRIES = 20
PAUSE_SECONDS = 0.25

Report = Callable[[str], None]


def end_what_is_over(run: "Run") -> dict[str, Any]:
    """Do the daily job: what `retain` does, then an end to runs and closed Hub entries that are older than 90 days."""

    def left() -> float:
        return deadline.remaining(float("inf"))

    figures: dict[str, Any] = dict(run.step("retain", lambda _: dict(retain(Retention(run.connection), left()))))

    return figures | run.step("runs", lambda _: dict(end_old_work(run.connection, datetime.now(UTC))))


def end_old_work(connection: "psycopg.Connection", at: datetime) -> dict[str, int]:
    """Delete runs of scheduled work and closed entries of the Hub that are too old at a moment.

    Returns
    -------
    dict
        How many `runs` went, of which the latest of each job stays, and how many `hub_entries`, with their marks.
    """
    before = at - timedelta(days=RUN_DAYS)
    return {
        "runs": _in_batches(partial(Jobs(connection).expire, before)),
        "hub_entries": _in_batches(partial(Retention(connection).expire_hub_entries, before)),
    }


def retain(
    retention: Retention, seconds: float, at: datetime | None = None, report: Report = lambda _: None
) -> dict[str, int]:
    """Make the months to come their partitions, and end what is over; done twice, the second finds nothing to do.

    Parameters
    ----------
    retention
        On a connection of this job's own.
    seconds
        How much time there is; what is left undone is the next run's.
    at
        The moment that counts as now.
    report
        Receives a line for each step that was done or left.

    Returns
    -------
    dict
        How many months were `added`, `moved` out of the rest and `dropped`; how many single `traces` and
        `idempotency_keys` were deleted; how many steps were `left`.
    """
    at = at or datetime.now(UTC)
    counts = dict.fromkeys(("added", "moved", "dropped", "traces", "idempotency_keys", "left"), 0)
    with deadline.limit(seconds):
        _fence(retention, retention.plan(at), at)
        # What was detached by the first reading of the plan is dropped by the second.
        for _ in range(2):
            for step in retention.plan(at):
                _take(retention, step, counts, report)
        for table in TABLES:
            counts["traces"] += _in_batches(partial(retention.expire_traces, table, at))
        counts["idempotency_keys"] = _in_batches(partial(retention.expire_idempotency_keys, at))
        counts["left"] = len(retention.plan(at))
    return counts


def _in_batches(expire: Callable[..., int]) -> int:
    """How many were deleted until there was nothing more, or no time."""
    total = 0
    while _time_left():
        done = expire(BATCH)
        total += done
        if done < BATCH:
            break
    return total


def _fence(retention: Retention, plan: list[Step], at: datetime) -> None:
    for table in TABLES:
        # Never of a month that rows may come for before its partition is there: they would be refused.
        months = [step.month for step in plan if step.table == table and step.step == "add" and step.month]
        to_come = [month for month in months if month > (at + timedelta(days=1)).date()]
        if to_come:
            _patiently(partial(retention.raise_fence, table, min(to_come)))


def _take(retention: Retention, step: Step, counts: dict[str, int], report: Report) -> None:
    words = f"{step.step} {step.table}" + (f" {step.month:%Y-%m}" if step.month else "")
    done = _patiently(partial(retention.take, step))
    if done is None:
        report(f"left for the next run: {words}")
    elif done:
        report(words)
        counted = {"add": "added", "move": "moved", "drop": "dropped"}.get(step.step)
        if counted:
            counts[counted] += 1


def _patiently(action: Callable[[], bool]) -> bool | None:
    """What an action says, tried again while its lock is not free; None when it never was."""
    for _ in range(TRIES):
        if not _time_left():
            return None
        try:
            return action()
        except Busy:
            time.sleep(PAUSE_SECONDS)
    return None


def _time_left() -> bool:
    return deadline.remaining(float("inf")) > 0
