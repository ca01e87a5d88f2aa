"""A health run: each check once, its result stored, the worst of them noted."""

import logging
from typing import TYPE_CHECKING, Any

from almagest.database.health import Health
from almagest.operations.health.check import Check, Result, hub_key, perform
from almagest.operations.health.registry import CHECKS
from almagest.operations.health.watch import watch_remediation

if TYPE_CHECKING:
    from almagest.operations.jobs.job import Run

logger = logging.getLogger(__name__)

BACKLOG_SECONDS = 20.0


def check_health(run: "Run") -> dict[str, Any]:
    """Make the checks that this run has not made yet, and close the Hub entries of those that pass.

    Returns
    -------
    dict
        `status`, the worst; how many are `failed` and `degraded`; `checks`, for each its status, figure and
        milliseconds; `index_backlog`, items, and `index_backlog_seconds`, the age of the oldest, null where they could
        not be counted.
    """
    health = Health(run.connection)
    checks = {name: _check(run, check) for name, check in CHECKS.items()}
    status = health.store_run(run.id)  # before anything that may fail: remediation claims it
    run.step("remediation", lambda _: watch_remediation(run))
    statuses = [each["status"] for each in checks.values()]
    return {
        "status": status,
        "failed": statuses.count("failed"),
        "degraded": statuses.count("degraded"),
        "checks": checks,
        **_backlog(health),
    }


def _backlog(health: Health) -> dict[str, Any]:
    """Figures beside the checks: without them, what the checks found is stored all the same."""
    import psycopg

    items: int | None = None
    seconds: float | None = None
    health.limit(BACKLOG_SECONDS)
    try:
        items, seconds = health.backlog()
    except psycopg.Error as error:
        logger.warning("backlog not counted", extra={"error": type(error).__name__})
    return {"index_backlog": items, "index_backlog_seconds": None if seconds is None else round(seconds, 1)}


def _check(run: "Run", check: Check) -> dict[str, Any]:
    return run.step(check.name, lambda _: record(run, perform(check, run.runtime)))


def record(run: "Run", result: Result) -> dict[str, Any]:
    """Store a result with a run, and return its figures; one that passes closes its entry, if it speaks for it."""
    health = Health(run.connection)
    health.store_check(run.id, result.row())
    if result.found.status == "ok" and health.speaks(run.id):
        health.close_hub_entry(hub_key(result.name))
    return {"status": result.found.status, "measured": result.found.measured, "milliseconds": result.duration_ms}
