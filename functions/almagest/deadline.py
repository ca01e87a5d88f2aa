"""How much time the current request has left; every wait inside it stays below that."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Time kept back to answer with a clear error, instead of being ended by the platform in the middle.
MARGIN_SECONDS = 0.5

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Give the enclosed work so many seconds, less the margin to answer in."""
    token = _deadline.set(time.monotonic() + seconds - MARGIN_SECONDS)
    try:
        yield
    finally:
        _deadline.reset(token)


def remaining(default: float) -> float:
    """Seconds left, at most `default`; zero or less when the time is over."""
    deadline = _deadline.get()
    return default if deadline is None else min(default, deadline - time.monotonic())
