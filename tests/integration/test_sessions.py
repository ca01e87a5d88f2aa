"""What sessions of the database may be like: pooled by transaction, fresh, and with the extension in any schema."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from almagest.database.migrate import migrate
from almagest.database.queue import Queue
from almagest.database.session import connect
from almagest.settings import Settings
from infra.local.postgres import Postgres
from tests.database.support import Org, Server, chunks_of, ids, one_hot, search, serve, write_one
from tests.support import Database, clone

# Psycopg prepares a statement when it comes for the fifth time.
OFTEN = 8


class TestTransactionPooler:
    """R2: a server that is another one after each transaction knows no statement that was prepared before."""

    def prepared(self, connection: psycopg.Connection[Any]) -> int:
        [(count,)] = connection.execute("select count(*) from pg_prepared_statements").fetchall()
        return int(count)

    def test_a_driver_left_to_itself_prepares(self, database: Database) -> None:
        """Else the other tests would prove nothing."""
        with psycopg.connect(database.url, autocommit=True) as connection:
            for number in range(OFTEN):
                connection.execute("select %s", [number])
            assert self.prepared(connection) > 0

    @pytest.mark.parametrize("autocommit", [True, False])
    def test_nothing_is_prepared(self, database: Database, autocommit: bool) -> None:
        settings = Settings(database_url=database.url)  # type: ignore[arg-type]
        with connect(settings, autocommit=autocommit) as connection:
            assert connection.prepare_threshold is None
            for number in range(OFTEN):
                connection.execute("select %s", [number])
            assert self.prepared(connection) == 0

    def test_the_index_job_needs_no_session(self, database: Database) -> None:
        """Each call is a whole transaction: forgetting the session in between, as a pooler does, changes nothing."""
        with serve(database) as server:
            org = Org(server, "acme")
            items = [write_one(server, org.owner, f"Text {number}.") for number in range(OFTEN)]
        with connect(Settings(database_url=database.url), autocommit=True) as connection:  # type: ignore[arg-type]
            queue = Queue(connection)
            for _ in items:
                [leased] = queue.lease("worker", 1, 60)
                connection.execute("discard all")
                assert queue.renew("worker", leased.id, 60)
                connection.execute("discard all")
                chunks = chunks_of([leased.content], [one_hot(1)])
                assert queue.complete("worker", leased, chunks, "model") == "search_ready"
                connection.execute("discard all")
            assert queue.lease("worker", 1, 60) == []


class TestFreshSession:
    """R4: the first statement of a session sets the index's parameters before the extension's library is loaded."""

    @pytest.fixture
    def org(self, database: Database) -> Org:
        with serve(database) as server:
            org = Org(server, "acme")
            write_one(server, org.owner, "A text about otters.", one_hot(1))
        return org

    @pytest.mark.parametrize(("vector", "mode"), [(one_hot(1), "hybrid"), (None, "lexical")])
    @pytest.mark.parametrize("role", ["service_role", "postgres", "supabase_admin"])
    def test_first_call(self, database: Database, org: Org, role: str, vector: list[float] | None, mode: str) -> None:
        with database.connect(role) as api, database.connect() as owner:
            answer = search(Server(database, api, owner), org.owner, "otters", vector)
        assert (answer["mode"], len(answer["results"])) == (mode, 1)

    def test_settings_hold_for_the_transaction_alone(self, database: Database, org: Org) -> None:
        names = ("hnsw.iterative_scan", "hnsw.ef_search", "almagest.caller")
        look = "select " + ", ".join(f"coalesce(current_setting('{name}', true), '')" for name in names)
        with database.connect("service_role") as api, database.connect() as owner:
            with api.transaction():
                search(Server(database, api, owner), org.owner, "otters", one_hot(1))
                [inside] = api.execute(look.encode()).fetchall()
            [after] = api.execute(look.encode()).fetchall()
        assert inside[:2] == ("relaxed_order", "400")
        assert after == ("off", "40", "")


@pytest.fixture(params=["public", "extensions", "Odd schema"])
def migrated(request: pytest.FixtureRequest, cluster: Postgres) -> Iterator[Database]:
    """A database with the whole of the SQL, and the extension in a schema of the test's choice."""
    with clone(cluster, "postgres") as database:
        schema = sql.Identifier(request.param)
        with database.connect("supabase_admin") as connection:
            connection.execute("drop extension vector")
            connection.execute(sql.SQL("create schema if not exists {}").format(schema))
            connection.execute(sql.SQL("create extension vector schema {}").format(schema))
            connection.execute(sql.SQL("grant usage on schema {} to public").format(schema))
        migrate(database.url)
        yield database


class TestExtensionSchema:
    """R5: every use of the extension, through the real files."""

    def test_from_writing_to_erasing(self, migrated: Database) -> None:
        with serve(migrated) as server:
            org = Org(server, "acme")
            owner = org.owner
            near, far = (write_one(server, owner, text, one_hot(place)) for text, place in (("otters", 1), ("owls", 2)))
            for filters in ({}, {"kind": ["memory"]}):
                answer = search(server, owner, "the of and", one_hot(1), filters=filters)
                assert (answer["mode"], ids(answer)) == ("vector", [near])
            hybrid = search(server, owner, "otters and owls", one_hot(1))
            assert (hybrid["mode"], ids(hybrid)) == ("hybrid", [near, far])
            assert hybrid["results"][0]["scores"]["vector"] == 1
            assert ids(search(server, owner, "owls")) == [far]
            started = server.call("bootstrap", owner, {"query": "otters", "k": 5, "titles": 5})
            assert [found["id"] for found in started["search"]["results"]] == [near]
            assert server.value("select count(*) from almagest.retrievals where query_vector is not null") == 3
            server.rows("update almagest.items set index_status = 'text_ready', index_after = now() where id = %s", far)
            [_] = server.rows("select engine.lease_items('worker', 1, 60)")
            assert (
                server.value(
                    "select engine.index_item('worker', %s, 1, %s::jsonb, 'test-model')",
                    *(far, psycopg.types.json.Jsonb(chunks_of(["owls"], [one_hot(3)]))),
                )
                == "search_ready"
            )
            erased = server.call("erase_item", owner, {"id": near})["erased"]
            assert (erased["embeddings"], erased["traces"]) == (1, 4)
            assert migrate(migrated.url).changed is False
