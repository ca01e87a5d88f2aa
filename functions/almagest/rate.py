"""How many requests a credential may send a second, as one container sees it."""

import math
from collections.abc import Callable
from uuid import UUID

from almagest.cache import Clock, TtlCache
from almagest.models.caller import Caller
from almagest.problems import Problem

# Of a credential with so slow a rate that its bucket is not full again after a day, the rest of the wait is forgiven.
FORGOTTEN_SECONDS = 86_400


class RateLimit:
    """A token bucket for each key, or person of an org: twice the rate at once, and the rate from then on.

    Each container counts for itself, so what a function lets through is the rate times the containers that serve the
    credential at that moment, at the most. A rate below half a request a second still lets one through at once.

    Parameters
    ----------
    rate
        Requests a second, above 0, of a credential that has no rate of its own.
    clock
        Seconds that only go forward.
    """

    def __init__(self, rate: float, clock: Callable[[], float] | None = None) -> None:
        self._rate = rate
        self._clock = clock or Clock()
        # Each for as long as it takes to fill: from then on, to know nothing of a credential comes to the same.
        self._buckets: TtlCache[tuple[UUID, UUID | None], tuple[float, float]] = TtlCache(
            FORGOTTEN_SECONDS, size=10_000, clock=self._clock
        )

    def take(self, caller: Caller, own_rate: float | None = None) -> None:
        """Count a request.

        Parameters
        ----------
        own_rate
            The credential's, where it has one.

        Raises
        ------
        Problem
            429 `rate_limited`, with the seconds after which one more is let through.
        """
        rate = own_rate or self._rate
        burst = max(1.0, 2 * rate)
        who = (caller.org, caller.key or caller.user)
        now = self._clock()
        left, counted = self._buckets.get(who) or (burst, now)
        left = min(burst, left + (now - counted) * rate)
        if left < 1:
            wait = math.ceil((1 - left) / rate)
            raise Problem(429, "rate_limited", f"More than {rate:g} requests a second.", retry_after=wait)
        self._buckets.put(who, (left - 1, now), seconds=burst / rate)
