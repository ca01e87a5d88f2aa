"""Who watches the watcher: where remediation does not run, nobody mends and tells but health itself."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from almagest.database.health import Health
from almagest.operations.health.check import hub_key
from almagest.operations.health.intervals import interval

if TYPE_CHECKING:
    from almagest.operations.jobs.job import Run

NAME = "remediation"
# A run may be late or fail once.
INTERVALS = 2

TITLE = "What the health checks find is not mended"
TO_DO = (
    "See with `almagest jobs history remediation` why its runs are skipped or fail, and whether its schedule is on;"
    " `almagest jobs run remediation` does it now."
)


def watch_remediation(run: "Run") -> dict[str, Any]:
    """Tell the Hub where remediation has not succeeded for two of its intervals, and close that where it has again.

    Returns
    -------
    dict
        `late`, whether it is so.
    """
    from almagest.operations.registry import JOBS

    health = Health(run.connection)
    last = health.last_successes([NAME])[NAME]
    # A new installation has not had its time yet.
    since = max(last or health.installed_at(), health.installed_at())
    hours = (datetime.now(UTC) - since).total_seconds() / 3600
    late = hours * 3600 > INTERVALS * interval(JOBS[NAME].schedule).total_seconds()
    if health.speaks(run.id):
        if late:
            told = {
                "title": TITLE,
                "found": f"Remediation has not succeeded for {hours:.0f} hours.",
                "tried": [],
                "to_do": TO_DO,
                "figures": {"job": NAME, "run": run.id, "last_run": health.last_run_of(NAME)},
            }
            health.open_hub_entry(hub_key(NAME), "critical", told, tried=False)
        else:
            health.close_hub_entry(hub_key(NAME))
    return {"late": late}
