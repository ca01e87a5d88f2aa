"""EventBridge Scheduler, as far as the template asks for it: functions invoked at their times."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from infra.local.template import ACCOUNT, REGION, Function, Schedule, TemplateError

_UNITS = {"minute": "minutes", "hour": "hours", "day": "days"}
# EventBridge counts the days of a week from Sunday, 1; APScheduler from Monday, 0: names say the same to both.
_DAYS = ["", "sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def trigger(expression: str, since: datetime | None = None) -> BaseTrigger:
    """Return the times of a `rate(…)` or `cron(…)` expression, in UTC; a rate counts from `since`, or from now on.

    Raises
    ------
    TemplateError
        When the expression is none of these, or uses what is not known here (L, W, #).
    """
    if rate := re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression):
        if amount := int(rate[1]):
            return IntervalTrigger(**{_UNITS[rate[2]]: amount}, start_date=since, timezone=UTC)
    elif cron := re.fullmatch(r"cron\(([^\s#]+) ([^\s#]+) ([^\s#]+) ([^\s#]+) ([^\s#]+) ([^\s#]+)\)", expression):
        minute, hour, day, month, weekday, year = (part.replace("?", "*").lower() for part in cron.groups())
        try:
            return CronTrigger(
                year, month, day, day_of_week=_weekdays(weekday), hour=hour, minute=minute, second=0, timezone=UTC
            )
        except (ValueError, IndexError):
            pass
    raise TemplateError(f"The schedule expression {expression} is not known to the local stack.")


def _weekdays(field: str) -> str:
    # The number after a slash is a step, no day.
    days, slash, step = field.partition("/")
    return re.sub(r"\d+", lambda number: _DAYS[int(number[0])], days) + slash + step


def scheduled_event(schedule: Schedule, due: datetime) -> bytes:
    """Return what Scheduler sends: the schedule's input with its placeholders filled in, or its own event."""
    time = due.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    arn = f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{schedule.name}"
    execution = str(uuid4())
    if schedule.input is None:
        return json.dumps(
            {
                "version": "0",
                "id": execution,
                "detail-type": "Scheduled Event",
                "source": "aws.scheduler",
                "account": ACCOUNT,
                "time": time,
                "region": REGION,
                "resources": [arn],
                "detail": "{}",
            }
        ).encode()
    filled = schedule.input
    for name, value in {
        "scheduled-time": time,
        "schedule-arn": arn,
        "execution-id": execution,
        "attempt-number": "1",
    }.items():
        filled = filled.replace(f"<aws.scheduler.{name}>", value)
    return filled.encode()


class Scheduler:
    """Invokes functions when their schedules are due; what was missed while the machine slept stays missed.

    Parameters
    ----------
    functions
        Those of the template.
    invoke
        Called with a function's name and the event (JSON).

    Raises
    ------
    TemplateError
        When an expression is not known.
    """

    def __init__(self, functions: Iterable[Function], invoke: Callable[[str, bytes], None]) -> None:
        self._due = [
            (function.name, schedule, trigger(schedule.expression))
            for function in functions
            for schedule in function.schedules
        ]
        self._invoke = invoke
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to wait, in the running event loop."""
        self._tasks = [asyncio.create_task(self._follow(*due)) for due in self._due]

    async def stop(self) -> None:
        """Stop waiting."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, name: str, schedule: Schedule, times: BaseTrigger) -> None:
        after = datetime.now(UTC)
        while due := times.get_next_fire_time(None, after):
            await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
            self._invoke(name, scheduled_event(schedule, due))
            # A sleep may end a little early, and the same moment must not come twice.
            after = max(datetime.now(UTC), due + timedelta(microseconds=1))
