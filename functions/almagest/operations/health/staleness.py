"""staleness: what should have been done by now has been done."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from almagest.operations.health.check import Check, Found, Probe, Status, counted
from almagest.operations.health.intervals import interval

# Three sweeps: what waits longer has been passed over.
BACKLOG_SECONDS = 15 * 60.0
# A run may be late or fail once; twice in a row is no accident.
INTERVALS_LATE = 2

# What is late, by name, and how late in a sentence.
Late = dict[str, str]


def items_waiting(probe: Probe, now: datetime) -> Late:
    """Items that have waited for the index for too long."""
    items, seconds = probe.health.backlog()
    if seconds <= BACKLOG_SECONDS:
        return {}
    waiting = counted(items, "item waits", "items wait")
    return {"index": f"{waiting} for the index, the oldest for {seconds / 60:.0f} minutes"}


def jobs_not_done(probe: Probe, now: datetime) -> Late:
    """Scheduled jobs that have not succeeded within twice their interval; a job is looked at once it is registered."""
    from almagest.operations.registry import JOBS

    since = probe.health.installed_at()
    late: Late = {}
    for name, last in probe.health.last_successes(list(JOBS)).items():
        allowed = INTERVALS_LATE * interval(JOBS[name].schedule)
        if now - max(last or since, since) > allowed:
            late[f"job.{name}"] = f"the job {name} has not succeeded for {_span(now - (last or since))}"
    return late


def partitions_not_made(probe: Probe, now: datetime) -> Late:
    """Partitions that the next month needs; the daily job makes them, once there is one."""
    if now - probe.health.installed_at() <= timedelta(days=INTERVALS_LATE):
        return {}
    return {name: f"the partition {name} is not there yet" for name in probe.health.partitions_missing(now)}


# What else can fall behind, such as connectors, adds a function here.
LOOKS: tuple[Callable[[Probe, datetime], Late], ...] = (items_waiting, jobs_not_done, partitions_not_made)


def look(probe: Probe) -> Found:
    """Look at all that is done by schedule. measured: how many things are late. threshold: none."""
    now = datetime.now(UTC)
    late: Late = {}
    for each in LOOKS:
        late |= each(probe, now)
    items, seconds = probe.health.backlog()
    sentence = "; ".join(late.values())
    return Found(
        _status(late),
        f"{sentence[0].upper()}{sentence[1:]}." if sentence else "Nothing is late.",
        measured=len(late),
        threshold=0,
        unit="late",
        figures={"late": sorted(late), "index_backlog": items, "index_backlog_seconds": round(seconds, 1)},
    )


def _status(late: Late) -> Status:
    return "degraded" if late else "ok"


def _span(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} hours" if hours >= 2 else f"{hours * 60:.0f} minutes"


CHECK = Check("staleness", "What should have been done by now has been done.", 30, look)
