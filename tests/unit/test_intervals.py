"""How much time passes between two runs of a schedule."""

from datetime import timedelta

import pytest

from almagest.operations.health.intervals import interval
from almagest.operations.registry import JOBS


@pytest.mark.parametrize(
    ("expression", "minutes"),
    [
        ("rate(5 minutes)", 5),
        ("rate(1 hour)", 60),
        ("rate(2 days)", 2880),
        ("cron(0 0,12 * * ? *)", 720),
        ("cron(15 0,12 * * ? *)", 720),
        ("cron(30 3 * * ? *)", 1440),
        ("cron(0 6,8 * * ? *)", 1320),
        ("cron(0 * * * ? *)", 60),
        ("cron(0/10 * * * ? *)", 10),
        ("cron(0 8-10 * * ? *)", 1320),
        ("cron(5 */6 * * ? *)", 360),
    ],
)
def test_the_longest_time_between_two_runs(expression: str, minutes: int) -> None:
    assert interval(expression) == timedelta(minutes=minutes)


@pytest.mark.parametrize("expression", ["at(2026-01-01T00:00:00)", "cron(0 0 1 * ? *)", "rate(5)", ""])
def test_another_schedule_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="not known"):
        interval(expression)


def test_every_job_has_one() -> None:
    """Else the check of staleness would break off."""
    assert {name: interval(job.schedule) for name, job in JOBS.items()}["health"] == timedelta(hours=12)
