"""How much time passes between two runs of a schedule."""

import re
from datetime import timedelta

_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


def interval(expression: str) -> timedelta:
    """The longest time between two runs of a `rate(…)`, or of a `cron(…)` that names minutes and hours of every day.

    Raises
    ------
    ValueError
        When the expression is another one.

    Examples
    --------
    >>> interval("cron(0 0,12 * * ? *)")
    datetime.timedelta(seconds=43200)
    """
    if rate := re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression):
        return int(rate[1]) * _UNITS[rate[2]]
    if cron := re.fullmatch(r"cron\((\S+) (\S+) \* \* \? \*\)", expression):
        minutes, hours = _values(cron[1], 60), _values(cron[2], 24)
        moments = sorted(hour * 60 + minute for hour in hours for minute in minutes)
        gaps = [later - earlier for earlier, later in zip(moments, [*moments[1:], moments[0] + 24 * 60], strict=True)]
        return timedelta(minutes=max(gaps))
    raise ValueError(f"the interval of {expression} is not known")


def _values(field: str, end: int) -> list[int]:
    """The values of a field: *, numbers with commas, ranges, and steps."""
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = 0 if first == "*" else int(first)
        stop = end - 1 if first == "*" or (step and not last) else int(last or first)
        values.update(range(start, stop + 1, int(step or 1)))
    return sorted(values)
