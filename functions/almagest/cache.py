"""A small cache whose entries end by time."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar


class Clock:
    """Seconds that only go forward, and also while a container was frozen.

    The platform stops a container between requests, and may stop its monotonic clock with it; the wall clock knows
    better, but may be set back. Whichever has gone further since the last look counts.

    Parameters
    ----------
    monotonic, wall
        The two clocks, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clocks = (monotonic, wall)
        self._lock = Lock()
        self._seen = (monotonic(), wall())
        self._now = 0.0

    def __call__(self) -> float:
        """Seconds since this clock was made."""
        with self._lock:
            seen = (self._clocks[0](), self._clocks[1]())
            self._now += max(0.0, seen[0] - self._seen[0], seen[1] - self._seen[1])
            self._seen = seen
            return self._now


Key = TypeVar("Key")
Value = TypeVar("Value")


class TtlCache(Generic[Key, Value]):
    """Key -> value for at most `seconds`; the oldest entry goes when there are more than `size`.

    Parameters
    ----------
    seconds
        How long an entry lives; 0 keeps nothing.
    size
        How many entries are kept.
    clock
        Monotonic seconds.
    """

    def __init__(self, seconds: float, size: int = 1000, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._size = size
        self._clock = clock
        self._entries: dict[Key, tuple[float, Value]] = {}
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """The live value of a key, or None."""
        with self._lock:
            expires, value = self._entries.get(key, (0.0, None))
            return value if self._clock() < expires else None

    def put(self, key: Key, value: Value, seconds: float | None = None) -> None:
        """Keep a value, for fewer seconds than usual where `seconds` says so."""
        lifetime = self._seconds if seconds is None else min(self._seconds, seconds)
        with self._lock:
            self._entries.pop(key, None)
            if lifetime > 0:
                self._entries[key] = (self._clock() + lifetime, value)
            while len(self._entries) > self._size:
                del self._entries[next(iter(self._entries))]
