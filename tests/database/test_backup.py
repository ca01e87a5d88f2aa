"""The drill of docs/backup.md: a dump that is restored elsewhere is the same system, for every role."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from almagest.database.health import Health
from almagest.database.migrate import migrate
from almagest.database.retention import Retention
from almagest.operations.retention import retain
from infra.local.postgres import Postgres
from tests.database.support import Org, Refused, Server, ids, one_hot, search, serve, write_one
from tests.database.test_transfer import answers, exported, fill
from tests.support import Database, clone

ROLES = ("anon", "authenticated", "service_role", "almagest_reader", "public")
# What stands in the catalog about everything of ours, by names instead of numbers.
CATALOG = {
    "tables": """
        select n.nspname, c.relname, c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.relowner::regrole::text,
            array(select r::text from unnest(coalesce(c.relacl, acldefault(
                case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))) as r order by 1),
            pg_get_expr(c.relpartbound, c.oid), c.reloptions, obj_description(c.oid)
        from pg_class as c join pg_namespace as n on n.oid = c.relnamespace where n.nspname = any(%s) order by 1, 2
    """,
    "columns": """
        select a.attrelid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
            pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute as a join pg_class as c on c.oid = a.attrelid join pg_namespace as n on n.oid = c.relnamespace
        left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where n.nspname = any(%s) and a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p', 'v', 'c')
        order by 1, 2
    """,
    "indexes": """
        select indexname, indexdef from pg_indexes where schemaname = any(%s) order by 1
    """,
    "constraints": """
        select conrelid::regclass::text, conname, pg_get_constraintdef(c.oid), convalidated
        from pg_constraint as c join pg_namespace as n on n.oid = c.connamespace where n.nspname = any(%s)
            and c.contype <> 'n' order by 1, 2
    """,
    "policies": """
        select tablename, policyname, roles::text[], cmd, qual, with_check from pg_policies where schemaname = any(%s)
        order by 1, 2
    """,
    "functions": """
        select p.oid::regprocedure::text, p.proowner::regrole::text, p.prosecdef, p.proconfig,
            array(select r::text from unnest(coalesce(p.proacl, acldefault('f', p.proowner))) as r order by 1),
            md5(p.prosrc), p.provolatile
        from pg_proc as p join pg_namespace as n on n.oid = p.pronamespace where n.nspname = any(%s) order by 1
    """,
    "schemas": """
        select nspname, nspowner::regrole::text,
            array(select r::text from unnest(coalesce(nspacl, acldefault('n', nspowner))) as r order by 1)
        from pg_namespace where nspname = any(%s) order by 1
    """,
}
SCHEMAS = ["almagest", "engine", "api", "dashboard"]


def programs() -> Path | None:
    """Where pg_dump and pg_restore are: beside the embedded server, as new as it is, or on the PATH."""
    from infra.local.postgres import _installation

    beside = _installation() / "bin"
    if (beside / "pg_dump").exists() and (beside / "pg_restore").exists():
        return beside
    on_path = shutil.which("pg_dump")
    return Path(on_path).parent if on_path and shutil.which("pg_restore") else None


Run = Callable[..., None]


@pytest.fixture
def run() -> Run:
    folder = programs()
    if folder is None:
        pytest.skip("neither the embedded Postgres nor the PATH has pg_dump and pg_restore (Debian: postgresql-client)")

    def run_program(program: str, *arguments: str, environment: Mapping[str, str]) -> None:
        command = [str(folder / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
        assert done.returncode == 0, done.stderr
        assert "error" not in done.stderr.lower(), done.stderr

    return run_program


@pytest.fixture
def server(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    with clone(cluster, template_database.name) as here, serve(here) as connections:
        yield connections


@pytest.fixture
def empty(cluster: Postgres) -> Iterator[Database]:
    """What a new Supabase project is: roles and the extension, nothing of ours."""
    with clone(cluster, "postgres") as database:
        yield database


def catalog(server: Server) -> dict[str, list[Any]]:
    return {name: server.rows(query, SCHEMAS) for name, query in CATALOG.items()}


def connections(tmp_path: Path, **services: Database) -> dict[str, str]:
    """Variables for libpq that name a file of connections, and another one of their passwords."""
    service, password = tmp_path / "pg_service.conf", tmp_path / "pgpass"
    password.touch(0o600)
    for name, database in services.items():
        about = conninfo_to_dict(database.url)
        parts = "".join(f"{part}={about[part]}\n" for part in ("host", "port", "user", "dbname"))
        with service.open("a") as file:
            file.write(f"[{name}]\n{parts}")
        with password.open("a") as file:
            file.write("{host}:{port}:{dbname}:{user}:{password}\n".format(**about))
    return {"PGSERVICEFILE": str(service), "PGPASSFILE": str(password)}


def drill(run: Run, database: Database, into: Database, tmp_path: Path) -> None:
    """The commands of docs/backup.md."""
    dump, lists = str(tmp_path / "almagest.dump"), tmp_path / "all.list"
    run = partial(run, environment=connections(tmp_path, almagest=database, almagest_new=into))
    schemas = [f"--schema={name}" for name in SCHEMAS]
    run("pg_dump", "--format=custom", *schemas, f"--file={dump}", "--dbname=service=almagest")
    run("pg_restore", "--list", f"--file={lists}", dump)
    first, rest = tmp_path / "schemas.list", tmp_path / "rest.list"
    lines = lists.read_text().splitlines(keepends=True)
    first.write_text("".join(line for line in lines if " SCHEMA " in line))
    rest.write_text("".join(line for line in lines if " SCHEMA " not in line))
    for part in (first, rest):
        run(
            *("pg_restore", "--exit-on-error", "--single-transaction", f"--use-list={part}"),
            *("--dbname=service=almagest_new", dump),
        )
    # What was kept of the functions, policies and constraints came along, and fits them.
    assert into.rows("select name from engine.access_faults() where fault ~ '^(function|policy|constraint)_'") == []
    # What belongs to the reader's role, only that role can close to others: a restore by `postgres` passes over it.
    assert migrate(into.url, reapply=True).migrations == ()


def test_a_restored_database_is_the_same_system(server: Server, empty: Database, run: Run, tmp_path: Path) -> None:
    org, other = Org(server, "acme"), Org(server, "other")
    ann = fill(server, org)
    foreign = write_one(server, other.owner, "Something of the others.", one_hot(9))
    retain(Retention(server.owner), 60)
    server.rows("select engine.refresh_statistics(1, 1)")
    before = {who: answers(server, caller) for who, caller in (("owner", org.owner), ("ann", ann))}

    drill(run, server.database, empty, tmp_path)

    with serve(empty) as restored:
        after = catalog(restored)
        for part, rows in catalog(server).items():
            assert rows, part
            assert after[part] == rows, part
        assert Health(restored.owner).access_faults() == []
        for slug in ("acme", "other"):
            assert exported(restored, slug) == exported(server, slug)
        assert {who: answers(restored, caller) for who, caller in (("owner", org.owner), ("ann", ann))} == before
        assert restored.value("select count(*) from almagest.retrievals") >= server.value(
            "select count(*) from almagest.retrievals"
        )
        # Both layers of privacy hold, and what is written next collides with nothing.
        assert foreign not in ids(search(restored, org.owner, "something of the others", one_hot(9)))
        with pytest.raises(Refused):
            restored.call("get_item", org.owner, {"id": foreign})
        new = write_one(restored, org.owner, "Written after the restore.", one_hot(70))
        assert ids(search(restored, org.owner, "after the restore", one_hot(70)))[0] == new
        # The vector index is there and used.
        restored.owner.execute("set enable_seqscan = off")
        plan = restored.rows(
            "explain select chunk_id from almagest.embeddings where model_id = 1"
            " order by vector operator(extensions.<=>) (select vector from almagest.embeddings limit 1) limit 5"
        )
        assert any("embeddings_vector_1" in line for line in plan)
    # The code recognises its own work.
    assert not migrate(empty.url).changed


def test_keys_hold_after_a_restore_and_roles_are_refused_what_they_were(
    server: Server, empty: Database, run: Run, tmp_path: Path
) -> None:
    org = Org(server, "acme")
    org.system(
        "create_key", {"name": "laptop", "member": org.owner["user"], "key_hash": "ab" * 32, "prefix": "alm_abc"}
    )
    drill(run, server.database, empty, tmp_path)
    with serve(empty) as restored:
        assert restored.call("authenticate", None, {"key_hash": "ab" * 32})["org"] == org.id
        for role in ROLES:
            for table in ("items", "api_keys", "retrievals"):
                may = "select has_table_privilege(%s, %s, 'select')"
                name = f"almagest.{table}"
                assert restored.value(may, role, name) == server.value(may, role, name), (role, table)
