"""The cache whose entries end by time."""

from almagest.cache import TtlCache


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
