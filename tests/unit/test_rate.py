"""The rate of requests that a container takes from one credential."""

from contextlib import suppress
from uuid import uuid4

import pytest

from almagest.models.caller import Caller, Role
from almagest.problems import Problem
from almagest.rate import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def caller() -> Caller:
    return Caller(org=uuid4(), user=uuid4(), role=Role.OWNER, key=uuid4())


def taken(limit: RateLimit, who: Caller, requests: int) -> int:
    """How many of so many requests at once are let through."""
    passed = 0
    for _ in range(requests):
        with suppress(Problem):
            limit.take(who)
            passed += 1
    return passed


def test_twice_the_rate_at_once_and_the_rate_from_then_on() -> None:
    clock = Clock()
    limit, who = RateLimit(10, clock), caller()
    assert taken(limit, who, 100) == 20
    clock.now += 1
    assert taken(limit, who, 100) == 10
    clock.now += 3600
    assert taken(limit, who, 100) == 20


def test_each_credential_counts_for_itself() -> None:
    limit = RateLimit(1, Clock())
    assert [taken(limit, who, 5) for who in (caller(), caller())] == [2, 2]


def test_retry_after_is_when_one_more_is_let_through() -> None:
    clock = Clock()
    limit, who = RateLimit(0.5, clock), caller()
    limit.take(who)
    with pytest.raises(Problem) as refused:
        limit.take(who)
    assert refused.value.retry_after == 2
    clock.now += 2
    limit.take(who)
