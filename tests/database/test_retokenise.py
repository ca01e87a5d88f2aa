"""Terms of an older tokeniser are made again by the index job, while searches go on with them."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from almagest.database.queue import Queue
from almagest.operations import retokenise as module
from almagest.operations.retokenise import retokenise
from tests.database.concurrency import at_once
from tests.database.support import MODEL, Org, Server, chunks_of, ids, one_hot, search, serve, unique_key, write_one
from tests.support import Database

VERSION = (
    "create or replace function engine.tokeniser_version() returns smallint language sql immutable parallel safe as "
)
# Knows each word with another beginning as well.
TOKENISE = r"""
create or replace function engine.tokenise(content text)
returns tsvector language plpgsql immutable parallel safe as $$
begin
    return to_tsvector('pg_catalog.english', content || ' ' || regexp_replace(content, '(\w+)', 'neo\1', 'g'));
end
$$
"""
NOTE = "select obj_description('engine.tokeniser_version()'::regprocedure, 'pg_proc')"
STALE = "select count(*) from almagest.lexical where tokeniser <> engine.tokeniser_version()"


@pytest.fixture
def server(database: Database) -> Iterator[Server]:
    """A database whose functions may be changed."""
    with serve(database) as connections:
        yield connections


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 5)


def upgrade(server: Server, version: int = 100) -> None:
    """Deploy another tokeniser."""
    server.rows(f"{VERSION} $$ select {version}::smallint $$")
    server.rows(TOKENISE)


def run(server: Server, seconds: float = 60) -> int:
    """A run of the job, on a connection of its own."""
    with server.database.connect() as connection:
        return retokenise(Queue(connection), seconds)


def fill(server: Server, org: Org, count: int) -> list[str]:
    return [write_one(server, org.owner, f"deployed word{number}x", one_hot(number)) for number in range(count)]


def test_old_rows_are_found_by_new_terms(server: Server, org: Org) -> None:
    items = fill(server, org, 23)
    before = server.rows("select chunk_id, length from almagest.lexical order by 1")
    upgrade(server)
    assert ids(search(server, org.owner, "neoword7x")) == []
    assert ids(search(server, org.owner, "word7x")) == [items[7]]  # by its old term, until the job has been there

    assert run(server) == 23
    assert server.value(STALE) == 0
    assert ids(search(server, org.owner, "neoword7x")) == [items[7]]
    after = server.rows("select chunk_id, length from almagest.lexical order by 1")
    assert [chunk for chunk, _ in after] == [chunk for chunk, _ in before]
    assert {length for _, length in after} == {4}
    assert run(server) == 0


def test_the_rows_are_those_that_a_write_makes(server: Server, org: Org) -> None:
    """Title, headings and tags included, in every state, and private ones."""
    rows = (
        "select k.text, l.tokeniser, l.length, l.terms from almagest.lexical as l"
        " join almagest.chunks as k on k.id = l.chunk_id order by k.id"
    )
    chunks = [
        {**chunk, "heading_path": "Guide > Setup"} for chunk in chunks_of(["slice one ", "slice two"], [None, None])
    ]
    written: dict[str, Any] = {"title": "A title", "tags": ["a tag"], "chunks": chunks}
    write_one(server, org.owner, "slice one slice two", **written)
    write_one(server, org.owner, "private", private=True)
    archived = write_one(server, org.owner, "archived", title="Old", tags=["x", "y"])
    server.call("archive_item", org.owner, {"id": archived, "idempotency": unique_key()})
    expected = server.rows(rows)
    server.rows("update almagest.lexical set tokeniser = 0, length = 0, terms = ''")
    assert run(server) == 4
    assert server.rows(rows) == expected


def test_what_an_edit_has_replaced_keeps_the_words_of_its_own_version(server: Server, org: Org) -> None:
    """Searches of the past score by them."""
    rows = (
        "select l.state, k.version, l.length, l.terms::text from almagest.lexical as l"
        " join almagest.chunks as k on k.id = l.chunk_id order by k.version"
    )

    def edit(version: int, **changes: Any) -> None:
        request: dict[str, Any] = {"id": item, "version": version, "changes": changes, "idempotency": unique_key()}
        if "content" in changes:
            request |= {"content_hash": "0" * 64, "chunks": chunks_of([changes["content"]], [None])}
        server.call("update_item", org.owner, request)

    item = write_one(server, org.owner, "slice", title="Mondayish", tags=["first"])
    edit(1, importance=0.9)
    write_one(server, org.owner, "slice", tags=["okapi"])  # said once more, so the tag joins the others
    edit(2, title="Tuesdayish", tags=["second"])
    edit(3, content="portion", title=None)
    expected = server.rows(rows)
    assert [(state, version) for state, version, *_ in expected] == [("replaced", 2), ("replaced", 3), ("active", 4)]
    for (*_, terms), holds in zip(expected, ("mondayish first okapi", "tuesdayish second", "second"), strict=True):
        assert all(f"'{term}'" in terms for term in holds.split())
    server.rows("update almagest.lexical set tokeniser = 0, length = 0, terms = ''")
    assert run(server) == 3
    assert server.rows(rows) == expected


def test_the_newest_are_made_first(server: Server, org: Org) -> None:
    items = fill(server, org, 12)
    upgrade(server)
    made, following = server.rows("select * from engine.retokenise(null, 5)")[0]
    assert made == 5
    stale = server.rows("select item_id::text from almagest.lexical where tokeniser <> 100 order by chunk_id")
    assert stale == items[:7]
    assert server.rows("select * from engine.retokenise(%s, 50)", following) == [(7, None)]


def test_two_at_once_share_the_work(server: Server, org: Org) -> None:
    fill(server, org, 60)
    upgrade(server)
    made = at_once(server, *[lambda other: run(other)] * 3)
    assert sum(made) == 60
    assert server.value(STALE) == 0


def test_what_a_killed_run_had_begun_is_made_by_the_next(server: Server, org: Org) -> None:
    items = fill(server, org, 12)
    upgrade(server)
    with server.database.connect(autocommit=False) as killed:
        assert killed.execute("select made from engine.retokenise(null, 5)").fetchall() == [(5,)]
        # Another run waits for nothing: it makes the rest.
        assert run(server) == 7
        assert server.value(STALE) == 5
        assert len(ids(search(server, org.owner, "deployed", k=20))) == 12
        server.database.rows("select pg_terminate_backend(%s)", killed.info.backend_pid, role="supabase_admin")
        with pytest.raises(psycopg.OperationalError):
            killed.execute("select 1")
    assert run(server) == 5
    assert ids(search(server, org.owner, "neoword11x")) == [items[11]]


def test_a_run_of_little_time_leaves_the_rest(server: Server, org: Org, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(server, org, 12)
    upgrade(server)
    assert run(server, module.RESERVE_SECONDS) == 0
    assert server.value(STALE) == 12


def test_an_edit_meanwhile_wins(server: Server, org: Org) -> None:
    """One that has its rows locked is left alone; what it writes is of the new version already."""
    [item] = fill(server, org, 1)
    upgrade(server)
    request = {"id": item, "version": 1, "changes": {"title": "Zebra"}, "idempotency": unique_key()}
    with server.another() as other:
        other.api.execute("begin")
        other.call("update_item", org.owner, request)
        assert run(server) == 0
        other.api.execute("commit")
    assert run(server) == 1  # what the edit has replaced
    assert ids(search(server, org.owner, "neozebra")) == [item]


def test_an_edit_that_comes_while_terms_are_made_wins(server: Server, org: Org) -> None:
    [item] = fill(server, org, 1)
    upgrade(server)
    request = {"id": item, "version": 1, "changes": {"title": "Zebra"}, "idempotency": unique_key()}
    with server.database.connect(autocommit=False) as running:
        running.execute("select made from engine.retokenise(null, 5)")
        [edited] = at_once(server, lambda other: _edit_while(other, org, request, running))
        assert edited["version"] == 2
    assert server.value(STALE) == 0
    assert ids(search(server, org.owner, "neozebra")) == [item]


def _edit_while(other: Server, org: Org, request: dict[str, Any], running: psycopg.Connection[Any]) -> Any:
    other.api.execute("set lock_timeout = '300ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        other.call("update_item", org.owner, request)
    running.commit()
    return other.call("update_item", org.owner, request)


def test_when_all_are_made_no_run_reads_the_table_again(server: Server, org: Org) -> None:
    fill(server, org, 3)
    run(server)
    version = server.value("select engine.tokeniser_version()")
    assert server.value(NOTE) == f"All of almagest.lexical has version {version}"
    server.rows("update almagest.lexical set tokeniser = 0")
    assert run(server) == 0  # it trusts the note

    upgrade(server)
    assert run(server) == 3
    assert server.value(NOTE) == f"All of almagest.lexical has version {version}"
    assert run(server) == 0  # and this one notes it
    assert server.value(NOTE) == "All of almagest.lexical has version 100"


def test_what_somebody_has_locked_is_not_noted_as_made(server: Server, org: Org) -> None:
    fill(server, org, 3)
    upgrade(server)
    with server.database.connect(autocommit=False) as holder:
        holder.execute("select from almagest.lexical for update")
        assert run(server) == 0
    assert server.value(NOTE) is None
    assert run(server) == 3


def test_large_orgs_are_counted_anew_once_all_are_made(server: Server, org: Org) -> None:
    fill(server, org, 3)
    server.rows("select engine.refresh_statistics(2, 1)")
    terms = "select array_agg(term) from almagest.term_statistics"
    assert "neodeploy" not in server.value(terms)
    upgrade(server)
    run(server)
    run(server)
    assert server.value("select engine.refresh_statistics(2, 1)") == 1
    assert "neodeploy" in server.value(terms)


def test_a_batch_is_read_from_the_primary_key(server: Server, org: Org) -> None:
    """However few are thought to be left: each batch would read the table otherwise."""
    made = [
        f"({n}, gen_random_uuid(), '{org.id}', 'active', 'memory', gen_random_uuid(), 0, 2, 1, 'a:1A')"
        for n in range(1, 4000)
    ]
    server.rows("alter table almagest.lexical drop constraint lexical_chunk_id_fkey")
    server.rows(
        "insert into almagest.lexical"
        " (chunk_id, item_id, org_id, state, kind, sequence, place, tokeniser, length, terms)"
        f" values {', '.join(made)}"
    )
    server.rows("analyze almagest.lexical")
    with server.database.connect() as connection:
        for setting in ("seqscan", "bitmapscan", "sort"):
            connection.execute(f"set enable_{setting} = off".encode())
        plan = "\n".join(
            row[0]
            for row in connection.execute(
                "explain select l.chunk_id from almagest.lexical as l"
                " where l.chunk_id < 3000 and l.tokeniser <> 2::smallint"
                " order by l.chunk_id desc limit 200 for no key update skip locked"
            )
        )
    assert "Index Scan Backward using lexical_pkey" in plan
    assert "Sort" not in plan


def test_the_model_is_not_asked(server: Server, org: Org) -> None:
    """Vectors stay as they are."""
    fill(server, org, 2)
    vectors = server.rows("select chunk_id, model_id, vector::text from almagest.embeddings order by 1")
    upgrade(server)
    run(server)
    assert server.rows("select chunk_id, model_id, vector::text from almagest.embeddings order by 1") == vectors
    assert server.value("select name from almagest.embedding_models") == MODEL
