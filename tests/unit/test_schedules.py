"""The template's schedules: when each job runs, in UTC, and what its events say."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
import yaml

from almagest.operations.health import check
from almagest.operations.jobs import heartbeat
from almagest.operations.jobs.runner import read_time
from almagest.operations.registry import JOBS
from infra.local import ROOT
from infra.local.scheduler import scheduled_event, trigger
from infra.local.template import Schedule, _Loader, read_template
from tests.unit.test_template import PARAMETERS

FUNCTIONS = read_template(ROOT / "template.yaml", PARAMETERS)
SCHEDULES = {json.loads(each.input or "{}")["job"]: each for each in FUNCTIONS["jobs"].schedules}


def times(schedule: Schedule, after: datetime, number: int) -> list[datetime]:
    """The next times behind a moment; a rate counts from it."""
    source = trigger(schedule.expression, after)

    def follow() -> Iterator[datetime]:
        at = after
        while True:
            at = source.get_next_fire_time(None, at + timedelta(microseconds=1))
            yield at

    return list(islice(follow(), number))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_every_job_has_its_schedule_and_only_the_jobs_function_has_any() -> None:
    assert {name: schedule.expression for name, schedule in SCHEDULES.items()} == {
        job.name: job.schedule for job in JOBS.values()
    }
    assert [name for name, function in FUNCTIONS.items() if function.schedules] == ["jobs"]


@pytest.mark.parametrize(
    ("job", "after", "expected"),
    [
        ("index_sweep", "2026-12-31T23:52", ["2026-12-31T23:57", "2027-01-01T00:02", "2027-01-01T00:07"]),
        # the last night of a leap February, and of a year
        ("retention", "2028-02-28T03:30", ["2028-02-29T03:30", "2028-03-01T03:30"]),
        ("retention", "2026-12-31T12:00", ["2027-01-01T03:30", "2027-01-02T03:30"]),
        ("health", "2026-11-30T11:59", ["2026-11-30T12:00", "2026-12-01T00:00", "2026-12-01T12:00"]),
        ("health", "2026-11-30T12:00", ["2026-12-01T00:00", "2026-12-01T12:00"]),
        # nights in which clocks are put forward and back elsewhere
        ("health", "2027-03-27T18:00", ["2027-03-28T00:00", "2027-03-28T12:00", "2027-03-29T00:00"]),
        ("health", "2027-10-30T18:00", ["2027-10-31T00:00", "2027-10-31T12:00", "2027-11-01T00:00"]),
        ("remediation", "2026-11-30T12:00", ["2026-11-30T12:15", "2026-12-01T00:15", "2026-12-01T12:15"]),
        ("remediation", "2026-12-31T12:15", ["2027-01-01T00:15", "2027-01-01T12:15"]),
    ],
)
def test_next_times(job: str, after: str, expected: list[str]) -> None:
    assert times(SCHEDULES[job], at(after), len(expected)) == [at(time) for time in expected]


def test_remediation_follows_health_by_exactly_a_quarter_of_an_hour() -> None:
    """Each of them, for four years; and there is no health run that it does not follow."""
    begin, number = at("2026-11-29T23:59"), 2 * (4 * 365 + 1)
    health, remediation = (times(SCHEDULES[job], begin, number) for job in ("health", "remediation"))
    assert {mended - checked for checked, mended in zip(health, remediation, strict=True)} == {timedelta(minutes=15)}
    assert {later - earlier for earlier, later in pairwise(health)} == {timedelta(hours=12)}


def test_health_is_over_before_remediation_begins() -> None:
    """Its first attempt, however late Scheduler hands it over; a check that hangs is waited for a little longer."""
    waits = check.GRACE_SECONDS + heartbeat.PATIENCE_SECONDS
    template = yaml.load((ROOT / "template.yaml").read_text(), _Loader)  # noqa: S506 - a SafeLoader
    schedule = template["Resources"]["JobsFunction"]["Properties"]["Events"]["Health"]["Properties"]
    age = schedule["RetryPolicy"]["MaximumEventAgeInSeconds"]
    assert age + JOBS["health"].seconds + waits < 15 * 60


def test_a_run_ends_before_the_next_and_before_its_function() -> None:
    for name, schedule in SCHEDULES.items():
        first, second = times(schedule, at("2026-11-30T00:00"), 2)
        assert JOBS[name].seconds < (second - first).total_seconds()
        assert JOBS[name].seconds < FUNCTIONS["jobs"].timeout


@pytest.mark.parametrize("job", sorted(SCHEDULES))
def test_what_is_sent_is_what_the_function_reads(job: str) -> None:
    due = at("2026-11-30T12:00")
    sent = json.loads(scheduled_event(SCHEDULES[job], due))
    assert sent.keys() == {"job", "scheduled_for"}
    assert (JOBS[sent["job"]].name, read_time(sent["scheduled_for"])) == (job, due)


def test_a_rate_counts_from_a_time_that_is_known() -> None:
    since, now = at("2026-11-30T12:01"), at("2026-11-30T13:00:30")
    assert trigger("rate(5 minutes)", since).get_next_fire_time(None, now) == at("2026-11-30T13:01")
