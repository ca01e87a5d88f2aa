"""P8: who may call, read and write what in the database, as the catalog says it and as the roles meet it."""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from almagest.database.sql_files import sql_directory
from infra.local.postgres import Postgres
from tests.database.support import Server, serve
from tests.support import Database, clone

ROLES = ("anon", "authenticated", "service_role", "almagest_reader", "public")
TABLE_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
COLUMN_RIGHTS = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
SEQUENCE_RIGHTS = ("USAGE", "SELECT", "UPDATE")

# All that the reader may read; the policies say which rows.
READABLE = {
    "items",
    "item_versions",
    "item_tags",
    "chunks",
    "pins",
    "strength_signals",
    "retrievals",
    "projects",
    "clients",
    "deals",
    "hub_feed",
    "hub_marks",
}
# What the policies and the reader's own functions call of the engine's.
CALLABLE_BY_READER = {"current_caller", "visible", "readable", "hub_visible", "hub_rank"}
# Text in, text out: what snippets are made by.
CALLABLE_BY_READER |= {"snippet", "marked_words", "best_words", "mark_pattern", "folded_pieces", "folded_form"}
CALLABLE_BY_READER |= {"term_words", "term_signs", "term_number", "stands_whole", "cjk_signs"}
CALLABLE_BY_READER |= {"fold", "identifiers", "identifier_forms", "without_cjk"}


@pytest.fixture(scope="module")
def server(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """A database that nothing is changed in."""
    with clone(cluster, template_database.name) as copy, serve(copy) as connections:
        yield connections


def _functions(server: Server, schema: str) -> list[tuple[int, str, str]]:
    """Oid, name and owner."""
    return server.rows(
        "select oid::int8, proname, proowner::regrole::text from pg_proc"
        " where pronamespace = %s::regnamespace order by 2",
        schema,
    )


def _tables(server: Server, schema: str = "almagest") -> list[tuple[int, str]]:
    """Oid and name of every table, partition, view and the like."""
    return server.rows(
        "select oid::int8, relname from pg_class where relnamespace = %s::regnamespace"
        " and relkind in ('r', 'p', 'v', 'm', 'f')",
        schema,
    )


def _may_execute(server: Server, role: str, function: int) -> bool:
    return bool(server.value("select has_function_privilege(%s, %s::oid, 'execute')", role, function))


def test_service_role_alone_executes_the_api(server: Server) -> None:
    for function, name, _ in _functions(server, "api"):
        allowed = {role for role in ROLES if _may_execute(server, role, function)}
        assert allowed == {"service_role"}, name


def test_the_engine_is_closed(server: Server) -> None:
    """To everybody but its owner; the reader owns what reads, and calls what that needs."""
    for function, name, owner in _functions(server, "engine"):
        allowed = {role for role in ROLES if _may_execute(server, role, function)}
        reader = owner == "almagest_reader" or name in CALLABLE_BY_READER
        assert allowed == ({"almagest_reader"} if reader else set()), name
        assert _may_execute(server, "postgres", function), name


def test_schemas_open_for_those_who_need_them(server: Server) -> None:
    def allowed(schema: str, right: str) -> set[str]:
        return {role for role in ROLES if server.value("select has_schema_privilege(%s, %s, %s)", role, schema, right)}

    assert allowed("api", "usage") == {"service_role"}
    assert allowed("engine", "usage") == {"almagest_reader"}
    assert allowed("almagest", "usage") == {"almagest_reader"}
    assert allowed("dashboard", "usage") == set()
    assert allowed("api", "create") == allowed("almagest", "create") == allowed("dashboard", "create") == set()


def test_tables_are_closed_but_for_what_the_reader_reads(server: Server) -> None:
    for table, name in [*_tables(server), *_tables(server, "dashboard")]:
        for role in ROLES:
            rights = {
                right
                for right in TABLE_RIGHTS
                if server.value("select has_table_privilege(%s, %s::oid, %s)", role, table, right)
            }
            readable = role == "almagest_reader" and name in READABLE
            assert rights == ({"SELECT"} if readable else set()), (role, name)
            columns = {
                right
                for right in COLUMN_RIGHTS
                if server.value("select has_any_column_privilege(%s, %s::oid, %s)", role, table, right)
            }
            assert columns == rights, (role, name)


def test_sequences_are_closed(server: Server) -> None:
    sequences = server.rows(
        "select oid::int8, relname from pg_class where relnamespace = 'almagest'::regnamespace and relkind = 'S'"
    )
    assert sequences
    for sequence, name in sequences:
        for role in ROLES:
            for right in SEQUENCE_RIGHTS:
                assert not server.value("select has_sequence_privilege(%s, %s::oid, %s)", role, sequence, right), name


def test_nothing_but_functions_is_in_the_exposed_schema(server: Server) -> None:
    assert _tables(server, "api") == []


def test_row_security_is_enabled_and_forced_on_every_table(server: Server) -> None:
    """The ledger and the partitions too."""
    rows = server.rows(
        "select relname, relrowsecurity, relforcerowsecurity from pg_class"
        " where relnamespace = 'almagest'::regnamespace and relkind in ('r', 'p')"
    )
    assert {"migrations", "code_files", "retrievals_rest", "activations_rest", "items"} <= {row[0] for row in rows}
    assert [row for row in rows if not (row[1] and row[2])] == []


def test_policies_are_for_the_reader_and_for_reading(server: Server) -> None:
    policies = server.rows(
        "select tablename, roles::text, cmd, permissive from pg_policies where schemaname = 'almagest'"
    )
    assert {policy[0] for policy in policies} == READABLE
    assert {policy[1:] for policy in policies} == {("{almagest_reader}", "SELECT", "PERMISSIVE")}


def test_the_reader_is_bound_by_row_security_and_logs_in_nowhere(server: Server) -> None:
    [role] = server.rows(
        "select rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb from pg_roles"
        " where rolname = 'almagest_reader'"
    )
    assert role == (False, False, False, False, False)
    members = server.rows(
        "select member::regrole::text, inherit_option from pg_auth_members"
        " where roleid = 'almagest_reader'::regrole and set_option"
    )
    assert [member for member, inherits in members if inherits] == []
    assert {member for member, _ in members} <= {"postgres", "supabase_admin"}
    assert server.value("select count(*) from pg_auth_members where member = 'almagest_reader'::regrole") == 0


def test_api_functions_have_the_one_signature(server: Server) -> None:
    """R17: no overloads, no defaults, definer's rights and an empty search path."""
    rows = server.rows(
        "select proname, pg_get_function_arguments(oid), pg_get_function_result(oid), prosecdef, proconfig,"
        " provolatile, proowner::regrole::text from pg_proc where pronamespace = 'api'::regnamespace"
    )
    names = [row[0] for row in rows]
    assert len(names) == len(set(names))
    assert set(names) == {path.stem for path in (sql_directory() / "api").glob("*.sql")}
    for name, arguments, result, definer, settings, volatility, owner in rows:
        assert (arguments, result) == ("caller jsonb, request jsonb", "jsonb"), name
        assert definer, name
        assert 'search_path=""' in settings, name
        # PostgREST calls a stable function in a transaction that cannot write.
        assert volatility == "v", name
        assert owner == "postgres", name


def test_reading_functions_run_as_the_reader_with_an_empty_search_path(server: Server) -> None:
    rows = server.rows(
        "select proname, proowner::regrole::text, prosecdef, proconfig from pg_proc"
        " where pronamespace = 'engine'::regnamespace"
        " and (prosecdef or starts_with(proname, 'read_') or proname = 'is_readable')",
    )
    assert len(rows) >= 7
    for name, owner, definer, settings in rows:
        assert (owner, definer, settings) == ("almagest_reader", True, ['search_path=""']), name


_CREATE = re.compile(r"^create or replace function (\w+\.\w+)", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(sql_directory().glob("api/*.sql")), ids=lambda path: path.stem)
def test_an_api_file_is_one_function_headed_by_its_contract(path: Path) -> None:
    text = path.read_text()
    assert _CREATE.findall(text) == [f"api.{path.stem}"]
    comment = text[: text.index("create or replace function")]
    assert comment.startswith("-- ")
    assert all(line.startswith("--") for line in comment.splitlines())
    for part in ("request  ", "returns  "):
        assert f"--   {part}" in comment


@pytest.mark.parametrize("path", sorted(sql_directory().glob("engine/*.sql")), ids=lambda path: path.stem)
def test_an_engine_file_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("-- ")
    for match in _CREATE.finditer(text):
        line_before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        assert line_before.startswith("--"), match[1]


# As the roles meet it


@pytest.mark.parametrize("role", ["anon", "authenticated", "almagest_reader", "authenticator"])
@pytest.mark.parametrize("name", ["search", "write_memories", "authenticate", "create_org", "erase_item"])
def test_others_are_refused_the_api(server: Server, role: str, name: str) -> None:
    with server.database.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"select api.{name}(null, '{{}}')".encode())


@pytest.mark.parametrize("role", ["anon", "authenticated", "service_role", "authenticator"])
@pytest.mark.parametrize(
    "statement",
    [
        "select * from almagest.items",
        "select * from almagest.api_keys",
        "select * from almagest.migrations",
        "insert into almagest.orgs (slug, name) values ('mine', 'Mine')",
        "delete from almagest.audit_log",
        "truncate almagest.retrievals",
        "select nextval('almagest.chunks_id_seq')",
        "select engine.resolve_caller('{}')",
        "select engine.read_item(null, gen_random_uuid())",
        "select engine.lease_items('me', 1, 1)",
        "create function api.mine() returns int language sql as 'select 1'",
        "create table almagest.mine (id int)",
        "set role almagest_reader",
        "alter table almagest.items disable row level security",
    ],
)
def test_nobody_touches_what_is_behind_the_api(server: Server, role: str, statement: str) -> None:
    with server.database.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


@pytest.mark.parametrize(
    "statement",
    [
        "select * from almagest.api_keys",
        "select * from almagest.members",
        "select * from almagest.lexical",
        "select * from almagest.embeddings",
        "select * from almagest.audit_log",
        "update almagest.items set title = 'x'",
        "insert into almagest.pins (org_id, item_id) select gen_random_uuid(), gen_random_uuid()",
        "delete from almagest.chunks",
        "select engine.enter('{}')",
        "select engine.lock_item(null, null)",
    ],
)
def test_the_reader_only_reads_what_it_was_granted(server: Server, statement: str) -> None:
    with server.database.connect("almagest_reader") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


@pytest.mark.parametrize("table", sorted(READABLE))
def test_the_reader_finds_nothing_by_itself(server: Server, table: str) -> None:
    """Whatever somebody who became it might set: only a call says who reads."""
    with server.database.connect("almagest_reader") as connection:
        assert connection.execute(f"select count(*) from almagest.{table}".encode()).fetchone() == (0,)


def test_service_role_calls_the_api(server: Server) -> None:
    assert server.call("list_orgs", None) == {"orgs": []}
