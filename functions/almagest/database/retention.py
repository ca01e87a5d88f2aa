"""What ends by itself, step by step over a plain connection: months of traces, and idempotency keys."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import psycopg

TABLES = ("retrievals", "activations")


@dataclass(frozen=True)
class Step:
    """One thing to do for a month of a table: unfence, add, move, detach or drop; see `engine.retention_plan`."""

    step: str
    table: str
    month: date | None


class Busy(Exception):
    """Somebody holds a lock that the step needs; nobody was made to wait for it, and nothing was done."""


class Retention:
    """Calls of the engine's retention functions; each is a transaction of its own.

    Parameters
    ----------
    connection
        In autocommit mode.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def plan(self, at: datetime) -> list[Step]:
        """What is to be done at a moment, in order."""
        rows = self._connection.execute("select step, parent, month from engine.retention_plan(%s)", (at,)).fetchall()
        return [Step(*row) for row in rows]

    def take(self, step: Step) -> bool:
        """Do one step; False when another run has done it.

        Raises
        ------
        Busy
            When another run is at work, or its lock is not free.
        """
        return bool(self._value("select engine.retain(%s, %s, %s)", step.step, step.table, step.month))

    def raise_fence(self, table: str, month: date) -> bool:
        """Prove that nothing of a month or later lies in a large rest; whether there is a fence to take down now."""
        if not self._value("select engine.raise_fence(%s, %s)", table, month):
            return False
        self._value("select engine.prove_fence(%s)", table)
        return True

    def expire_traces(self, table: str, at: datetime, batch: int) -> int:
        """Delete up to `batch` expired rows of a table that no partition takes with it; how many."""
        return int(self._value("select engine.expire_traces(%s, %s, %s)", table, at, batch))

    def expire_idempotency_keys(self, at: datetime, batch: int) -> int:
        """Delete up to `batch` expired idempotency keys; how many."""
        return int(self._value("select engine.expire_idempotency_keys(%s, %s)", at, batch))

    def expire_hub_entries(self, before: datetime, batch: int) -> int:
        """Delete up to `batch` entries of the Hub that were closed before a moment; how many."""
        return int(self._value("select engine.expire_hub_entries(%s, %s)", before, batch))

    def settings(self) -> list[dict[str, Any]]:
        """The days of the installation (`org` null) and of each org that has its own."""
        rows = self._connection.execute(
            "select o.slug, r.trace_days, r.idempotency_days from almagest.retention as r"
            " left join almagest.orgs as o on o.id = r.org_id where o.is_system is not true order by o.slug nulls first"
        ).fetchall()
        return [dict(zip(("org", "trace_days", "idempotency_days"), row, strict=True)) for row in rows]

    def set_days(self, org: str | None, trace_days: int | None, idempotency_days: int | None) -> bool:
        """Say how long an org, or with None the installation, keeps things; False when there is no such org.

        What is None stays as it is.
        """
        made = self._connection.execute(
            "insert into almagest.retention as r (org_id, trace_days, idempotency_days)"
            " select o.id, %(traces)s, %(keys)s from (select null::uuid as id, null as slug"
            "  union all select id, slug from almagest.orgs where not is_system) as o"
            " where o.slug is not distinct from %(org)s"
            " on conflict (org_id) do update set trace_days = coalesce(excluded.trace_days, r.trace_days),"
            "  idempotency_days = coalesce(excluded.idempotency_days, r.idempotency_days), updated_at = now()"
            " returning 1",
            {"org": org, "traces": trace_days, "keys": idempotency_days},
        ).fetchall()
        return bool(made)

    def forget_days(self, org: str) -> bool:
        """Let an org keep things for as long as the installation does; False when there is no such org."""
        found = self._connection.execute(
            "with org as (select id from almagest.orgs where slug = %s and not is_system),"
            " gone as (delete from almagest.retention where org_id in (select id from org))"
            " select id from org",
            (org,),
        ).fetchall()
        return bool(found)

    def partitions(self) -> list[dict[str, Any]]:
        """Each partition of the traces with its bounds, its rows as last estimated, and its bytes."""
        rows = self._connection.execute(
            "select c.relname, pg_get_expr(c.relpartbound, c.oid), greatest(c.reltuples, 0)::bigint,"
            " pg_total_relation_size(c.oid) from pg_inherits as h join pg_class as c on c.oid = h.inhrelid"
            " where h.inhparent = any(array['almagest.retrievals', 'almagest.activations']::regclass[])"
            " order by h.inhparent, c.relname"
        ).fetchall()
        return [dict(zip(("partition", "bounds", "rows", "bytes"), row, strict=True)) for row in rows]

    def _value(self, statement: str, *parameters: object) -> Any:
        try:
            row = self._connection.execute(statement.encode(), parameters).fetchone()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            raise Busy from error
        except psycopg.errors.CheckViolation as error:
            # A row of the month came into the rest between the plan and the step.
            raise Busy from error
        assert row is not None  # noqa: S101 - one row a call
        return row[0]
