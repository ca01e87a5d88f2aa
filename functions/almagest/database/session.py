"""The door of migrations and scheduled work: a plain connection."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from almagest.problems import Problem
from almagest.schema import demand_fit, mismatch
from almagest.settings import Settings


def connect(settings: Settings, *, autocommit: bool = False) -> psycopg.Connection:
    """Open a connection that also works through a transaction pooler.

    Raises
    ------
    Problem
        503 `misconfigured` when the settings name no database, or none that can be read.
    psycopg.OperationalError
        When the database cannot be reached.
    """
    if not settings.database_url:
        raise Problem(503, "misconfigured", "DATABASE_URL is not set.")
    try:
        return psycopg.connect(
            settings.database_url.get_secret_value(),
            autocommit=autocommit,
            prepare_threshold=None,  # a transaction pooler gives each transaction another server, without statements
            connect_timeout=10,
            # a database that is gone without a word is noticed in half a minute, not at the end of the function's time
            keepalives_idle=15,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=20_000,
            application_name="almagest",
        )
    except psycopg.ProgrammingError:
        # Its message repeats parts of the URL, the password among them.
        raise Problem(503, "misconfigured", "DATABASE_URL is not a usable URL.") from None


@contextmanager
def limited(connection: psycopg.Connection, seconds: float | None) -> Iterator[None]:
    """One transaction, whose statements are ended when one takes longer; None: no limit, and no transaction either.

    The limit ends with the transaction, so that a transaction pooler hands it on to nobody.
    """
    if seconds is None:
        yield
        return
    with connection.transaction():
        connection.execute("select set_config('statement_timeout', %s, true)", (milliseconds(seconds),))
        yield


def milliseconds(seconds: float) -> str:
    """As a statement_timeout takes it, where 0 would be none."""
    return str(max(1, int(seconds * 1000)))


def demand_schema(connection: psycopg.Connection) -> None:
    """See that this code fits the database, as scheduled work does before it begins.

    Raises
    ------
    Problem
        503 `schema_mismatch`; what to do about it is in the log.
    """
    try:
        row = connection.execute("select api.get_schema(null, '{}')").fetchone()
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName):
        raise mismatch("the database has no function api.get_schema: run `almagest migrate`") from None
    assert row is not None  # noqa: S101 - a call returns one row
    demand_fit(row[0]["version"], row[0]["serves_since"])
