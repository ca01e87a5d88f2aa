"""What remediation does in Postgres, and where it is kept what it did."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from almagest.database.limited import Limited
from almagest.database.session import milliseconds


class Remedy(Limited):
    """Calls of the engine's remediation functions; each mends up to so many, and is a transaction of its own.

    Parameters
    ----------
    connection
        In autocommit mode, of the role that migrates.
    """

    def claim(self, run: int, *, again: bool) -> int | None:
        """Take the latest unhealthy run that has not been tried, or with `again` that may have been; None for none."""
        claimed: int | None = self._value("select engine.claim_unhealthy(%s, %s)", run, again)
        return claimed

    def tries_in_vain(self, check: str, action: str, kinds: Sequence[str], run: int) -> int:
        """How often an action that had all of these kinds to mend was tried in vain since its check passed."""
        return int(self._value("select engine.tries_in_vain(%s, %s, %s, %s)", check, action, list(kinds), run))

    def tried(self, check: str) -> list[dict[str, Any]]:
        """What was tried for a check since it last passed: `what`, `when`, `outcome`, `before`, `after`."""
        tried: list[dict[str, Any]] = self._value("select engine.tried(%s)", check)
        return tried

    def record(self, done: dict[str, Any]) -> None:
        """Keep what one action did: the columns of `almagest.remediations`."""
        self._value(
            "select engine.record_remediation(jsonb_populate_record(null::almagest.remediations, %s))", Jsonb(done)
        )

    def mark_orphans(self, kind: str, model: str, most: int) -> list[UUID]:
        """Have items indexed anew whose chunks lack vectors of a model, or that lack chunks; which."""
        marked: list[UUID] = self._value("select engine.mark_orphans(%s, %s, %s)", kind, model, most)
        return marked

    def items_to_index_again(self) -> list[UUID]:
        """Items that were marked to be indexed anew, in whichever run, and that are not yet."""
        return [item for (item,) in self._rows("select item_id from engine.items_to_index_again()")]

    def count_waiting(self, items: Sequence[UUID]) -> int:
        """How many of some items are not indexed yet."""
        return int(self._value("select engine.count_waiting(%s)", list(items)))

    def mend_copies(self, most: int) -> int:
        """Copy scope and state of items to terms and vectors that differ from them; of how many items."""
        return int(self._value("select engine.mend_copies(%s)", most))

    def mark(self, items: Sequence[UUID]) -> list[UUID]:
        """Have items indexed anew, those that do not wait already; which."""
        marked: list[UUID] = self._value("select engine.mark_for_index(%s)", list(items))
        return marked

    def delete_superfluous_vectors(self, model: str, most: int) -> int:
        """Delete vectors of other models beside one of the model in force."""
        return int(self._value("select engine.delete_superfluous_vectors(%s, %s)", model, most))

    def delete_zero_vectors(self, most: int) -> int:
        """Delete vectors of zeros."""
        return int(self._value("select engine.delete_zero_vectors(%s)", most))

    def delete_chunks_without_item(self, most: int) -> int:
        """Delete chunks of no item."""
        return int(self._value("select engine.delete_chunks_without_item(%s)", most))

    def delete_rows_without_chunk(self, most: int) -> int:
        """Delete terms and vectors of no chunk."""
        return int(self._value("select engine.delete_rows_without_chunk(%s)", most))

    def release_leases(self) -> int:
        """Give back what workers hold that have been dead for ten minutes."""
        return int(self._value("select engine.release_leases(interval '10 minutes')"))

    def recount_drifted(self, most: int) -> int:
        """Count orgs again whose statistics are off."""
        return int(self._value("select engine.recount_drifted(%s)", most))

    def mend_index(self, name: str, fault: str, definition: str | None) -> None:
        """Make an index that is missing, or one that is invalid anew, while others go on writing; see `index_faults`.

        Raises
        ------
        psycopg.Error
            When it cannot be made, or not in the time that the connection allows.
        """
        index = sql.Identifier("almagest", name)
        if fault == "missing" and definition:
            self._make_index(name, definition)
        elif fault == "leftover":
            self._alone(sql.SQL("drop index concurrently if exists {}").format(index))
        elif fault == "invalid":
            self._alone(sql.SQL("reindex index concurrently {}").format(index))

    def drop_leftovers(self, name: str) -> None:
        """Drop what a `reindex` of an index that broke off has left beside it."""
        for (leftover,) in self._rows("select name from engine.leftovers_of(%s)", name):
            self.mend_index(leftover, "leftover", None)

    def duplicates_of(self, name: str, definition: str | None) -> int:
        """How many groups of duplicates are in the way of a unique index; 0 for one that is not."""
        return int(self._value("select engine.duplicates_of(%s, %s)", name, definition))

    def is_being_indexed(self, name: str, definition: str | None) -> bool:
        """Whether another session builds an index of the same table: it must not be disturbed."""
        return bool(self._value("select engine.is_being_indexed(engine.table_of_index(%s, %s))", name, definition))

    def _make_index(self, name: str, definition: str) -> None:
        made, _, rest = definition.partition(f" INDEX {name} ON ")
        if not rest.startswith("ONLY "):
            self._alone(f"{made} INDEX CONCURRENTLY IF NOT EXISTS {name} ON {rest}".encode())
            return
        # That of a partitioned table cannot be made concurrently: those of its partitions can, and are then taken over.
        table, _, how = rest.removeprefix("ONLY almagest.").partition(" ")
        for (partition,) in self._rows("select name from engine.partitions_of(%s)", table):
            own = f"{partition}_{name}"[:63]
            self._alone(f"{made} INDEX CONCURRENTLY IF NOT EXISTS {own} ON almagest.{partition} {how}".encode())
        self._alone(f"{made} INDEX IF NOT EXISTS {name} ON almagest.{table} {how}".encode())

    def _alone(self, statement: bytes | sql.Composed) -> None:
        """Run what may stand in no transaction; that its limit holds needs a session, as migrations do."""
        if self._seconds is not None:
            limit = milliseconds(self._seconds)
            self._connection.execute("select set_config('statement_timeout', %s, false)", (limit,))
        try:
            self._connection.execute(statement)
        finally:
            if not self._connection.closed:
                self._connection.execute("reset statement_timeout")
