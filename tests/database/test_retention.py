"""Traces end by month and idempotency keys by age, without a loss and without a search that waits or fails."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from almagest.database.retention import Busy, Retention, Step
from almagest.operations.retention import retain
from tests.database.support import Org, Refused, Server, ids, search, serve, write_one
from tests.support import Database

NOW = datetime(2027, 3, 17, 12, tzinfo=UTC)
SECONDS = 60


@pytest.fixture
def server(database: Database) -> Iterator[Server]:
    """A database of the test's own, since partitions come and go in it."""
    with serve(database) as connections:
        yield connections


@pytest.fixture
def org(server: Server) -> Org:
    return Org(server, "acme")


@contextmanager
def opened(server: Server) -> Iterator[Retention]:
    with psycopg.connect(server.database.url, autocommit=True, prepare_threshold=None) as connection:
        yield Retention(connection)


def run(server: Server, at: datetime = NOW) -> dict[str, int]:
    with opened(server) as retention:
        return retain(retention, SECONDS, at)


def traced(server: Server, org: Org, at: datetime, query: str = "when?") -> str:
    """A search of some time: its trace, and what it surfaced."""
    trace = server.value(
        "insert into almagest.retrievals (created_at, org_id, purpose, profile, mode, query)"
        " values (%s, %s, 'search', 'user_search', 'lexical', %s) returning id::text",
        *(at, org.id, query),
    )
    server.rows(
        "insert into almagest.activations (created_at, org_id, item_id, retrieval_id, use, rank)"
        " select %s, %s, gen_random_uuid(), %s, 'surfaced', n from generate_series(1, 3) as n",
        *(at, org.id, trace),
    )
    return str(trace)


def queries(server: Server, table: str = "retrievals") -> list[str]:
    return server.rows(f"select query from almagest.{table} order by created_at")


def partitions(server: Server, table: str = "retrievals") -> list[str]:
    return server.rows(
        "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass order by 1",
        f"almagest.{table}",
    )


def test_the_first_run_takes_nothing_and_makes_room(server: Server, org: Org) -> None:
    traced(server, org, NOW - timedelta(days=70), "january")
    traced(server, org, NOW - timedelta(days=40), "february")
    traced(server, org, NOW - timedelta(days=1), "march")

    counts = run(server)

    assert counts == {"added": 4, "moved": 4, "dropped": 0, "traces": 0, "idempotency_keys": 0, "left": 0}
    assert queries(server) == ["january", "february", "march"]
    assert queries(server, "retrievals_2027_01") == ["january"]
    assert queries(server, "retrievals_2027_02") == ["february"]
    # This month's partition has to wait until nobody writes into the rest any more.
    assert queries(server, "retrievals_rest") == ["march"]
    assert server.rows("select distinct date_part('month', created_at)::int from almagest.activations_2027_01") == [1]
    assert server.value("select count(*) from almagest.activations") == 9
    assert [name.rpartition("_2027_")[2] for name in partitions(server)] == [
        *("01", "02", "04", "05", "almagest.retrievals_rest"),
    ]
    assert run(server) == dict.fromkeys(counts, 0)


def test_rows_of_months_to_come_find_their_partition(server: Server, org: Org) -> None:
    run(server)
    for days in (0, 20, 50):
        traced(server, org, NOW + timedelta(days=days), f"in {days} days")
    assert queries(server, "retrievals_rest") == []
    assert queries(server, "retrievals_2027_05") == ["in 50 days"]
    traced(server, org, NOW + timedelta(days=200), "a clock that is wrong")
    assert queries(server, "retrievals_rest") == ["a clock that is wrong"]


def test_a_year_day_by_day_keeps_what_it_promises(server: Server, org: Org) -> None:
    """Every day a search and a run; at no time is one missing that is younger than the retention."""
    kept, day = timedelta(days=90), NOW
    for number in range(0, 366, 10):
        day = NOW + timedelta(days=number)
        traced(server, org, day, str(number))
        run(server, day + timedelta(minutes=1))
        found = [int(query) for query in queries(server)]
        assert found[-1] == number
        assert {n for n in range(0, number + 1, 10) if day - (NOW + timedelta(days=n)) < kept} <= set(found)
        # A month goes when all of it is over, so none is kept for longer than a month more.
        assert all(day - (NOW + timedelta(days=n)) <= kept + timedelta(days=31) for n in found)
    assert len(partitions(server)) <= 8
    assert server.value("select count(*) from almagest.activations") == 3 * len(queries(server))
    leftovers = "select relname from pg_class where relname ~ '^(retrievals|activations)_\\d' and not relispartition"
    assert server.rows(f"{leftovers} and relkind = 'r'") == []


def test_partitions_are_as_closed_as_their_table(server: Server, org: Org) -> None:
    traced(server, org, NOW - timedelta(days=40))
    run(server)
    made = [name for table in ("retrievals", "activations") for name in partitions(server, table)]
    assert len(made) == 10
    for name in made:
        secured = server.rows("select relrowsecurity, relforcerowsecurity from pg_class where oid = %s::regclass", name)
        assert secured == [(True, True)], name
        for role in ("anon", "authenticated", "service_role", "almagest_reader"):
            assert not server.value("select has_table_privilege(%s, %s::regclass, 'select')", role, name), name
    # An index of the table is one of each partition, so that a trace is found there as quickly.
    indexes = "select count(*) from pg_index where indrelid = %s::regclass"
    assert {server.value(indexes, name) for name in partitions(server)} == {
        server.value(indexes, "almagest.retrievals")
    }


def test_a_trace_that_has_moved_is_read_continued_and_redacted(server: Server, org: Org) -> None:
    for number in range(4):
        write_one(server, org.owner, f"otters number {number}")
    answer = search(server, org.owner, "otters", k=2)
    server.rows("update almagest.retrievals set created_at = created_at - interval '40 days'")
    server.rows("update almagest.activations set created_at = created_at - interval '40 days'")
    counts = run(server, datetime.now(UTC))
    assert counts["moved"] == 2
    assert queries(server, "retrievals_rest") == []

    assert server.call("get_trace", org.owner, {"id": answer["trace_id"]})["query"] == "otters"
    following = server.call("search", org.owner, {"cursor": answer["next_cursor"], "k": 2})
    assert len({*ids(answer), *ids(following)}) == 4
    erased = server.call("erase_item", org.owner, {"id": ids(answer)[0]})["erased"]
    assert erased["traces"] >= 1
    assert None in queries(server)


def test_an_org_may_keep_less_or_more_than_the_others(server: Server, org: Org) -> None:
    brief, long = Org(server, "brief"), Org(server, "long")
    with opened(server) as retention:
        assert retention.set_days("brief", 10, None)
        assert retention.set_days("long", 200, None)
        assert not retention.set_days("nobody", 10, None)
    for days in (5, 50, 100, 150, 250):
        for each in (org, brief, long):
            traced(server, each, NOW - timedelta(days=days), f"{each.slug} {days}")

    run(server)

    assert sorted(queries(server)) == sorted(
        ["acme 5", "acme 50", "brief 5", "long 5", "long 50", "long 100", "long 150"]
    )
    assert server.value("select count(*) from almagest.activations") == 21
    # Once nobody keeps it for longer, the rest of an org that kept it the longest goes by whole months.
    with opened(server) as retention:
        retention.forget_days("long")
    run(server)
    assert "long 150" not in queries(server)


def test_idempotency_keys_end_and_young_ones_still_hold(server: Server, org: Org) -> None:
    write_one(server, org.owner, "something")
    old = {"key": "old", "request_hash": "0" * 64}
    young = {"key": "young", "request_hash": "0" * 64}
    for each in (old, young):
        server.call("write_memories", org.owner, {"memories": [], "idempotency": each})
    server.rows("update almagest.idempotency_keys set created_at = %s where key = 'old'", NOW - timedelta(days=8))
    server.rows("update almagest.idempotency_keys set created_at = %s where key <> 'old'", NOW - timedelta(days=6))
    assert run(server)["idempotency_keys"] == 1
    assert "old" not in server.rows("select key from almagest.idempotency_keys")
    changed = {**young, "request_hash": "1" * 64}
    with pytest.raises(Refused) as refused:
        server.call("write_memories", org.owner, {"memories": [], "idempotency": changed})
    assert refused.value.code == "idempotency_conflict"


def test_a_long_reader_is_not_waited_for_and_makes_nobody_wait(server: Server, org: Org) -> None:
    """Somebody reads traces for minutes; a lock request behind them would keep every search from writing its own."""
    write_one(server, org.owner, "otters")
    traced(server, org, NOW - timedelta(days=40), "february")
    with server.another() as reader, opened(server) as retention:
        reader.owner.execute("begin")
        reader.owner.execute("select count(*) from almagest.retrievals")
        [move] = [step for step in retention.plan(NOW) if step.step == "move" and step.table == "retrievals"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(retention.take, move)
            slowest = 0.0
            while not waiting.done():
                begun = time.perf_counter()
                assert search(server, org.owner, "otters")["trace_id"]
                slowest = max(slowest, time.perf_counter() - begun)
            with pytest.raises(Busy):
                waiting.result()
        assert slowest < 1
        assert "february" in queries(server, "retrievals_rest")
        reader.owner.execute("commit")
        assert retention.take(move)
        assert not retention.take(move)
    assert queries(server, "retrievals_2027_02") == ["february"]


def test_searches_go_on_while_months_come_and_go(server: Server, org: Org) -> None:
    now = datetime.now(UTC)
    write_one(server, org.owner, "otters")
    # A partition for this month: while the searches are in the rest, no later time may take their month for over.
    run(server, now)
    for days in range(40, 200, 5):
        traced(server, org, now - timedelta(days=days))
    over = threading.Event()

    def searches() -> int:
        with server.another() as other:
            done = 0
            while not over.is_set():
                assert search(other, org.owner, "otters")["trace_id"], "a trace was not recorded"
                done += 1
            return done

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(searches) for _ in range(3)]
        try:
            counts = [run(server, now + timedelta(days=days)) for days in (0, 30, 60, 85)]
        finally:
            over.set()
        done = sum(each.result(SECONDS) for each in running)
    assert sum(each["moved"] + each["added"] + each["dropped"] for each in counts) >= 10
    assert run(server, now + timedelta(days=85))["left"] == 0
    assert server.value("select count(*) from almagest.retrievals where query = 'otters'") == done
    assert server.value(
        "select count(*) from almagest.activations where item_id in (select id from almagest.items)"
    ) == (done)


def test_two_runs_at_once_share_the_work(server: Server, org: Org) -> None:
    for days in (10, 40, 70, 120):
        traced(server, org, NOW - timedelta(days=days), str(days))
    with ThreadPoolExecutor(3) as pool:
        counts: list[dict[str, int]] = list(pool.map(lambda _: run(server), range(3)))
    assert sum(each["added"] for each in counts) == 4
    assert sum(each["moved"] for each in counts) == 4
    run(server)
    assert queries(server) == ["70", "40", "10"]


def test_a_large_rest_is_fenced_so_that_adding_does_not_read_it(server: Server, org: Org) -> None:
    traced(server, org, NOW, "march")
    server.owner.execute("set client_min_messages = debug1")
    notes: list[str] = []
    server.owner.add_notice_handler(lambda note: notes.append(note.message_primary or ""))
    retention = Retention(server.owner)
    assert server.value("select engine.raise_fence('retrievals', '2027-04-01', 0)")
    server.value("select engine.prove_fence('retrievals')")
    assert retention.take(Step("add", "retrievals", datetime(2027, 4, 1, tzinfo=UTC).date()))
    implied = [note for note in notes if "implied by existing constraints" in note and "retrievals_rest" in note]
    assert len(implied) == 1
    # What a run that was killed here leaves behind is taken down by the next one.
    assert Step("unfence", "retrievals", None) in retention.plan(NOW)
    run(server)
    traced(server, org, NOW + timedelta(days=300), "far")
    assert queries(server, "retrievals_rest") == ["march", "far"]


def test_a_month_with_too_many_rows_stays_and_ends_row_by_row(server: Server, org: Org) -> None:
    for hour in range(5):
        traced(server, org, NOW - timedelta(days=40, hours=hour))
    query = "select step, month::text from engine.retention_plan(%s, 2, %s) where parent = 'retrievals'"
    assert ("move", "2027-02-01") not in server.rows(query, NOW, 4)
    assert ("move", "2027-02-01") in server.rows(query, NOW, 5)
    expire: Any = "select engine.expire_traces('retrievals', %s, %s)"
    assert server.value(expire, NOW + timedelta(days=60), 3) == 3
    assert server.value(expire, NOW + timedelta(days=60), 3) == 2
