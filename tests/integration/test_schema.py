"""Code over a database that is older or newer than it: served within a step, and a clear 503 beyond."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from almagest.database.session import connect, demand_schema
from almagest.problems import Problem
from almagest.runtime import Runtime
from almagest.schema import SCHEMA
from almagest.settings import Settings
from infra.local.postgres import Postgres
from tests.conftest import Supabase
from tests.integration.conftest import Team
from tests.support import Database, clone


@pytest.fixture
def started_anew(team: Team) -> Callable[[], Team]:
    """The team's functions, as a container that has just been started has them."""

    def start() -> Team:
        team.runtime.fits_schema = False
        return team

    return start


def code(team: Team) -> tuple[int, str | None]:
    reply = team.ask("ann", "POST", "/v1/search", {"query": "otters"})
    return reply.status, reply.body.get("code")


@pytest.fixture
def ledger(team: Team) -> Iterator[Callable[[str], None]]:
    """Change the ledger for the test's time."""
    kept = team.rows("select version, name, checksum from almagest.migrations")

    def change(statement: str) -> None:
        team.rows(statement)

    yield change
    with psycopg.connect(team.database.url) as connection:
        connection.execute("delete from almagest.migrations")
        for row in kept:
            connection.execute("insert into almagest.migrations (version, name, checksum) values (%s, %s, %s)", row)
        connection.execute(
            "create or replace function engine.serves_since() returns int language sql immutable as 'select 9'"
        )


def test_a_database_that_is_newer_serves_the_code_of_before(
    started_anew: Callable[[], Team], ledger: Callable[[str], None]
) -> None:
    ledger(f"insert into almagest.migrations (version, name, checksum) values ({SCHEMA + 1}, 'next', '')")
    assert code(started_anew()) == (200, None)


def test_a_database_that_no_longer_serves_the_code_says_so(
    started_anew: Callable[[], Team], ledger: Callable[[str], None]
) -> None:
    ledger(f"insert into almagest.migrations (version, name, checksum) values ({SCHEMA + 1}, 'next', '')")
    ledger(
        f"create or replace function engine.serves_since() returns int language sql immutable as 'select {SCHEMA + 1}'"
    )
    assert code(started_anew()) == (503, "schema_mismatch")


def test_a_database_that_is_older_says_so_and_is_served_once_it_is_migrated(
    started_anew: Callable[[], Team], ledger: Callable[[str], None]
) -> None:
    [last] = started_anew().rows("select (version, name, checksum)::text from almagest.migrations where version = 9")
    assert last
    ledger(f"delete from almagest.migrations where version = {SCHEMA}")
    team = started_anew()
    assert code(team) == code(team) == (503, "schema_mismatch")
    ledger(f"insert into almagest.migrations (version, name, checksum) values ({SCHEMA}, 'again', '')")
    assert code(team) == (200, None)


def test_a_container_that_runs_goes_on_while_the_database_is_migrated(
    started_anew: Callable[[], Team], ledger: Callable[[str], None]
) -> None:
    team = started_anew()
    assert code(team) == (200, None)
    ledger(f"insert into almagest.migrations (version, name, checksum) values ({SCHEMA + 1}, 'next', '')")
    assert code(team) == (200, None)


def test_a_database_from_before_the_question_was_asked(
    cluster: Postgres, template_database: Database, supabase_over: Callable[[str], Supabase]
) -> None:
    with clone(cluster, template_database.name) as database:
        database.rows("drop function api.get_schema")
        project = supabase_over(database.name)
        settings = Settings(
            supabase_url=project.url,
            supabase_key=project.keys.secret,  # type: ignore[arg-type]
            database_url=database.url,  # type: ignore[arg-type]
        )
        made = Runtime.from_settings(settings)
        team = Team(made, database, "none", {"ann": "alm_" + "k" * 43})
        assert code(team) == (503, "schema_mismatch")
        with connect(settings, autocommit=True) as connection, pytest.raises(Problem) as caught:
            demand_schema(connection)
        assert caught.value.code == "schema_mismatch"
        made.rpc.close()
