"""The benchmarks' own Postgres, which stays between runs with what was loaded, and the databases in it.

A database belongs to a set of migrations and to the code that decides what is stored, so that a change of either loads
anew. Code that only reads is applied again when it changed.
"""

import fcntl
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console

from almagest.database.migrate import migrate
from infra.local.postgres import Postgres
from tests.bench.places import SQL

# What decides how an item is stored; other code of the engine only reads it.
STORING = ("migrations/*.sql", "engine/tokenise.sql", "engine/chunks.sql", "engine/neighbours.sql", "engine/write.sql")

Connection = psycopg.Connection[Any]


@contextmanager
def cluster(directory: Path, console: Console, settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """Start the Postgres of a directory; a second run waits for the first, whose server it would end otherwise."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"Another run uses {directory}: waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        postgres = Postgres(directory, durable=False, settings=settings)
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop()


def storing_hash() -> str:
    """Changes when items would be stored in another way."""
    digest = hashlib.sha256()
    for pattern in STORING:
        for path in sorted(SQL.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def database(postgres: Postgres, name: str) -> str:
    """URL of a database with the engine as it is now; made where it is missing. Its name is a stem and a hash."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        _drop_older(connection, name)
        if connection.execute("select from pg_database where datname = %s", (name,)).fetchone() is None:
            connection.execute(f"create database {name} template template1".encode())
    url = postgres.url(database=name)
    with psycopg.connect(postgres.url("supabase_admin", name), autocommit=True) as connection:
        connection.execute("create schema if not exists extensions authorization postgres")
        connection.execute("create extension if not exists vector schema extensions")
    migrate(url, directory=SQL)
    return url


def _drop_older(connection: Connection, name: str) -> None:
    """Keep one before this one of the same stem: while the engine changes, every change leaves a database behind."""
    stem = name.rpartition("_")[0]
    rows = connection.execute(
        "select datname from pg_database where datname ~ %s and datname <> %s order by oid desc offset 1",
        (f"^{stem}_[0-9a-f]+$", name),
    ).fetchall()
    for (old,) in rows:
        connection.execute(f"drop database {old}".encode())
