"""How many requests a credential may send a second, as one container sees it."""

import math
import time
from collections.abc import Callable
from uuid import UUID

from almagest.cache import TtlCache
from almagest.models.caller import Caller
from almagest.problems import Problem

# A bucket that was not used for this long is full again, whatever the rate.
FORGOTTEN_SECONDS = 60


class RateLimit:
    """A token bucket for each key or person: twice the rate at once, and the rate from then on.

    Each container counts for itself, so what a function lets through is this rate times the containers that serve the
    credential at that moment, at the most.

    Parameters
    ----------
    rate
        Requests a second, above 0.
    clock
        Monotonic seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = 2 * rate
        self._clock = clock
        self._buckets: TtlCache[UUID, tuple[float, float]] = TtlCache(FORGOTTEN_SECONDS, clock=clock)

    def take(self, caller: Caller) -> None:
        """Count a request.

        Raises
        ------
        Problem
            429 `rate_limited`, with the seconds after which one more is let through.
        """
        who = caller.key or caller.user or caller.org
        now = self._clock()
        left, counted = self._buckets.get(who) or (self._burst, now)
        left = min(self._burst, left + (now - counted) * self._rate)
        if left < 1:
            wait = math.ceil((1 - left) / self._rate)
            raise Problem(429, "rate_limited", f"More than {self._rate:g} requests a second.", retry_after=wait)
        self._buckets.put(who, (left - 1, now))
