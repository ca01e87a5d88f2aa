"""The queue of items that wait to be indexed: leases that end by themselves, over a plain connection."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb


class Disconnected(Exception):
    """The database went away."""


@dataclass(frozen=True)
class Leased:
    """An item that this worker alone indexes until its lease ends."""

    id: UUID
    org: UUID
    version: int
    title: str | None
    content: str


class Queue:
    """Calls of the engine's lease functions; each is a transaction of its own.

    Parameters
    ----------
    connection
        In autocommit mode.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def lease(self, worker: str, batch: int, seconds: int) -> list[Leased]:
        """Take up to `batch` outstanding items for so many seconds."""
        rows = self._rows(
            "select item_id, org_id, version, title, content from engine.lease_items(%s, %s, %s)",
            (worker, batch, seconds),
        )
        return [Leased(*row) for row in rows]

    def renew(self, worker: str, item: UUID, seconds: int) -> bool:
        """Keep an item for so many seconds more; False when it is no longer this worker's."""
        return bool(self._rows("select engine.renew_lease(%s, %s, %s)", (worker, item, seconds))[0][0])

    def complete(self, worker: str, item: Leased, chunks: Sequence[dict[str, Any]], model: str) -> str:
        """Put an item's chunks in place of its old ones: `search_ready`, or `stale` when it was edited meanwhile."""
        rows = self._rows(
            "select engine.index_item(%s, %s, %s, %s, %s)", (worker, item.id, item.version, Jsonb(chunks), model)
        )
        return str(rows[0][0])

    def fail(self, worker: str, item: Leased, reason: str) -> None:
        """Note why an item could not be indexed; it is tried again later."""
        self._rows("select engine.fail_item(%s, %s, %s, %s)", (worker, item.id, item.version, reason))

    def retokenise(self, before: int | None, batch: int) -> tuple[int, int | None]:
        """Make the terms of up to `batch` chunks again that an older tokeniser made, the newest first.

        Returns
        -------
        tuple
            How many were made, and the `before` of the next batch; None when no more are to be found.
        """
        made, following = self._rows("select made, next from engine.retokenise(%s, %s)", (before, batch))[0]
        return made, following

    def refresh_statistics(self) -> int:
        """Count what is too large to be counted by a search; how many partitions had changed."""
        return int(self._rows("select engine.refresh_statistics()", ())[0][0])

    def _rows(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with _noticing_disconnection(self._connection):
            return self._connection.execute(statement, parameters).fetchall()


@contextmanager
def _noticing_disconnection(connection: psycopg.Connection) -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if connection.broken or connection.closed:
            raise Disconnected(type(error).__name__) from error
        raise
