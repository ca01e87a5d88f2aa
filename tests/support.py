"""What tests of several kinds use and fixtures hand out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg

from infra.local.postgres import Postgres


@dataclass(frozen=True)
class Database:
    """One database of the test cluster.

    Attributes
    ----------
    cluster
        The Postgres that it is in.
    name
        Of the database.
    """

    cluster: Postgres
    name: str

    @property
    def url(self) -> str:
        """For the role that owns it: `postgres`, no superuser."""
        return self.url_of("postgres")

    def url_of(self, role: str) -> str:
        """For a role that can log in: `postgres`, `authenticator` or the superuser `supabase_admin`."""
        return self.cluster.url(role, self.name)

    @contextmanager
    def connect(self, role: str = "postgres", *, autocommit: bool = True) -> Iterator[psycopg.Connection[Any]]:
        """Connect as a role that can log in, or as one that the superuser becomes: `anon`, `service_role` and so on."""
        logs_in = role in ("postgres", "authenticator", "supabase_admin")
        url = self.url_of(role if logs_in else "supabase_admin")
        with psycopg.connect(url, autocommit=autocommit, prepare_threshold=None) as connection:
            if not logs_in:
                # Committed, so that a rollback of the test's own does not make it superuser again.
                connection.execute(f"set session authorization {role}")
                connection.commit()
            yield connection

    def rows(self, query: str, *parameters: object, role: str = "postgres") -> list[Any]:
        """Run one statement and return its rows; with one column, the values alone."""
        with self.connect(role) as connection:
            cursor = connection.execute(query.encode(), parameters or None)
            rows = cursor.fetchall() if cursor.description else []
        return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows

    def value(self, query: str, *parameters: object, role: str = "postgres") -> Any:
        """Run one statement and return the only value of its only row."""
        [value] = self.rows(query, *parameters, role=role)
        return value


@contextmanager
def clone(cluster: Postgres, template: str, prefix: str = "test") -> Iterator[Database]:
    """Copy a database that nobody is connected to; the copy is dropped at the end."""
    name = f"{prefix}_{uuid4().hex[:12]}"
    # From template1: a template must have no connection, not even this one.
    admin = cluster.url(database="template1")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy".encode())
    try:
        yield Database(cluster, name)
    finally:
        # By the superuser: nobody else may end a superuser's connection, such as autovacuum's, that is just closing.
        with psycopg.connect(cluster.url("supabase_admin", "template1"), autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)".encode())
