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


def test_a_slow_rate_lets_one_through_and_is_not_forgotten() -> None:
    clock = Clock()
    limit, who = RateLimit(100, clock), caller()
    limit.take(who, 0.001)
    for _ in range(9):
        clock.now += 100
        with pytest.raises(Problem):
            limit.take(who, 0.001)
    clock.now += 101
    limit.take(who, 0.001)


def test_a_rate_of_its_own_goes_before_the_default() -> None:
    clock = Clock()
    limit, who = RateLimit(10, clock), caller()

    def passed(rate: float | None) -> int:
        count = 0
        for _ in range(100):
            with suppress(Problem):
                limit.take(who, rate)
                count += 1
        return count

    assert passed(2) == 4
    clock.now += 100
    assert passed(None) == 20


def test_one_person_in_two_orgs_counts_in_each() -> None:
    limit, user = RateLimit(1, Clock()), uuid4()
    people = [Caller(org=uuid4(), user=user, role=Role.MEMBER) for _ in range(2)]
    assert [taken(limit, who, 5) for who in people] == [2, 2]
