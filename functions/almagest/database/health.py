"""What the health checks ask of Postgres, and where their results are kept."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from almagest.database.limited import Limited
from almagest.database.portable import STAYS, TABLES
from almagest.database.session import milliseconds

# Every table of the schema; a test compares them with the migrations.
EXPECTED_TABLES = sorted([table.name for table in TABLES] + list(STAYS))

# No check takes as long: what it wrote is nobody's any more.
LEFT_OVER = timedelta(minutes=10)
# How long the planting of a set, or those who look at it, are waited for.
LOCK_SECONDS = 20.0


class Health(Limited):
    """Calls of the engine's health functions.

    Parameters
    ----------
    connection
        In autocommit mode, of the role that scheduled work has.
    """

    def count_tables(self) -> int:
        """How many tables there are."""
        return int(self._value("select engine.count_tables()"))

    def table_faults(self) -> list[tuple[str, str]]:
        """Tables that are missing, unreadable, unwritable or unforced: name and fault."""
        return self._rows("select name, fault from engine.table_faults(%s)", EXPECTED_TABLES)

    def access_faults(self) -> list[tuple[str, str]]:
        """Rights, policies and constraints that are not as they have to be: name and fault."""
        return self._rows("select name, fault from engine.access_faults()")

    def open_doors(self) -> list[tuple[str, str]]:
        """What those may reach who may reach nothing: role and name."""
        return self._rows("select role, name from engine.open_doors()")

    def count_orphans(self, kind: str, model: str | None) -> int | None:
        """How many orphans of a kind there are; None where that depends on the model in force, and it is not known.

        Raises
        ------
        psycopg.errors.QueryCanceled
            When counting takes longer than the connection allows.
        """
        counted = self._value("select engine.count_orphans(%s, %s)", kind, model)
        return None if counted is None else int(counted)

    def sample_vectors(self, model: str, most: int) -> list[tuple[UUID, str | None, str | None, str, list[float]]]:
        """Up to so many chunks by chance: item, its title, headings, text, and the vector of a model."""
        return self._rows(
            "select item_id, title, heading_path, body, vector from engine.sample_vectors(%s, %s)", model, most
        )

    def index_faults(self) -> list[tuple[str, str, str | None]]:
        """Indexes that are not as they should be: name, fault (see `engine.index_faults`) and definition."""
        return self._rows("select name, fault, definition from engine.index_faults()")

    def backlog(self) -> tuple[int, float]:
        """How many items wait to be indexed, and since how many seconds the oldest does."""
        [(items, seconds)] = self._rows("select items, seconds from engine.backlog()")
        return int(items), float(seconds)

    def last_successes(self, jobs: Sequence[str]) -> dict[str, datetime | None]:
        """When each of some jobs last succeeded; None where it never has."""
        return dict(self._rows("select job, succeeded_at from engine.last_successes(%s)", list(jobs)))

    def installed_at(self) -> datetime:
        """Since when scheduled runs are kept here."""
        since: datetime = self._value("select engine.installed_at()")
        return since

    def partitions_missing(self, at: datetime) -> list[str]:
        """Partitions of the month after a moment's that are not there."""
        return [name for (name,) in self._rows("select name from engine.partitions_missing(%s)", at)]

    def system_caller(self) -> dict[str, str]:
        """Who acts in the health checks' own org, as the API takes a caller."""
        caller: dict[str, str] = self._value("select engine.system_caller()")
        return caller

    def planted(self, set_name: str) -> dict[str, Any] | None:
        """What was noted when a set of items was planted."""
        noted: dict[str, Any] | None = self._value("select engine.planted(%s)", set_name)
        return noted

    def note_planted(self, set_name: str, planted: dict[str, Any]) -> None:
        """Note what was planted."""
        self._rows("select engine.note_planted(%s, %s)", set_name, Jsonb(planted))

    def system_items(self, prefix: str) -> dict[str, UUID]:
        """Items of the system's org that are active and found by meaning, by their `source_ref`."""
        return dict(
            self._rows(
                "select source_ref, id from engine.system_items(%s) where state = 'active'"
                " and index_status = 'search_ready'",
                prefix,
            )
        )

    def system_states(self, prefix: str) -> dict[str, tuple[str, str]]:
        """State and index status of items of the system's org, by their `source_ref`."""
        found = self._rows("select source_ref, state, index_status from engine.system_items(%s)", prefix)
        return {source_ref: (state, index_status) for source_ref, state, index_status in found}

    def clear_system_items(
        self, prefix: str, *, kept: str | None = None, item: UUID | None = None, since: timedelta = LEFT_OVER
    ) -> int:
        """Take items of the system's org out altogether; how many.

        Parameters
        ----------
        prefix, kept
            How the `source_ref` of those begins that go, and of those among them that stay.
        item
            One that goes too, whatever its `source_ref`, state and age.
        since
            How old those have to be: younger ones may be of a check that is on its way.
        """
        return int(self._value("select engine.clear_system_items(%s, %s, %s, %s)", prefix, kept, since, item))

    @contextmanager
    def planted_locked(self, set_name: str, *, alone: bool) -> Iterator[None]:
        """A transaction in which nobody else plants a set, or with `alone` even looks at it.

        Raises
        ------
        psycopg.errors.LockNotAvailable
            When others are at it for too long.
        """
        with self._connection.transaction():
            self._connection.execute("select set_config('lock_timeout', %s, true)", (milliseconds(LOCK_SECONDS),))
            self._rows("select engine.lock_planted(%s, %s)", set_name, alone)
            yield

    def residue(self, org: str, item: UUID, word: str) -> dict[str, int]:
        """In how many rows of which tables a word of an item still stands."""
        return dict(self._rows("select name, hits from engine.residue(%s, %s, %s)", org, item, word))

    def store_check(self, run: int, check: dict[str, Any]) -> None:
        """Keep what a check found in a run; once a run, the last one counts."""
        self._rows(
            "select engine.store_check(%s, jsonb_populate_record(null::almagest.health_checks, %s))",
            *(run, Jsonb(check)),
        )

    def store_run(self, run: int) -> str:
        """Keep the worst status of a health run's checks, and return it."""
        return str(self._value("select engine.store_health_run(%s)", run))

    def last_run(self) -> int | None:
        """The latest health run that was stored."""
        run: int | None = self._value(
            "select (select run_id from almagest.health_runs order by checked_at desc, run_id desc limit 1)"
        )
        return run

    def last_run_of(self, job: str) -> int | None:
        """The latest run of a job that was not skipped: it may be what keeps the others away."""
        run: int | None = self._value(
            "select max(id) from almagest.job_runs where job = %s and state <> 'skipped'", job
        )
        return run

    def run(self, run: int) -> tuple[datetime, str]:
        """When a health run was made, and its worst status."""
        [found] = self._rows("select checked_at, status from almagest.health_runs where run_id = %s", run)
        return found[0], found[1]

    def checks(self, run: int) -> list[dict[str, Any]]:
        """What the checks of a run found, in the order in which they were made."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(
                "select name, status, measured, threshold, unit, sentence, figures, duration_ms, checked_at"
                " from almagest.health_checks where run_id = %s order by checked_at, name",
                (run,),
            ).fetchall()

    def latest_checks(self) -> list[dict[str, Any]]:
        """What each check found last, and in which `run`, as `dashboard.latest_health` shows it."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(
                "select c.name, c.status, c.measured, c.threshold, c.unit, c.sentence, c.figures, c.duration_ms,"
                " c.checked_at, c.run_id as run from dashboard.latest_health as l"
                " join almagest.health_checks as c on c.run_id = l.run_id and c.name = l.check_name"
                " order by c.checked_at, c.name"
            ).fetchall()

    def open_hub_entry(self, key: str, severity: str, told: dict[str, Any], *, tried: bool = True) -> None:
        """Tell the owners and admins of every org; one open entry a key, which counts what was tried."""
        self._rows(
            "select engine.open_hub_entry(null, null, 'health', %s, %s, %s, %s, %s, %s, %s, %s)",
            *(key, severity, told["title"], told["found"], Jsonb(told["tried"]), told["to_do"]),
            *(Jsonb(told["figures"]), tried),
        )

    def close_hub_entry(self, key: str) -> bool:
        """Close an entry; whether it was open."""
        return bool(self._value("select engine.close_hub_entry(null, null, %s)", key))

    def speaks(self, run: int) -> bool:
        """Whether what a run finds speaks for this installation, or only for the machine that it is made on."""
        return bool(self._value("select engine.speaks(%s)", run))

    def open_hub_entries(self) -> int:
        """How many entries of the Hub are open."""
        return int(self._value("select count(*) from almagest.hub_feed where closed_at is null"))
