"""How many requests a credential has had today, in this container and, as last told, in all of them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from almagest.problems import Problem

# A container asks again when it has used this part of what was its share, among all that count, of what was left.
PARTS = 10


def utc_now() -> datetime:
    """The moment by this machine's clock."""
    return datetime.now(UTC)


class Usage:
    """One container's count for one credential.

    Whenever a container authenticates a credential anew, at the latest after the 30 seconds that callers are cached
    for, it reports what it has let through on this UTC day, the request in hand included, and is told what all
    containers have. So nothing is asked that would not be asked anyway, and no container waits for another. What that
    costs in precision:

    - Until they ask again, containers do not see what the others let through: a quota may be exceeded by what the other
      containers serve in 30 seconds. Near its end by much less, about ten requests a container, since one that has used
      a tenth of its share of what was left when it last asked asks again.
    - A container that ends between two reports takes up to 30 seconds of its count along; so does midnight.
    - A request that is refused after it was reported counts, once a container at the most.

    Parameters
    ----------
    now
        The moment, with its offset.
    """

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._source = uuid4()
        self._day = now().date()
        self._served = 0
        self._elsewhere = 0
        self._quota: int | None = None
        self._ask_at: int | None = None

    def report(self) -> dict[str, Any]:
        """What the database is told: `{source, day, requests}`, where the last is of this day so far."""
        self._begin_day()
        left = self._left()
        in_hand = 1 if left is None or left > 0 else 0
        return {"source": str(self._source), "day": self._day.isoformat(), "requests": self._served + in_hand}

    def learn(self, report: dict[str, Any], used_today: int, quota: int | None, sources: int = 1) -> None:
        """Take in the answer to a report.

        Parameters
        ----------
        report
            As it was sent.
        used_today
            Requests of all containers on the day of the report, those of the report among them.
        quota
            Requests a UTC day; None for no limit.
        sources
            How many containers have counted on this day.
        """
        self._elsewhere = max(0, used_today - int(report["requests"]))
        self._quota = quota
        left = self._left()
        # One that is used up is asked about no more often than every other: it takes a new day, or another quota.
        share = max(1, (left or 0) // (PARTS * max(1, sources)))
        self._ask_at = self._served + share if left is not None and left > 0 else None

    def is_due(self) -> bool:
        """Whether the database has to be asked before the next request, however lately it was."""
        self._begin_day()
        return self._ask_at is not None and self._served >= self._ask_at

    def demand(self) -> None:
        """See whether one more request may be served today.

        Raises
        ------
        Problem
            429 `quota_exceeded`, with the seconds until the next UTC day.
        """
        self._begin_day()
        left = self._left()
        if left is not None and left < 1:
            detail = f"All {self._quota} requests of this UTC day are used."
            raise Problem(429, "quota_exceeded", detail, retry_after=self._seconds_of_day_left())

    def count(self) -> None:
        """Count a request that is let through."""
        self._served += 1

    def _left(self) -> int | None:
        return None if self._quota is None else self._quota - self._elsewhere - self._served

    def _begin_day(self) -> None:
        if (today := self._now().date()) != self._day:
            self._day, self._served, self._elsewhere = today, 0, 0
            self._ask_at = None if self._quota is None else 0

    def _seconds_of_day_left(self) -> int:
        now = self._now()
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        return max(1, -int((now - midnight).total_seconds() // 1))
