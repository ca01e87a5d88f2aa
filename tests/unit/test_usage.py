"""The daily quota: what each container lets through, and what all of them together do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from almagest.handlers import search
from almagest.problems import Problem
from almagest.usage import Usage
from tests.edge import CALLER, FakeRpc, event, runtime, send

CACHED_SECONDS = 30


class World:
    """One database and its clock; containers ask it when a caller's 30 seconds are over, or when they are due."""

    def __init__(self, quota: int | None) -> None:
        self.now = datetime(2026, 5, 1, 12, tzinfo=UTC)
        self.quota = quota
        self.reports: dict[tuple[str, str], int] = {}
        self.asked = 0

    def answer(self, report: dict[str, Any]) -> int:
        """As `engine.count_usage` does."""
        self.asked += 1
        key = (report["day"], report["source"])
        self.reports[key] = max(self.reports.get(key, 0), report["requests"])
        return self.used(report["day"])

    def used(self, day: str) -> int:
        return sum(requests for (each, _), requests in self.reports.items() if each == day)


class Container:
    def __init__(self, world: World) -> None:
        self.world = world
        self.usage = Usage(lambda: world.now)
        self.asked_at: datetime | None = None

    def serve(self) -> bool:
        """Whether one request is let through."""
        forgotten = self.asked_at is None or self.world.now - self.asked_at >= timedelta(seconds=CACHED_SECONDS)
        if forgotten or self.usage.is_due():
            self.ask()
        try:
            self.usage.demand()
        except Problem:
            return False
        self.usage.count()
        return True

    def ask(self) -> None:
        report = self.usage.report()
        self.usage.learn(report, self.world.answer(report), self.world.quota, len(self.world.reports))
        self.asked_at = self.world.now


@pytest.mark.parametrize("quota", [1, 2, 3, 10, 101, 1000])
def test_one_container_lets_through_what_the_quota_says(quota: int) -> None:
    world = World(quota)
    container = Container(world)
    assert sum(container.serve() for _ in range(quota + 50)) == quota
    assert world.used("2026-05-01") == quota


def test_without_a_quota_nothing_is_refused_and_everything_counted() -> None:
    world = World(None)
    container = Container(world)
    for _ in range(100):
        assert container.serve()
        world.now += timedelta(seconds=1)
    assert world.asked == 4
    container.ask()
    assert world.used("2026-05-01") == 101


def test_an_early_report_costs_few_calls() -> None:
    """A tenth of what is left each time: about 10 times its logarithm."""
    world = World(100_000)
    container = Container(world)
    served = sum(container.serve() for _ in range(100_050))
    assert served == 100_000
    assert world.asked < 130


@pytest.mark.parametrize("containers", [2, 5, 20, 50])
def test_containers_together_exceed_a_quota_by_little(containers: int) -> None:
    """Though not a second passes, in which they would hear of each other anyway."""
    world = World(1000)
    all_ = [Container(world) for _ in range(containers)]
    served = sum(container.serve() for _ in range(1200) for container in all_)
    assert 1000 <= served <= 1000 + 10 * containers


def test_the_next_day_is_a_new_one() -> None:
    world = World(5)
    container = Container(world)
    assert sum(container.serve() for _ in range(9)) == 5
    world.now = datetime(2026, 5, 1, 23, 59, 58, 500_000, tzinfo=UTC)
    with pytest.raises(Problem) as refused:
        container.usage.demand()
    assert refused.value.retry_after == 2
    world.now += timedelta(seconds=2)
    assert sum(container.serve() for _ in range(9)) == 5
    assert (world.used("2026-05-01"), world.used("2026-05-02")) == (5, 5)


def test_another_quota_counts_within_30_seconds() -> None:
    world = World(5)
    container = Container(world)
    assert sum(container.serve() for _ in range(9)) == 5
    world.quota = 8
    assert not container.serve()
    world.now += timedelta(seconds=CACHED_SECONDS)
    assert sum(container.serve() for _ in range(9)) == 3
    world.quota = None
    world.now += timedelta(seconds=CACHED_SECONDS)
    assert all(container.serve() for _ in range(9))


class TestEdge:
    def ask(self, monkeypatch: pytest.MonkeyPatch, requests: int, **limits: Any) -> list[Any]:
        rpc = FakeRpc(
            {"authenticate": lambda request: {**CALLER, "used_today": request["usage"]["requests"], **limits}}
        )
        rpc.answers["search"] = lambda request: {
            "mode": "hybrid", "degraded_reason": None, "results": [], "trace_id": None,
        }  # fmt: skip
        made = runtime(rpc)
        monkeypatch.setattr(search.app, "connect", lambda: made)
        return [send(search.app, event("POST", "/v1/search", {"query": "x"})) for _ in range(requests)]

    def test_a_quota_that_is_used_up_is_a_429_until_midnight(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replies = self.ask(monkeypatch, 4, daily_quota=2)
        assert [reply.status for reply in replies] == [200, 200, 429, 429]
        assert replies[-1].body["code"] == "quota_exceeded"
        now = datetime.now(UTC)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        assert abs(int(replies[-1].headers["Retry-After"]) - (midnight - now).total_seconds()) < 5

    def test_a_key_has_its_own_rate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for rate, passed in ((1, 2), (0.1, 1), (3, 6), (None, 10)):
            replies = self.ask(monkeypatch, 10, rate=rate)
            assert [reply.status for reply in replies] == [200] * passed + [429] * (10 - passed)
            if passed < 10:
                assert replies[-1].body["code"] == "rate_limited"

    def test_what_is_refused_for_its_rate_is_not_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replies = self.ask(monkeypatch, 10, rate=1, daily_quota=5)
        assert [reply.body.get("code") for reply in replies[2:]] == ["rate_limited"] * 8
