"""Migrations, on SQL folders of a test's own."""

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from almagest.database.migrate import migrate
from almagest.database.sql_files import MigrationError, render, statements
from infra.local.postgres import Postgres

FIRST = """
create schema almagest;
create schema engine;
create schema api;
create schema dashboard;
create table almagest.notes (id int primary key, embedding @extschema:vector@.halfvec(3));
"""
SECOND = "alter table almagest.notes add column body text not null default '';"
BOTH = {"migrations/0001_notes.sql": FIRST, "migrations/0002_body.sql": SECOND}
ONE = """
create or replace function engine.one() returns int language sql
    as $$ select 1; $$;
"""
NEAREST = """
create or replace function api.nearest(vector text) returns int language sql set search_path = '' as $$
    select id from almagest.notes
    order by embedding operator(@extschema:vector@.<=>) vector::@extschema:vector@.halfvec limit 1;
$$;
"""


@pytest.fixture
def url(cluster: Postgres) -> Iterator[str]:
    """An empty database without any extension, owned by a role that is no superuser."""
    name = f"migrate_{uuid4().hex[:8]}"
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(f"create database {name} template template0")
    yield cluster.url(database=name)
    with psycopg.connect(cluster.url("supabase_admin"), autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def superuser_url(cluster: Postgres, url: str) -> str:
    return cluster.url("supabase_admin", database=url.rpartition("/")[2])


@pytest.fixture(params=["public", "extensions", "Odd schema"])
def extension_schema(request: pytest.FixtureRequest, superuser_url: str) -> str:
    schema: str = request.param
    _execute(superuser_url, f'create schema if not exists "{schema}"; create extension vector schema "{schema}"')
    _execute(superuser_url, f'grant usage on schema "{schema}" to public')
    return schema


@pytest.fixture
def with_vector(superuser_url: str) -> None:
    _execute(superuser_url, "create extension vector schema public")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sql"


def _execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def _write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def test_a_fresh_database_gets_migrations_then_code(url: str, folder: Path, extension_schema: str) -> None:
    """R5: the extension's schema is resolved, wherever it is."""
    _write(folder, BOTH | {"engine/one.sql": ONE, "api/nearest.sql": NEAREST})
    lines: list[str] = []

    report = migrate(url, lines.append, directory=folder)

    assert report.migrations == ("0001_notes.sql", "0002_body.sql")
    assert report.code_files == 2
    assert report.changed
    assert lines == ["applied 0001_notes.sql", "applied 0002_body.sql", "applied 2 code files"]
    assert _execute(url, "insert into almagest.notes values (7, '[1,0,0]')") == []
    assert _execute(url, "select api.nearest('[1,0,0]')") == [(7,)]
    assert _execute(url, "select version, name from almagest.migrations order by 1") == [
        (1, "0001_notes.sql"),
        (2, "0002_body.sql"),
    ]


def test_a_second_run_changes_nothing(url: str, folder: Path, with_vector: None) -> None:
    _write(folder, BOTH | {"engine/one.sql": ONE})
    migrate(url, directory=folder)
    lines: list[str] = []

    report = migrate(url, lines.append, directory=folder)

    assert not report.changed
    assert lines == []


def test_a_new_migration_is_applied_to_a_database_with_data(url: str, folder: Path, with_vector: None) -> None:
    _write(folder, {"migrations/0001_notes.sql": FIRST})
    migrate(url, directory=folder)
    _execute(url, "insert into almagest.notes values (1, '[1,2,3]')")
    _write(folder, BOTH)

    assert migrate(url, directory=folder).migrations == ("0002_body.sql",)
    assert _execute(url, "select id, body from almagest.notes") == [(1, "")]


def test_code_runs_again_after_a_migration(url: str, folder: Path, with_vector: None) -> None:
    view = {"dashboard/notes.sql": "create or replace view dashboard.notes as select id from almagest.notes;"}
    _write(folder, {"migrations/0001_notes.sql": FIRST} | view)
    migrate(url, directory=folder)
    _write(folder, {"migrations/0002_bigint.sql": "drop view dashboard.notes;"})

    assert migrate(url, directory=folder).code_files == 1
    assert _execute(url, "select * from dashboard.notes") == []


def test_an_edited_migration_is_an_error(url: str, folder: Path, with_vector: None) -> None:
    _write(folder, BOTH)
    migrate(url, directory=folder)
    _write(folder, {"migrations/0001_notes.sql": FIRST + "-- better"})

    with pytest.raises(MigrationError, match=r"0001_notes\.sql was edited after it had landed"):
        migrate(url, directory=folder)


def test_a_database_newer_than_the_code_is_an_error(url: str, folder: Path, with_vector: None) -> None:
    _write(folder, BOTH)
    migrate(url, directory=folder)
    (folder / "migrations/0002_body.sql").unlink()

    with pytest.raises(MigrationError, match=r"newer than this code: it has migration 0002_body\.sql"):
        migrate(url, directory=folder)


def test_a_ledger_with_a_hole_is_an_error(url: str, folder: Path, with_vector: None) -> None:
    _write(folder, BOTH)
    migrate(url, directory=folder)
    _execute(url, "delete from almagest.migrations where version = 1")

    with pytest.raises(MigrationError, match="lacks 0001"):
        migrate(url, directory=folder)


def test_a_folder_without_migrations_is_an_error(url: str, folder: Path) -> None:
    with pytest.raises(MigrationError, match="there are no migrations in"):
        migrate(url, directory=folder)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("0004_late.sql", "migration 0003 is missing before it"),
        ("0002_again.sql", "number 0002 is taken by 0002_again.sql"),
        ("third.sql", "NNNN_name.sql"),
        ("0003_Case.sql", "NNNN_name.sql"),
    ],
)
def test_misnumbered_files_are_an_error(url: str, folder: Path, extra: str, message: str) -> None:
    _write(folder, BOTH | {f"migrations/{extra}": "select 1;"})

    with pytest.raises(MigrationError, match=message):
        migrate(url, directory=folder)


def test_a_failing_migration_leaves_no_trace_and_names_its_line(url: str, folder: Path, with_vector: None) -> None:
    broken = "create table almagest.half (id int);\n\n-- a comment;\ncreate table almagest.notes\n    (id int);\n"
    _write(folder, {"migrations/0001_notes.sql": FIRST, "migrations/0002_broken.sql": broken})

    with pytest.raises(MigrationError, match=r'0002_broken\.sql, line 4: relation "notes" already exists'):
        migrate(url, directory=folder)

    assert _execute(url, "select to_regclass('almagest.half')::text") == [(None,)]
    assert _execute(url, "select name from almagest.migrations") == [("0001_notes.sql",)]


def test_an_error_inside_a_statement_names_its_line(url: str, folder: Path, with_vector: None) -> None:
    view = "select 1;\ncreate or replace view engine.v as\n    select id,\n        colour\n    from almagest.notes;\n"
    _write(folder, BOTH | {"engine/v.sql": view})

    with pytest.raises(MigrationError, match=r'engine/v\.sql, line 4: column "colour" does not exist'):
        migrate(url, directory=folder)


def test_functions_may_call_one_another_in_any_order(url: str, folder: Path, with_vector: None) -> None:
    caller = "create or replace function engine.a() returns int language sql as 'select engine.one()';"
    _write(folder, BOTH | {"engine/a.sql": caller, "engine/one.sql": ONE})

    migrate(url, directory=folder)

    assert _execute(url, "select engine.a()") == [(1,)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("language sql as 'select no_such_column'", r"engine\.bad\(\).*no_such_column"),
        ("language plpgsql as 'begin retrun 1; end'", r"engine\.bad\(\).*retrun"),
    ],
)
def test_a_broken_body_is_found_before_it_lands(
    url: str, folder: Path, with_vector: None, body: str, message: str
) -> None:
    _write(folder, BOTH | {"engine/bad.sql": f"create or replace function engine.bad() returns int {body};"})

    with pytest.raises(MigrationError, match=message):
        migrate(url, directory=folder)

    assert _execute(url, "select to_regproc('engine.bad')::text") == [(None,)]


def test_what_no_file_makes_any_longer_is_dropped(url: str, folder: Path, with_vector: None) -> None:
    files = {
        "engine/one.sql": ONE,
        "engine/two.sql": "create or replace function engine.two() returns int language sql as 'select 2';",
        "dashboard/old.sql": "create or replace view dashboard.old as select engine.two() as two;",
        "dashboard/kept.sql": "create or replace view dashboard.kept as select engine.one() as one;",
        "api/run.sql": "create or replace procedure api.run() language sql as 'select 1';",
        "privileges.sql": "revoke execute on all functions in schema engine from public;",
    }
    _write(folder, BOTH | files)
    migrate(url, directory=folder)
    for path in ("engine/two.sql", "dashboard/old.sql", "api/run.sql"):
        (folder / path).unlink()
    _write(folder, {"engine/one.sql": ONE.replace("one()", "one(extra int default 0)")})
    _write(folder, {"dashboard/kept.sql": "create or replace view dashboard.kept as select 1 as one;"})

    report = migrate(url, directory=folder)

    assert set(report.dropped) == {"dashboard.old", "engine.two()", "api.run()", "engine.one()"}
    assert _execute(url, "select engine.one(), (select one from dashboard.kept)") == [(1, 1)]


def test_what_is_still_in_use_is_never_dropped_by_cascade(url: str, folder: Path, with_vector: None) -> None:
    seen = "create or replace function engine.seen(n int) returns bool language sql as 'select true';"
    policy = """
        drop policy if exists seen on almagest.notes;
        create policy seen on almagest.notes using (engine.seen(id));
    """
    _write(folder, BOTH | {"engine/seen.sql": seen, "privileges.sql": policy})
    migrate(url, directory=folder)
    (folder / "engine/seen.sql").unlink()
    (folder / "privileges.sql").unlink()

    with pytest.raises(MigrationError, match=r"engine\.seen\(integer\) has no file.*policy seen on table"):
        migrate(url, directory=folder)

    _write(folder, {"engine/seen.sql": seen.replace("int)", "int, b int)")})
    _write(folder, {"privileges.sql": policy.replace("(id)", "(id, 0)")})
    assert migrate(url, directory=folder).dropped == ("engine.seen(integer)",)


def test_owners_other_than_the_migrating_role(url: str, folder: Path, with_vector: None) -> None:
    role = f"reader_{uuid4().hex[:8]}"
    make_role = f"create role {role}; grant {role} to current_user; grant create, usage on schema engine to {role};"
    function = f"""
        set role {role};
        create or replace function engine.owned() returns int language sql as $$ select 1 $$;
        reset role;
    """
    _write(folder, BOTH | {"migrations/0003_role.sql": make_role, "engine/owned.sql": function})
    migrate(url, directory=folder)
    assert _execute(url, "select proowner::regrole::text from pg_proc where proname = 'owned'") == [(role,)]
    _write(folder, {"engine/one.sql": ONE})
    assert migrate(url, directory=folder).dropped == ()
    (folder / "engine/owned.sql").unlink()
    assert migrate(url, directory=folder).dropped == ("engine.owned()",)
    _execute(url, f"drop owned by {role}; drop role {role}")


def test_two_runs_at_once_serialise(url: str, folder: Path, with_vector: None) -> None:
    slow = BOTH | {"migrations/0003_slow.sql": "select pg_sleep(0.5);", "engine/one.sql": ONE}
    _write(folder, slow)
    lines: list[str] = []
    reports = []
    threads = [
        threading.Thread(target=lambda: reports.append(migrate(url, lines.append, directory=folder))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(len(report.migrations) for report in reports) == [0, 3]
    assert "another migration is running: waiting for it" in lines


def test_postgrest_is_told_only_when_something_changed(url: str, folder: Path, with_vector: None) -> None:
    _write(folder, BOTH | {"engine/one.sql": ONE})
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("listen pgrst")
        migrate(url, directory=folder)
        assert [n.payload for n in listener.notifies(timeout=1, stop_after=1)] == ["reload schema"]
        migrate(url, directory=folder)
        assert list(listener.notifies(timeout=0.2)) == []


def test_a_missing_extension_is_created_where_the_role_may(superuser_url: str, folder: Path) -> None:
    _execute(superuser_url, "create schema extensions")
    lines: list[str] = []
    migrate(superuser_url, lines.append, directory=_write(folder, BOTH))
    assert lines[0] == "extension vector created in schema extensions"


def test_a_missing_extension_that_the_role_may_not_create(url: str, folder: Path) -> None:
    with pytest.raises(MigrationError, match=r"Database > Extensions.*create extension vector schema public"):
        migrate(url, directory=_write(folder, BOTH))


def test_an_old_extension_is_an_error(url: str, superuser_url: str, folder: Path, with_vector: None) -> None:
    _execute(superuser_url, "update pg_extension set extversion = '0.7.4' where extname = 'vector'")
    with pytest.raises(MigrationError, match=r"vector is 0\.7\.4, Almagest needs 0\.8 or newer"):
        migrate(url, directory=_write(folder, BOTH))


def test_a_role_that_row_level_security_binds_is_told_so(
    cluster: Postgres, url: str, folder: Path, with_vector: None
) -> None:
    name = url.rpartition("/")[2]
    with pytest.raises(MigrationError, match=r"bound by row level security: .*BYPASSRLS"):
        migrate(cluster.url("authenticator", database=name), directory=_write(folder, BOTH))


def test_a_role_without_rights_is_told_so(superuser_url: str, folder: Path, with_vector: None) -> None:
    as_service = f"{superuser_url}?options=-c%20role%3Dservice_role"
    with pytest.raises(MigrationError, match=r"permission denied.*migrate as the role that owns"):
        migrate(as_service, directory=_write(folder, BOTH))


@pytest.mark.parametrize(
    ("url_", "message"),
    [
        ("postgresql://postgres@127.0.0.1:1/postgres", "cannot reach Postgres: .*refused"),
        ("postgresql://postgres.ref:secret@pooler.example:6543/postgres", "session mode URL, port 5432"),
        ("not a url", "not a usable database URL"),
    ],
)
def test_unusable_urls(folder: Path, url_: str, message: str) -> None:
    with pytest.raises(MigrationError, match=message) as caught:
        migrate(url_, directory=_write(folder, BOTH))
    assert "secret" not in str(caught.value)


def test_render_quotes_the_schema() -> None:
    assert render("x @extschema:vector@.halfvec", 'a"b') == 'x "a""b".halfvec'


def test_statements_know_strings_comments_and_bodies() -> None:
    text = """-- first; comment
select ';', e'\\';', "a;b" /* ; */;
create function f() as $x$ begin; $$ ; $$ end; $x$;

  select $1;"""
    found = list(statements(text))
    assert [statement.split()[0] for _, statement in found] == ["select", "create", "select"]
    assert all(text[start:].startswith(statement) for start, statement in found)
