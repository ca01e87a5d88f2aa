"""The index job's side in the database: leases that end, versions that are checked, failures that wait."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database.concurrency import at_once, overlap
from tests.database.support import (
    MODEL,
    Org,
    Server,
    Vector,
    chunks_of,
    digest,
    ids,
    memory,
    one_hot,
    search,
    unique_key,
    write,
    write_one,
)

Leased = tuple[str, int, str | None, str]


def lease(server: Server, worker: str = "worker", batch: int = 10, seconds: int = 60) -> list[Leased]:
    """Id, version, title and content of each item taken."""
    return server.rows(
        "select item_id::text, version, title, content from engine.lease_items(%s, %s, %s)", worker, batch, seconds
    )


def index(
    server: Server,
    item: str,
    version: int = 1,
    vector: Vector | None = None,
    *,
    worker: str = "worker",
    text: str = "new",
) -> str:
    chunks = Jsonb(chunks_of([text], [vector or one_hot(1)]))
    status: str = server.value("select engine.index_item(%s, %s, %s, %s, %s)", worker, item, version, chunks, MODEL)
    return status


def fail(server: Server, item: str, version: int = 1, *, worker: str = "worker", error: str = "it broke") -> None:
    server.rows("select engine.fail_item(%s, %s, %s, %s)", worker, item, version, error)


def renew(server: Server, item: str, *, worker: str = "worker", seconds: int = 60) -> bool:
    return bool(server.value("select engine.renew_lease(%s, %s, %s)", worker, item, seconds))


def status(server: Server, item: str) -> tuple[Any, ...]:
    [row] = server.rows(
        "select index_status, index_error, index_attempts, lease_owner from almagest.items where id = %s", item
    )
    return tuple(row)


def expire(server: Server) -> None:
    """Let every lease be over."""
    server.rows(
        "update almagest.items set lease_expires_at = now() - interval '1 second', index_after = lease_expires_at - "
        "interval '1 hour' where lease_owner is not null"
    )


def due(server: Server) -> None:
    """Let every waiting item's time have come."""
    server.rows("update almagest.items set index_after = now() - interval '1 second'")


def edit(server: Server, org: Org, item: str, version: int, **changes: Any) -> Any:
    request: dict[str, Any] = {"id": item, "version": version, "changes": changes, "idempotency": unique_key()}
    if "content" in changes:
        request |= {"content_hash": digest(changes["content"]), "chunks": chunks_of([changes["content"]], [None])}
    return server.call("update_item", org.owner, request)


# Leases


def test_what_lacks_vectors_is_leased_the_longest_waiting_first(server: Server, org: Org) -> None:
    done = write_one(server, org.owner, "done", one_hot(1))
    waiting = [write_one(server, org.owner, f"waiting {number}", title=f"Title {number}") for number in range(3)]

    assert lease(server, batch=2) == [(waiting[n], 1, f"Title {n}", f"waiting {n}") for n in (0, 1)]
    assert [taken[0] for taken in lease(server, batch=2)] == [waiting[2]]
    assert lease(server) == []
    assert status(server, done)[0] == "search_ready"
    assert status(server, waiting[0]) == ("indexing", None, 1, "worker")
    assert server.call("index_status", org.owner) == {"pending": 0, "indexing": 3, "failed": 0}


def test_a_lease_without_an_end_is_nobodys(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "taken by nobody")
    server.rows("update almagest.items set index_status = 'indexing', lease_owner = 'w', lease_expires_at = null")
    assert [taken[0] for taken in lease(server)] == [item]
    assert lease(server) == []


def test_items_of_all_states_but_erased_are_indexed(server: Server, org: Org) -> None:
    for state in ("active", "provisional", "revoked", "archived"):
        org.item(f"text {state}", state=state)
    erased = write_one(server, org.owner, "to erase")
    server.call("erase_item", org.owner, {"id": erased, "idempotency": unique_key()})

    assert {taken[3] for taken in lease(server)} == {
        f"text {s}" for s in ("active", "provisional", "revoked", "archived")
    }


def test_the_text_to_index_stands_in_for_what_is_no_plain_text(server: Server, org: Org) -> None:
    org.item("<html>", plain_text="what it says")
    assert [taken[3] for taken in lease(server)] == ["what it says"]


def test_two_workers_never_get_the_same_item(server: Server, org: Org) -> None:
    write(server, org.owner, *(memory(f"item {number}") for number in range(60)))

    def work(name: str) -> Any:
        def take(other: Server) -> list[str]:
            taken: list[str] = []
            while batch := lease(other, name, batch=3):
                taken += [item for item, *_ in batch]
            return taken

        return take

    shares = at_once(server, *(work(f"worker {number}") for number in range(4)))
    taken = [item for share in shares for item in share]
    assert len(taken) == len(set(taken)) == 60


def test_a_lease_half_taken_is_not_waited_for(server: Server, org: Org) -> None:
    for number in range(2):
        write_one(server, org.owner, f"item {number}")
    with server.another() as other:
        other.owner.execute("begin")
        [first] = lease(other, "slow", batch=1)
        [second] = lease(server, "fast", batch=2)
        other.owner.execute("rollback")
    assert first[0] != second[0]
    assert [taken[0] for taken in lease(server, "fast")] == [first[0]]


def test_a_batch_is_never_exceeded(server: Server, org: Org) -> None:
    """Whatever the planner makes of the join."""
    write(server, org.owner, *(memory(f"item {number}") for number in range(40)))
    for setting in ("enable_hashjoin", "enable_mergejoin"):
        server.rows(f"set {setting} = off")
    server.rows("analyze almagest.items")
    assert len(lease(server, batch=7)) == 7
    assert server.value("select count(*) from almagest.items where lease_owner is not null") == 7


def test_what_kills_its_worker_does_not_keep_others_from_their_turn(server: Server, org: Org) -> None:
    poison = write_one(server, org.owner, "poison")
    assert [taken[0] for taken in lease(server, "first", 1)] == [poison]
    other = write_one(server, org.owner, "text")
    server.rows("update almagest.items set lease_expires_at = now() - interval '1 second' where id = %s", poison)
    assert [taken[0] for taken in lease(server, "second", 1)] == [other]


def test_an_expired_lease_is_taken_over(server: Server, org: Org) -> None:
    """R10: what a dead worker held comes back, and the dead one's work is refused."""
    item = write_one(server, org.owner, "text")
    lease(server, "dead")
    assert lease(server, "alive") == []
    expire(server)
    assert [taken[0] for taken in lease(server, "alive")] == [item]

    assert index(server, item, worker="dead") == "stale"
    assert not renew(server, item, worker="dead")
    fail(server, item, worker="dead")
    assert status(server, item) == ("indexing", None, 2, "alive")
    assert index(server, item, worker="alive") == "search_ready"


def test_a_lease_is_renewed_by_its_worker(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "text")
    lease(server, seconds=5)
    assert renew(server, item, seconds=600)
    ends = server.value("select lease_expires_at from almagest.items")
    assert ends - datetime.now(UTC) > timedelta(seconds=500)
    assert not renew(server, item, worker="another")
    index(server, item)
    assert not renew(server, item)


# Indexing


def test_chunks_and_vectors_are_replaced(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra text", tags=["savanna"])
    lease(server)
    assert index(server, item, text="zebra stripes") == "search_ready"

    assert status(server, item) == ("search_ready", None, 0, None)
    assert ids(search(server, org.owner, "stripes")) == ids(search(server, org.owner, None, one_hot(1))) == [item]
    assert ids(search(server, org.owner, "savanna")) == [item]
    assert server.rows("select text from almagest.chunks") == ["zebra stripes"]
    assert server.value("select count(*) from almagest.lexical") == server.value(
        "select count(*) from almagest.embeddings"
    )
    # That it was indexed is no edit.
    assert server.value("select version from almagest.items") == 1
    assert lease(server) == []


def test_a_search_sees_the_old_chunks_or_the_new_ones(server: Server, org: Org) -> None:
    """W9, W10: replaced in one transaction."""
    item = write_one(server, org.owner, "zebra old")
    lease(server)
    with server.another() as other:
        other.owner.execute("begin")
        index(other, item, text="zebra new")
        assert [r["snippet"] for r in search(server, org.owner, "zebra")["results"]] == ["zebra old"]
        other.owner.execute("commit")
    assert [r["snippet"] for r in search(server, org.owner, "zebra")["results"]] == ["zebra new"]


def test_an_item_that_changed_meanwhile_is_left_alone(server: Server, org: Org) -> None:
    """W10: old chunks never overwrite new ones, and the new version is indexed after."""
    item = write_one(server, org.owner, "old text")
    lease(server)
    edit(server, org, item, 1, content="new text")

    assert index(server, item, 1, text="old text") == "stale"
    assert server.rows("select text from almagest.chunks where version = 2") == ["new text"]
    assert status(server, item) == ("text_ready", None, 0, None)
    assert [(taken[1], taken[3]) for taken in lease(server)] == [(2, "new text")]
    assert index(server, item, 1) == "stale"
    assert index(server, item, 2, text="new text") == "search_ready"


def test_an_edit_of_anything_ends_the_lease_and_queues_again(server: Server, org: Org) -> None:
    """Also an edit that needs no new index: the item must not stay in nobody's hands."""
    for changes in ({"metadata": {"a": 1}}, {"title": "New"}, {"tags": ["new"]}, {"importance": 1.0}):
        item = write_one(server, org.owner, f"text {changes}")
        lease(server)
        edit(server, org, item, 1, **changes)
        assert status(server, item) == ("text_ready", None, 0, None), changes
        assert index(server, item, 1) == "stale"
        assert [taken[:2] for taken in lease(server)] == [(item, 2)], changes
        assert index(server, item, 2) == "search_ready"


def test_an_edit_while_chunks_come_in_waits_and_wins(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "old text")
    lease(server)
    first, second = overlap(
        server,
        lambda s: edit(s, org, item, 1, content="new text"),
        lambda s: index(s, item, 1, text="old text"),
    )
    assert (first["version"], second) == (2, "stale")
    assert server.rows("select text from almagest.chunks where version = 2") == ["new text"]


def test_an_erased_item_takes_no_chunks(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "text")
    lease(server)
    server.call("erase_item", org.owner, {"id": item, "idempotency": unique_key()})

    assert index(server, item) == "stale"
    fail(server, item)
    assert not renew(server, item)
    assert server.value("select count(*) from almagest.chunks") == 0
    assert status(server, item)[0] is None


def test_archiving_leaves_the_lease(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra")
    lease(server)
    server.call("archive_item", org.owner, {"id": item, "idempotency": unique_key()})
    assert index(server, item, text="zebra") == "search_ready"
    assert ids(search(server, org.owner, "zebra", one_hot(1))) == []
    assert ids(search(server, org.owner, "zebra", one_hot(1), include_archived=True)) == [item]


def test_a_private_item_stays_private(server: Server, org: Org) -> None:
    member = org.member()
    item = write_one(server, member, "zebra", private=True)
    lease(server)
    index(server, item, text="zebra")
    assert ids(search(server, org.owner, "zebra", one_hot(1))) == []
    assert ids(search(server, member, "zebra", one_hot(1))) == [item]


def test_a_bad_vector_leaves_everything_as_it_was(server: Server, org: Org) -> None:
    """W11, S13."""
    item = write_one(server, org.owner, "zebra")
    lease(server)
    with pytest.raises(Exception, match="dimensions"):
        index(server, item, 1, [1.0, 2.0])
    assert status(server, item) == ("indexing", None, 1, "worker")
    assert ids(search(server, org.owner, "zebra")) == [item]


def test_chunks_without_vectors_wait_before_they_are_tried_again(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra")
    lease(server)
    chunks = Jsonb(chunks_of(["zebra"], [None]))
    assert server.value("select engine.index_item('worker', %s, 1, %s, %s)", item, chunks, MODEL) == "text_ready"
    assert lease(server) == []
    due(server)
    assert [taken[0] for taken in lease(server)] == [item]


# Failures


def test_a_failure_is_tried_again_later_each_time(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra")
    waits = []
    for attempt in range(1, 9):
        assert [taken[0] for taken in lease(server)] == [item]
        fail(server, item, error=f"attempt {attempt}")
        expected = "failed" if attempt >= 5 else "text_ready"
        assert status(server, item) == (expected, f"attempt {attempt}", attempt, None)
        # Searchable by its words all the while.
        assert ids(search(server, org.owner, "zebra")) == [item]
        assert lease(server) == []
        waits.append(
            server.value("select round(extract(epoch from index_after - now()) / 60)::int from almagest.items")
        )
        due(server)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert server.call("index_status", org.owner) == {"pending": 0, "indexing": 0, "failed": 1}
    assert server.call("get_item", org.owner, {"id": item})["index_error"] == "attempt 8"

    lease(server)
    assert index(server, item) == "search_ready"
    assert status(server, item) == ("search_ready", None, 0, None)
    assert server.call("get_item", org.owner, {"id": item})["index_error"] is None


def test_an_item_without_chunks_that_fails_shows_as_failed(server: Server, org: Org) -> None:
    """It cannot be found by its words either."""
    [result] = write(server, org.owner, memory("zebra", chunks=[]))
    lease(server)
    fail(server, result["id"])
    assert status(server, result["id"])[0] == "failed"


def test_a_failed_item_that_is_edited_starts_anew(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra")
    for _ in range(5):
        lease(server)
        fail(server, item)
        due(server)
    edit(server, org, item, 1, metadata={"a": 1})
    assert status(server, item) == ("text_ready", None, 0, None)
    assert [taken[0] for taken in lease(server)] == [item]


def test_an_error_of_another_version_is_not_noted(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "old")
    lease(server)
    edit(server, org, item, 1, content="new")
    fail(server, item, 1)
    assert status(server, item) == ("text_ready", None, 0, None)


def test_a_long_error_is_cut(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra")
    lease(server)
    fail(server, item, error="x" * 10_000)
    assert len(status(server, item)[1]) == 500


def test_leasing_uses_the_queues_index(server: Server, org: Org) -> None:
    write(server, org.owner, *(memory(f"done {number}", one_hot(number % 384)) for number in range(300)))
    server.rows("vacuum analyze almagest.items")
    plan = "\n".join(
        server.rows(
            "explain select q.id from almagest.items as q"
            " where q.index_status <> 'search_ready' and q.index_after <= now()"
            " and (q.index_status <> 'indexing' or q.lease_expires_at < now())"
            " order by q.index_after, q.id limit 8"
        )
    )
    assert "items_queue" in plan
