"""What ends a run before its work does, and how an error is told without what people wrote."""

from pathlib import Path
from traceback import extract_tb

import psycopg

from almagest.problems import Problem


class LeaseLost(Exception):
    """The run is another worker's by now, or was given up: nothing more may be written for it."""


class OutOfTime(Exception):
    """The run's time was over before its work was."""


def describe(error: BaseException) -> str:
    """The class of an error, and where it came from; not its message, which may quote what people wrote."""
    name = type(error).__name__
    if isinstance(error, OutOfTime):
        return f"{name}: the run's time was over before its work was."
    if isinstance(error, Problem):
        return f"{name}: {error.code} ({error.status})."
    frames = extract_tb(error.__traceback__)
    place = f", raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    if isinstance(error, psycopg.Error) and error.sqlstate:
        return f"{name}: Postgres refused with {error.sqlstate}{place}."
    return f"{name}{place}."
