"""Bring a database to this version of the code: numbered migrations first, then the replaceable code.

The files run in session mode with an empty `search_path`, so that every name says its schema. The ledger is in
`almagest.migrations`, what code a database has in `almagest.code_files`, and what the files have made, for the health
checks to compare, in `almagest.made_objects`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from almagest.database.sql_files import (
    PRIVILEGES,
    MigrationError,
    SqlFile,
    read_code,
    read_migrations,
    render,
    sql_directory,
    statements,
)

MINIMUM_POSTGRES = 15
MINIMUM_VECTOR = (0, 8)

_TRANSACTION_POOLER_PORT = "6543"
_LOCK = 0x416C6D61  # any constant will do, if only every version of Almagest takes the same one: "Alma"
# Made after the first migration, which makes the schema, and in the same transaction.
_LEDGER = """
create table almagest.migrations (
    version int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default now()
);
create table almagest.code_files (
    path text primary key,
    checksum text not null,
    applied_at timestamptz not null default now()
);
alter table almagest.migrations enable row level security;
alter table almagest.code_files enable row level security;
"""

# What the code folders made: kind, name as `drop` takes it, and the transaction that wrote it last.
_CODE_OBJECTS = """
select 'routine', p.oid::regprocedure::text, p.xmin::text
from pg_proc p
where p.pronamespace::regnamespace::text in ('engine', 'dashboard', 'api')
union all
select 'view', c.oid::regclass::text, c.xmin::text
from pg_class c
where c.relkind = 'v' and c.relnamespace::regnamespace::text in ('engine', 'dashboard', 'api')
"""

# The bodies are not checked while the files run, since these may call one another in any order.
_CHECK_BODIES = """
select p.oid::regprocedure::text, v.oid::regproc::text, p.oid
from pg_proc p
join pg_language l on l.oid = p.prolang
join pg_proc v on v.oid = l.lanvalidator
where p.pronamespace::regnamespace::text in ('engine', 'dashboard', 'api')
    and has_function_privilege(p.oid, 'execute')
order by 1
"""

_ADVICE_RIGHTS = (
    "migrate as the role that owns Almagest's schemas, may create roles and has BYPASSRLS (Supabase: postgres)"
)

Report = Callable[[str], None]
Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True)
class MigrationReport:
    """What a run changed.

    Attributes
    ----------
    migrations
        File names of the migrations that were applied, in order.
    code_files
        Number of code files applied: all of them, or 0 when none had changed.
    dropped
        Functions and views that no file makes any longer.
    """

    migrations: tuple[str, ...] = ()
    code_files: int = 0
    dropped: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was done at all."""
        return bool(self.migrations or self.code_files)


def migrate(
    database_url: str, report: Report = lambda _: None, *, directory: Path | None = None, reapply: bool = False
) -> MigrationReport:
    """Apply pending migrations, then the code files if any of them changed.

    Runs that overlap wait for one another. A run that fails leaves the last migration that succeeded in place, and
    the code as it was.

    Parameters
    ----------
    database_url
        Of a session: direct or through a session pooler. The role needs no superuser rights, but must be the one
        that migrated before (Supabase: `postgres`).
    report
        Receives one line for each step.
    directory
        Folder of the SQL; default the one that belongs to this code.
    reapply
        Whether functions, views, policies and privileges are applied again though none of them has changed: after a
        restore, which cannot set all of them.

    Raises
    ------
    MigrationError
        When the database cannot be reached or used, the ledger and the files disagree, or a file fails.
    """
    directory = directory or sql_directory()
    migrations = read_migrations(directory)
    with _session(database_url) as connection:
        _lock(connection, report)
        _require_rights(connection)
        schema = _extension_schema(connection, report)
        applied = _apply_migrations(connection, migrations, schema, report)
        code = [SqlFile(file.path, render(file.text, schema)) for file in read_code(directory)]
        if not reapply and {file.path: file.checksum for file in code} == _landed_code(connection):
            return MigrationReport(applied)
        dropped = _apply_code(connection, code, report)
    return MigrationReport(applied, len(code), dropped)


@contextmanager
def _session(database_url: str) -> Iterator[Connection]:
    """Connect, and turn what Postgres says about rights and connections into advice."""
    try:
        port = conninfo_to_dict(database_url).get("port")
    except psycopg.ProgrammingError:
        # Its message repeats parts of the URL, the password among them.
        raise MigrationError(
            "not a usable database URL: write postgresql://USER:PASSWORD@HOST:5432/DATABASE, "
            "with signs such as @, / and space in the password percent-encoded"
        ) from None
    try:
        if str(port) == _TRANSACTION_POOLER_PORT:
            raise MigrationError(
                "port 6543 is the transaction pooler, which cannot run migrations: use the session mode URL, port 5432"
            )
        with psycopg.connect(database_url, autocommit=True, prepare_threshold=None, connect_timeout=10) as connection:
            if connection.info.server_version < MINIMUM_POSTGRES * 10_000:
                raise MigrationError(
                    f"this is Postgres {connection.info.server_version // 10_000}; "
                    f"Almagest needs {MINIMUM_POSTGRES} or newer"
                )
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationError(f"{_message(error)}: {_ADVICE_RIGHTS}") from error
    except psycopg.errors.LockNotAvailable as error:
        raise MigrationError(f"{_message(error)}: a table is in use by a long transaction; run it again") from error
    except psycopg.OperationalError as error:
        raise MigrationError(f"cannot reach Postgres: {_message(error)}") from error


def _message(error: psycopg.Error) -> str:
    return error.diag.message_primary or " ".join(str(error).split())


def _lock(connection: Connection, report: Report) -> None:
    """Take the lock that serialises runs, and settings that a project may have made too narrow."""
    for name, value in {"search_path": "", "statement_timeout": "0", "lock_timeout": "0"}.items():
        connection.execute("select set_config(%s, %s, false)", (name, value))
    if not _value(connection, "select pg_try_advisory_lock(%s)", _LOCK):
        report("another migration is running: waiting for it")
        connection.execute("select pg_advisory_lock(%s)", (_LOCK,))
    # Rather give up than make every reader queue behind a migration that waits for a table.
    connection.execute("select set_config('lock_timeout', '10s', false)")


def _require_rights(connection: Connection) -> None:
    """The API's functions run as the role that owns them, and every table has row level security forced."""
    passes = "select rolbypassrls or rolsuper from pg_roles where rolname = current_user"
    if not _value(connection, passes):
        raise MigrationError(f"this role is bound by row level security: {_ADVICE_RIGHTS}")
    missing = (
        "select string_agg(name, ', ') from unnest(array['anon', 'authenticated', 'service_role']) as name "
        "where to_regrole(name) is null"
    )
    if roles := _value(connection, missing):
        raise MigrationError(f"this database lacks the roles of a Supabase project: {roles}")


def _extension_schema(connection: Connection, report: Report) -> str:
    """Schema of the extension `vector`, which is created if it is missing."""
    row = connection.execute(
        "select nspname, extversion from pg_extension join pg_namespace n on n.oid = extnamespace "
        "where extname = 'vector'"
    ).fetchone()
    if row is None:
        _create_extension(connection, report)
        return _extension_schema(connection, report)
    schema, version = str(row[0]), str(row[1])
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < MINIMUM_VECTOR:
        needed = ".".join(map(str, MINIMUM_VECTOR))
        raise MigrationError(
            f'extension vector is {version}, Almagest needs {needed} or newer: run "alter extension vector update", '
            "after an upgrade of the database if that does not help"
        )
    return schema


def _create_extension(connection: Connection, report: Report) -> None:
    schema = "extensions" if _value(connection, "select to_regnamespace('extensions') is not null") else "public"
    try:
        connection.execute(sql.SQL("create extension vector schema {}").format(sql.Identifier(schema)))
    except psycopg.Error as error:
        raise MigrationError(
            f"extension vector is not enabled, and this role cannot enable it ({_message(error)}): "
            "turn on `vector` under Database > Extensions in the Supabase dashboard, "
            f'or run "create extension vector schema {schema}" as a superuser'
        ) from error
    report(f"extension vector created in schema {schema}")


def _apply_migrations(
    connection: Connection, migrations: list[SqlFile], extension_schema: str, report: Report
) -> tuple[str, ...]:
    landed = _check_ledger(connection, migrations)
    pending = migrations[landed:]
    for version, file in enumerate(pending, start=landed + 1):
        with connection.transaction(), _kept(connection):
            _run(connection, file.path, render(file.text, extension_schema))
            if version == 1:
                connection.execute(_LEDGER)
            connection.execute(
                "insert into almagest.migrations (version, name, checksum) values (%s, %s, %s)",
                (version, file.name, file.checksum),
            )
            # The code was made for the schema as it was: forget that it is up to date.
            connection.execute("delete from almagest.code_files")
        report(f"applied {file.name}")
    return tuple(file.name for file in pending)


def _check_ledger(connection: Connection, migrations: list[SqlFile]) -> int:
    """Compare landed migrations with their files; answer how many have landed."""
    if _value(connection, "select to_regclass('almagest.migrations') is null"):
        return 0
    rows = connection.execute("select version, name, checksum from almagest.migrations order by version").fetchall()
    for position, (version, name, checksum) in enumerate(rows, start=1):
        if version != position:
            raise MigrationError(f"the ledger almagest.migrations lacks {position:04}: restore its row")
        if position > len(migrations):
            raise MigrationError(f"the database is newer than this code: it has migration {name}, which has no file")
        if checksum != migrations[position - 1].checksum:
            raise MigrationError(
                f"{migrations[position - 1].path} was edited after it had landed: "
                "restore it, and make the change in a new migration"
            )
    return len(rows)


def _landed_code(connection: Connection) -> dict[object, object]:
    return dict(connection.execute("select path, checksum from almagest.code_files").fetchall())  # type: ignore[arg-type]


def _apply_code(connection: Connection, code: list[SqlFile], report: Report) -> tuple[str, ...]:
    with connection.transaction(), _kept(connection):
        connection.execute("set local check_function_bodies = off")
        before = _code_objects(connection)
        for file in code:
            if file.path != PRIVILEGES:
                _run(connection, file.path, file.text)
        # Told apart before the privileges: a grant rewrites a function's row as its replacement does. Dropped after
        # them, since they may replace a policy that used it.
        stale = before & _code_objects(connection)
        for file in code:
            if file.path == PRIVILEGES:
                _run(connection, file.path, file.text)
        dropped = _drop(connection, stale)
        _check_bodies(connection)
        connection.execute("delete from almagest.code_files")
        for file in code:
            connection.execute(
                "insert into almagest.code_files (path, checksum) values (%s, %s)", (file.path, file.checksum)
            )
        connection.execute("notify pgrst, 'reload schema'")
    report(f"applied {len(code)} code files")
    for name in dropped:
        report(f"dropped {name}, which no file makes any longer")
    return dropped


@contextmanager
def _kept(connection: Connection) -> Iterator[None]:
    """Keep what the files that run meanwhile make; all that is there, where nothing has been kept.

    What somebody had changed by hand before, and no file makes anew, stays a fault.
    """
    before = _made(connection)
    yield
    after = _made(connection)
    if not after:
        return
    if _value(connection, "select not exists (select from almagest.made_objects)"):
        before = set()
    with connection.cursor() as cursor:
        cursor.executemany(
            "delete from almagest.made_objects where kind = %s and name = %s and digest = %s", list(before - after)
        )
        cursor.executemany(
            "insert into almagest.made_objects (kind, name, digest) values (%s, %s, %s)"
            " on conflict (kind, name) do update set digest = excluded.digest",
            list(after - before),
        )


def _made(connection: Connection) -> set[tuple[object, ...]]:
    """What guards or answers here; nothing in a database that has no function yet to say so."""
    if _value(connection, "select to_regprocedure('engine.made()') is null"):
        return set()
    return set(connection.execute("select kind, name, digest from engine.made()").fetchall())


def _code_objects(connection: Connection) -> set[tuple[object, ...]]:
    return set(connection.execute(_CODE_OBJECTS).fetchall())


def _drop(connection: Connection, stale: set[tuple[object, ...]]) -> tuple[str, ...]:
    """Drop functions and views, those first on which no other depends; never by cascade."""
    dropped: list[str] = []
    remaining = sorted((str(kind), str(name)) for kind, name, _ in stale)
    while remaining:
        kept = []
        for kind, name in remaining:
            try:
                with connection.transaction():
                    connection.execute(f"drop {kind} {name}".encode())
                dropped.append(name)
            except psycopg.errors.DependentObjectsStillExist as error:
                kept.append((kind, name))
                detail = (error.diag.message_detail or "").splitlines()
        if kept == remaining:
            raise MigrationError(
                f"{kept[0][1]} has no file any longer, but is still in use: {detail[0]}; "
                "drop what depends on it in a migration first"
            )
        remaining = kept
    return tuple(dropped)


def _check_bodies(connection: Connection) -> None:
    """Let each language check the functions, now that everything that they name exists."""
    connection.execute("set local check_function_bodies = on")
    for name, validator, oid in connection.execute(_CHECK_BODIES).fetchall():
        try:
            with connection.transaction():
                connection.execute(sql.SQL("select {}({})").format(sql.SQL(str(validator)), sql.Literal(oid)))
        except psycopg.Error as error:
            raise MigrationError(f"{name}: {_message(error)}") from error


def _run(connection: Connection, path: str, text: str) -> None:
    """Run a file, statement by statement so that an error can be told by its line."""
    for start, statement in statements(text):
        try:
            connection.execute(statement.encode())
        except psycopg.Error as error:
            offset = start + int(error.diag.statement_position or 1) - 1
            line = text.count("\n", 0, offset) + 1
            hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
            advice = f": {_ADVICE_RIGHTS}" if isinstance(error, psycopg.errors.InsufficientPrivilege) else ""
            raise MigrationError(f"{path}, line {line}: {_message(error)}{hint}{advice}") from error


def _value(connection: Connection, query: LiteralString, *parameters: object) -> object:
    row = connection.execute(query, parameters).fetchone()
    return row[0] if row else None
