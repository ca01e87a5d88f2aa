"""The cache whose entries end by time."""

from almagest.cache import Clock, TtlCache


def cache(seconds: float = 10, size: int = 3) -> tuple[TtlCache[str, int], list[float]]:
    now = [0.0]
    return TtlCache(seconds, size, lambda: now[0]), now


def test_entry_ends() -> None:
    entries, now = cache()
    entries.put("a", 1)
    now[0] = 9.9
    assert entries.get("a") == 1
    now[0] = 10
    assert entries.get("a") is None


def test_entry_may_end_sooner_but_not_later() -> None:
    entries, now = cache()
    entries.put("a", 1, 5)
    entries.put("b", 2, 50)
    now[0] = 6
    assert (entries.get("a"), entries.get("b")) == (None, 2)
    now[0] = 11
    assert entries.get("b") is None


def test_oldest_goes_first() -> None:
    entries, _ = cache()
    for number, key in enumerate("abcad"):
        entries.put(key, number)
    assert [entries.get(key) for key in "abcd"] == [3, None, 2, 4]


def test_of_no_time_keeps_nothing() -> None:
    entries, _ = cache(seconds=0)
    entries.put("a", 1)
    assert entries.get("a") is None


class TestClock:
    def clock(self) -> tuple[Clock, list[float]]:
        clocks = [100.0, 5000.0]  # monotonic, wall
        return Clock(lambda: clocks[0], lambda: clocks[1]), clocks

    def test_counts_what_passes(self) -> None:
        clock, clocks = self.clock()
        clocks[0] += 2
        clocks[1] += 2
        assert clock() == 2

    def test_counts_the_time_that_a_container_was_frozen(self) -> None:
        clock, clocks = self.clock()
        clocks[1] += 300
        assert clock() == 300

    def test_never_goes_back(self) -> None:
        clock, clocks = self.clock()
        clocks[0] += 1
        clocks[1] -= 4000
        assert clock() == 1
        clocks[0] += 1
        clocks[1] += 1
        assert clock() == 2
