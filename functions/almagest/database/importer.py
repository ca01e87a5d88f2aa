"""JSON Lines of an export -> an org: streamed, all or nothing, and with the number of a line that is wrong."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import psycopg
from psycopg import sql

from almagest.database.exporter import member_of
from almagest.database.frame import Header, Places, check_end, header_of, shown, wrong
from almagest.database.limits import Limits
from almagest.database.portable import SCOPE, TABLES, Table, left_out
from almagest.problems import Problem

# What one statement stores at the most; lines of items are up to some megabytes long.
BATCH_ROWS = 200
BATCH_BYTES = 4_000_000
MAX_LINE = 64_000_000

MAX_DIGITS = 300

_UNIQUE_VIOLATION = "23505"
_RANK = {table.name: rank for rank, table in enumerate(TABLES)}
_ANALYZED = ("items", "item_tags", "chunks", "lexical", "embeddings", "strength_signals")

# What a person's rows refer to by an id, and the kind of place that it is.
_REFERENCES = {
    "project_id": "projects",
    "client_id": "clients",
    "deal_id": "deals",
    "folder_id": "folders",
    "agent_id": "agents",
    "author_agent_id": "agents",
    "agent_ids": "agents",
}
_PLACES = {
    "projects": "select id::text from almagest.projects where org_id = %(org)s and slug = %(name)s",
    "clients": "select id::text from almagest.clients where org_id = %(org)s and slug = %(name)s",
    "deals": "select id::text from almagest.deals where org_id = %(org)s and slug = %(name)s",
    "agents": "select id::text from almagest.agents where org_id = %(org)s and slug = %(name)s",
}
_COLUMNS = (
    "select attname, format_type(atttypid, null) from pg_attribute"
    " where attrelid = %s::regclass and attnum > 0 and not attisdropped"
)
_FOLDER = (
    "select id::text from almagest.folders"
    " where org_id = %(org)s and name = %(name)s and parent_id is not distinct from %(parent)s::uuid"
)
_UNKNOWN_TYPES = (
    "select distinct i.type from almagest.items as i where i.org_id = %(org)s"
    " and not exists (select from engine.item_types(%(org)s) as t where t.name = i.type) order by 1 limit 1"
)

Report = Callable[[str, int], None]


@dataclass
class _Batch:
    """Lines of one table with the same columns: their numbers and their rows, as they stand in the file."""

    table: str
    columns: tuple[str, ...]
    numbers: list[int] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    value: dict[str, Any]


def import_(
    connection: psycopg.Connection,
    lines: IO[bytes],
    org: str | None = None,
    user: str | None = None,
    *,
    report: Report = lambda table, rows: None,
) -> dict[str, int]:
    """Store an export in one transaction.

    Parameters
    ----------
    connection
        Not in autocommit mode, and with no transaction open.
    lines
        The export, from its beginning.
    org, user
        Where a person's own items go: the slug of an org that is there, and a member's e-mail address or id. The export
        of an org makes the org that it names, and takes neither.
    report
        Receives the table and how many of its rows are stored, now and then.

    Returns
    -------
    dict
        How many rows of each table were stored.

    Raises
    ------
    Problem
        422 `invalid_line` with the line's number, `invalid_export`, `schema_mismatch`, `unknown_place`; 409
        `org_exists`. Then nothing is stored, and nothing of what was sent is in the server's log.
    """
    reader = _read(lines)
    first = next(reader, None)
    header = header_of(first.value if first else None)
    with connection.transaction():
        connection.execute("set local statement_timeout = 0")
        connection.execute("set local timezone = 'UTC'")
        _check_schema(connection, header)
        importer = _importer(connection, header, first.text if first else "", org, user)
        counts = importer.run(reader, report)
    connection.autocommit = True
    for table in _ANALYZED:
        connection.execute(sql.SQL("analyze almagest.{}").format(sql.Identifier(table)))
    return counts


def _importer(
    connection: psycopg.Connection, header: Header, text: str, org: str | None, user: str | None
) -> "_Importer":
    if header.user is None:
        if org or user:
            raise Problem(422, "invalid_request", "An org's export makes its own org: leave --org and --user out.")
        return _Importer(connection, _make_org(connection, text, header.org.slug), None, {})
    if not org:
        raise Problem(422, "invalid_request", "This is one person's export: say with --org which org it goes into.")
    row = connection.execute("select id::text from almagest.orgs where slug = %s and not is_system", (org,)).fetchone()
    if row is None:
        raise Problem(404, "unknown_org", f"There is no org {org!r}.")
    member = member_of(connection, row[0], user or header.user.email or "")
    return _Importer(connection, row[0], member["user_id"], _places(connection, row[0], header.places))


class _Importer:
    """Stores rows of one org, or of one person in it."""

    def __init__(
        self, connection: psycopg.Connection, org: str, user: str | None, places: dict[str, dict[str, str]]
    ) -> None:
        self._connection = connection
        self._org = org
        self._user = user
        self._places = places
        self._sources = {table.name: _sources(connection, table, personal=user is not None) for table in TABLES}
        self._limits = {table: Limits(table, columns.of_lines) for table, columns in self._sources.items()}
        self._folders: set[str] = set()

    def run(self, lines: Iterator[_Line], report: Report) -> dict[str, int]:
        counts: dict[str, int] = {}
        batch: _Batch | None = None
        for line in lines:
            if line.value.get("end") is True:
                self._finish(batch, counts, report)
                check_end(line.number, line.value, counts)
                if (after := next(lines, None)) is not None:
                    raise wrong(after.number, "comes after the end")
                self._check_types()
                return counts
            table, columns = self._check(line, batch)
            counts.setdefault(table, 0)
            is_full = batch is not None and (len(batch.rows) >= BATCH_ROWS or batch.size >= BATCH_BYTES)
            if batch is None or is_full or (batch.table, batch.columns) != (table, columns):
                self._finish(batch, counts, report)
                batch = _Batch(table, columns)
            batch.numbers.append(line.number)
            batch.rows.append(line.text)
            batch.size += len(line.text)
        raise Problem(422, "invalid_export", "The file ends before its last line: it was cut off.")

    def _check(self, line: _Line, batch: _Batch | None) -> tuple[str, tuple[str, ...]]:
        table, row = line.value.get("table"), line.value.get("row")
        if not isinstance(table, str) or table not in _RANK or not isinstance(row, dict):
            raise wrong(line.number, "is no row of a table that an export holds")
        if self._user is not None and TABLES[_RANK[table]].personal is None:
            raise wrong(line.number, f"{table} belong to an org, not to a person")
        if batch is not None and _RANK[table] < _RANK[batch.table]:
            raise wrong(line.number, f"{table} come before {batch.table}")
        if unknown := sorted(row.keys() - self._sources[table].of_lines.keys()):
            raise wrong(line.number, f"{table} have no {unknown[0]!r} that could be imported")
        if complaint := self._limits[table].complaint(row):
            raise wrong(line.number, complaint)
        if table == "folders":
            self._check_folder(line.number, row)
        if self._user is not None:
            self._check_places(line.number, row)
        return table, tuple(sorted(row))

    def _check_folder(self, number: int, row: dict[str, Any]) -> None:
        """A folder comes after the one that it lies in; so none lies in itself, by whatever way."""
        if (parent := row.get("parent_id")) is not None and parent.lower() not in self._folders:
            raise wrong(number, "lies in a folder that does not come before it")
        self._folders.add(str(row.get("id")).lower())

    def _check_places(self, number: int, row: dict[str, Any]) -> None:
        """What a person's row refers to is among the places that the header names: these alone have an id here."""
        for column, kind in _REFERENCES.items():
            given = row.get(column)
            for id_ in given if isinstance(given, list) else [given]:
                if id_ is not None and id_ not in self._places.get(kind, {}):
                    raise wrong(number, f"{column} is of one of the {kind} that the header does not name")

    def _finish(self, batch: _Batch | None, counts: dict[str, int], report: Report) -> None:
        if batch is None:
            return
        if refused := self._store(batch, batch.rows):
            # one by one, to tell which is wrong
            for number, row in zip(batch.numbers, batch.rows, strict=True):
                if reason := self._store(batch, [row]):
                    raise wrong(number, reason)
            raise wrong(batch.numbers[0], f"or one of the {len(batch.rows)} from it on: {refused}")
        counts[batch.table] += len(batch.rows)
        report(batch.table, counts[batch.table])

    def _store(self, batch: _Batch, lines: list[str]) -> str | None:
        """Store lines; why Postgres would not, or None."""
        sources = self._sources[batch.table]
        answer = self._connection.execute(
            "select engine.import_rows(%(org)s, %(person)s, %(target)s, %(sources)s, %(places)s, %(lines)s)",
            {
                "org": self._org,
                "person": self._user,
                "target": batch.table,
                "sources": json.dumps(dict.fromkeys(batch.columns, "line") | sources.of_import),
                "places": json.dumps(self._places),
                # as text, and not as JSON: what Postgres cannot read as that would be in its log
                "lines": f"[{','.join(lines)}]",
            },
        ).fetchone()
        refused = answer[0] if answer else None
        return _reason(refused) if refused else None

    def _check_types(self) -> None:
        row = self._connection.execute(_UNKNOWN_TYPES.encode(), {"org": self._org}).fetchone()
        if row is not None:
            raise Problem(422, "unknown_place", shown(f"The org has no item type {row[0]!r}: make it first."))


def _read(lines: IO[bytes]) -> Iterator[_Line]:
    number = 0
    while raw := lines.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE:
            raise wrong(number, f"is longer than {MAX_LINE:,} bytes")
        try:
            text = raw.decode()
            # Numbers are looked at, and not computed with: the text goes on as it is.
            value = json.loads(text, parse_int=_whole, parse_constant=_no_constant)
        except ValueError:
            raise wrong(number, "is not JSON in UTF-8") from None
        except RecursionError:
            raise wrong(number, "is nested too deep") from None
        if not isinstance(value, dict):
            raise wrong(number, "is no JSON object")
        yield _Line(number, text, value)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _whole(digits: str) -> int | float:
    """A whole number; one of too many digits for Python to read in good time is none that a row could have."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _check_schema(connection: psycopg.Connection, header: Header) -> None:
    [(here,)] = connection.execute("select max(version) from almagest.migrations").fetchall()
    if header.schema_ > here:
        detail = (
            f"The export has schema {header.schema_}, this database {here}:"
            " run `almagest migrate` of a newer version first."
        )
        raise Problem(422, "schema_mismatch", detail)


def _make_org(connection: psycopg.Connection, header: str, slug: str) -> str:
    [(reserved,)] = connection.execute("select engine.system_slug()").fetchall()
    if slug == reserved:
        raise Problem(409, "slug_reserved", f"The slug {reserved!r} is kept for the system itself.")
    [(answer,)] = connection.execute("select engine.import_org(%s)", (header,)).fetchall()
    if "code" in answer:
        raise wrong(1, _reason(answer))
    if answer["id"] is None:
        raise Problem(409, "org_exists", f"There is an org {slug!r} here already, or one with its id.")
    return str(answer["id"])


def _places(connection: psycopg.Connection, org: str, named: Places) -> dict[str, dict[str, str]]:
    """The id that each place of the export has here: a place of the same name."""
    found: dict[str, dict[str, str]] = {}
    for kind, names in named.by_kind().items():
        found[kind] = {}
        for id_, name in names.items():
            here = _folder(connection, org, name) if isinstance(name, list) else _place(connection, org, kind, name)
            if here is None:
                path = " / ".join(name) if isinstance(name, list) else name
                what = shown(f"{kind.removesuffix('s')} {path!r}")
                detail = f"The org has no {what}, where items of the export belong: make it first."
                raise Problem(422, "unknown_place", detail)
            found[kind][id_] = here
    return found


def _place(connection: psycopg.Connection, org: str, kind: str, name: str) -> str | None:
    row = connection.execute(_PLACES[kind].encode(), {"org": org, "name": name}).fetchone()
    return str(row[0]) if row else None


def _folder(connection: psycopg.Connection, org: str, path: list[str]) -> str | None:
    parent: str | None = None
    for name in path:
        row = connection.execute(_FOLDER.encode(), {"org": org, "name": name, "parent": parent}).fetchone()
        if row is None:
            return None
        parent = str(row[0])
    return parent


@dataclass(frozen=True)
class _Sources:
    """Where the columns of a table get their values.

    Attributes
    ----------
    of_lines
        Type of each column that a line may name.
    of_import
        What each other one is set to here, and never from a line: the `org`, the `person`, or as the row's `item` has
        it.
    """

    of_lines: dict[str, str]
    of_import: dict[str, str]


def _sources(connection: psycopg.Connection, table: Table, *, personal: bool) -> _Sources:
    types: dict[str, str] = dict(connection.execute(_COLUMNS.encode(), (f"almagest.{table.name}",)).fetchall())
    outside = left_out(table, personal=personal)
    of_lines = {column: type_ for column, type_ in types.items() if column not in outside}
    if table.name == "chunks":
        of_lines["vectors"] = "jsonb"
    of_import = {"org_id": "org"}
    if table.of_item:
        of_import |= dict.fromkeys(sorted(types.keys() & SCOPE), "item")
    elif personal:
        of_import |= dict.fromkeys(sorted(outside & {"user_id", "author_user_id"}), "person")
    return _Sources(of_lines, of_import)


def _reason(refused: dict[str, str]) -> str:
    """Why Postgres would not store a row, as the end of a sentence."""
    return "is in this database already" if refused["code"] == _UNIQUE_VIOLATION else refused["message"].rstrip(".")
