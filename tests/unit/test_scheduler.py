"""EventBridge's schedule expressions and the events of a schedule."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from apscheduler.triggers.interval import IntervalTrigger

from infra.local.scheduler import Scheduler, scheduled_event, trigger
from infra.local.template import Function, Schedule, TemplateError

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)  # a Monday


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("cron(0 0,12 * * ? *)", "2026-11-30T12:00"),
        ("cron(15 0,12 * * ? *)", "2026-11-30T12:15"),
        ("cron(7/20 * * * ? *)", "2026-11-30T12:07"),
        ("cron(0 3 ? * 1 *)", "2026-12-06T03:00"),
        ("cron(0 3 ? * SAT *)", "2026-12-05T03:00"),
        ("cron(0 3 ? * 3-6 *)", "2026-12-01T03:00"),
        ("cron(0 3 1 JAN ? 2028)", "2028-01-01T03:00"),
    ],
)
def test_cron(expression: str, first: str) -> None:
    assert trigger(expression).get_next_fire_time(None, NOON) == datetime.fromisoformat(first + ":00+00:00")


@pytest.mark.parametrize(("expression", "seconds"), [("rate(1 minute)", 60), ("rate(2 hours)", 7200)])
def test_rate(expression: str, seconds: float) -> None:
    times = trigger(expression)
    first = times.get_next_fire_time(None, NOON)
    second = times.get_next_fire_time(first, first)
    assert (second - first).total_seconds() == seconds


@pytest.mark.parametrize(
    "expression",
    [
        "at(2027-01-01T00:00:00)",
        "rate(0 minutes)",
        "rate(5 seconds)",
        "cron(0 0 * * *)",
        "cron(61 * * * ? *)",
        "cron(0 0 L * ? *)",
        "cron(0 0 15W * ? *)",
        "cron(0 0 ? * 6#3 *)",
        "cron(0 0 ? * 9 *)",
    ],
)
def test_what_is_not_known_is_named(expression: str) -> None:
    with pytest.raises(TemplateError) as raised:
        trigger(expression)
    assert expression in str(raised.value)


def test_placeholders_are_filled_in() -> None:
    schedule = Schedule("Sweep", "rate(5 minutes)", '{"scheduled_for": "<aws.scheduler.scheduled-time>"}')
    assert json.loads(scheduled_event(schedule, NOON)) == {"scheduled_for": "2026-11-30T12:00:00Z"}


def test_schedulers_own_event() -> None:
    event = json.loads(scheduled_event(Schedule("Sweep", "rate(5 minutes)"), NOON))
    assert (event["source"], event["time"]) == ("aws.scheduler", "2026-11-30T12:00:00Z")


def test_each_moment_comes_once(
    run_async: Callable[[Coroutine[Any, Any, Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.local.scheduler.trigger", lambda _: IntervalTrigger(seconds=1, timezone=UTC))
    seen: list[bytes] = []
    schedule = Schedule("Often", "rate(1 minute)", '"<aws.scheduler.scheduled-time>"')
    function = Function(name="sweep", handler="", code=Path(), schedules=(schedule,))

    async def follow() -> None:
        scheduler = Scheduler([function], lambda name, event: seen.append(event))
        scheduler.start()
        while len(seen) < 3:
            await asyncio.sleep(0.1)
        await scheduler.stop()

    run_async(follow())
    assert len(seen) == len(set(seen))
