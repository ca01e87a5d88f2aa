"""JSON Lines of an export -> an org: streamed, all or nothing, and with the number of a line that is wrong."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import psycopg
from psycopg import sql

from almagest.database.exporter import member_of
from almagest.database.portable import FORMAT, SCOPE, TABLES, Table, left_out
from almagest.problems import Problem

# What one statement stores at the most; lines of items are up to some megabytes long.
BATCH_ROWS = 200
BATCH_BYTES = 4_000_000
MAX_LINE = 64_000_000

_RANK = {table.name: rank for rank, table in enumerate(TABLES)}
_ANALYZED = ("items", "item_tags", "chunks", "lexical", "embeddings", "strength_signals")

# References of a person's rows to what their org has, as the other org names the same.
_TRANSLATED = """
select jsonb_agg(r.value || jsonb_strip_nulls(jsonb_build_object(
    'project_id', m.map -> 'projects' -> (r.value ->> 'project_id'),
    'client_id', m.map -> 'clients' -> (r.value ->> 'client_id'),
    'deal_id', m.map -> 'deals' -> (r.value ->> 'deal_id'),
    'folder_id', m.map -> 'folders' -> (r.value ->> 'folder_id'),
    'agent_id', m.map -> 'agents' -> (r.value ->> 'agent_id'),
    'author_agent_id', m.map -> 'agents' -> (r.value ->> 'author_agent_id'),
    'agent_ids', (select jsonb_agg(m.map -> 'agents' -> a.id order by a.place)
        from jsonb_array_elements_text(nullif(r.value -> 'agent_ids', 'null')) with ordinality as a (id, place))
)) order by r.place)
from jsonb_array_elements(%(rows)s::jsonb) with ordinality as r (value, place), (select %(map)s::jsonb as map) as m
"""
_PLACES = {
    "projects": "select id::text from almagest.projects where org_id = %(org)s and slug = %(name)s",
    "clients": "select id::text from almagest.clients where org_id = %(org)s and slug = %(name)s",
    "deals": "select id::text from almagest.deals where org_id = %(org)s and slug = %(name)s",
    "agents": "select id::text from almagest.agents where org_id = %(org)s and slug = %(name)s",
}
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
        `org_exists`. Then nothing is stored.
    """
    reader = _read(lines)
    first = next(reader, None)
    header = _header(first)
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
    connection: psycopg.Connection, header: dict[str, Any], text: str, org: str | None, user: str | None
) -> "_Importer":
    if header["user"] is None:
        if org or user:
            raise Problem(422, "invalid_request", "An org's export makes its own org: leave --org and --user out.")
        return _Importer(connection, _make_org(connection, text, header["org"]), None, {})
    if not org:
        raise Problem(422, "invalid_request", "This is one person's export: say with --org which org it goes into.")
    row = connection.execute("select id::text from almagest.orgs where slug = %s and not is_system", (org,)).fetchone()
    if row is None:
        raise Problem(404, "unknown_org", f"There is no org {org!r}.")
    member = member_of(connection, row[0], user or header["user"]["email"] or "")
    return _Importer(connection, row[0], member["user_id"], _places(connection, row[0], header.get("places") or {}))


class _Importer:
    """Stores rows of one org, or of one person in it."""

    def __init__(
        self, connection: psycopg.Connection, org: str, user: str | None, places: dict[str, dict[str, str | None]]
    ) -> None:
        self._connection = connection
        self._org = org
        self._user = user
        self._places = places
        self._columns = {table.name: _columns(connection, table, personal=user is not None) for table in TABLES}

    def run(self, lines: Iterator[_Line], report: Report) -> dict[str, int]:
        counts: dict[str, int] = {}
        batch: _Batch | None = None
        for line in lines:
            if line.value.get("end") is True:
                self._finish(batch, counts, report)
                _check_end(line, counts, lines)
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
            raise _wrong(line.number, "is no row of a table that an export holds")
        if self._user is not None and TABLES[_RANK[table]].personal is None:
            raise _wrong(line.number, f"{table} belong to an org, not to a person")
        if batch is not None and _RANK[table] < _RANK[batch.table]:
            raise _wrong(line.number, f"{table} come before {batch.table}")
        if unknown := sorted(row.keys() - self._columns[table]):
            raise _wrong(line.number, f"{table} have no {unknown[0]!r} that could be imported")
        return table, tuple(sorted(row))

    def _finish(self, batch: _Batch | None, counts: dict[str, int], report: Report) -> None:
        if batch is None:
            return
        try:
            with self._connection.transaction():
                self._store(batch, batch.rows)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException, _Foreign) as error:
            self._find_wrong_line(batch)
            raise _wrong(batch.numbers[0], f"or one of the {len(batch.rows)} from it on: {_reason(error)}") from error
        counts[batch.table] += len(batch.rows)
        report(batch.table, counts[batch.table])

    def _find_wrong_line(self, batch: _Batch) -> None:
        """Store the lines of a batch that failed one by one, to tell which is wrong."""
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            try:
                with self._connection.transaction():
                    self._store(batch, [row])
            except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException, _Foreign) as error:
                raise _wrong(number, _reason(error)) from error

    def _store(self, batch: _Batch, lines: list[str]) -> None:
        table = TABLES[_RANK[batch.table]]
        rows = self._translate(f"[{','.join(lines)}]", batch.columns)
        if table.of_item or table.name == "pins":
            self._demand_own_items(rows)
        if table.name == "facts":
            self._demand_own_successors(rows)
        if table.name == "chunks":
            self._connection.execute("select engine.import_chunks(%s, %s)", (self._org, rows))
        else:
            self._connection.execute(self._insert(table, batch.columns), self._given(rows))

    def _translate(self, lines: str, columns: tuple[str, ...]) -> str:
        """The rows of lines as JSON; a person's with the ids that this org has for the same places."""
        unwrapped = "select jsonb_agg(l.value -> 'row' order by l.place)::text"
        rows = self._text(
            f"{unwrapped} from jsonb_array_elements(%(rows)s::jsonb) with ordinality as l (value, place)",
            {"rows": lines},
        )
        if self._user is None or not {"agent_id", "agent_ids"} & set(columns):
            return rows
        return self._text(f"select ({_TRANSLATED})::text", {"rows": rows, "map": json.dumps(self._places)})

    def _demand_own_items(self, rows: str) -> None:
        """Every row is of an item that the org, or the person, has: else it could hang on another tenant's item."""
        self._demand(
            "not exists (select from almagest.items as i where i.id = (r.value ->> 'item_id')::uuid"
            " and i.org_id = %(org)s and (%(user)s::uuid is null or i.user_id = %(user)s))",
            rows,
        )

    def _demand_own_successors(self, rows: str) -> None:
        self._demand(
            "r.value ->> 'superseded_by' is not null and not exists (select from almagest.items as i"
            " where i.id = (r.value ->> 'superseded_by')::uuid and i.org_id = %(org)s"
            " and (%(user)s::uuid is null or i.user_id = %(user)s))",
            rows,
        )

    def _demand(self, foreign: str, rows: str) -> None:
        # the condition is of names of this code's own, values are parameters
        statement = f"select exists (select from jsonb_array_elements(%(rows)s::jsonb) as r where {foreign})"  # noqa: S608
        [(found,)] = self._connection.execute(statement.encode(), self._given(rows)).fetchall()
        if found:
            raise _Foreign

    def _insert(self, table: Table, columns: tuple[str, ...]) -> sql.Composed:
        """An insert of rows with these columns; org, person and scope come from here, and never from a line."""
        given = [*columns]
        values = [sql.SQL("r.{}").format(sql.Identifier(column)) for column in columns]
        origin = sql.SQL("")
        set_here: dict[str, sql.Composable] = {"org_id": sql.SQL("%(org)s")}
        if self._user is not None and table.name in ("items", "pins", "audit_log"):
            set_here["user_id"] = sql.SQL("%(user)s")
        if self._user is not None and table.name == "items":
            set_here["author_user_id"] = sql.SQL("%(user)s")
        if table.of_item:
            own = _own_scope(self._connection, table)
            set_here |= {column: sql.SQL("i.{}").format(sql.Identifier(column)) for column in own}
            origin = sql.SQL(" join almagest.items as i on i.id = r.item_id")
        for column, value in set_here.items():
            given.append(column)
            values.append(sql.Composed([value]))
        return sql.SQL(
            "insert into {table} ({given}) select {values}"
            " from jsonb_populate_recordset(null::{table}, %(rows)s::jsonb) as r{origin}"
        ).format(
            table=sql.Identifier("almagest", table.name),
            given=sql.SQL(", ").join(map(sql.Identifier, given)),
            values=sql.SQL(", ").join(values),
            origin=origin,
        )

    def _check_types(self) -> None:
        row = self._connection.execute(_UNKNOWN_TYPES.encode(), {"org": self._org}).fetchone()
        if row is not None:
            raise Problem(422, "unknown_place", f"The org has no item type {row[0]!r}: make it first.")

    def _given(self, rows: str) -> dict[str, Any]:
        return {"org": self._org, "user": self._user, "rows": rows}

    def _text(self, statement: str, given: dict[str, Any]) -> str:
        row = self._connection.execute(statement.encode(), given).fetchone()
        assert row is not None  # noqa: S101 - an aggregate
        return str(row[0])


class _Foreign(Exception):
    """A row refers to an item that is not among those that this import may touch."""


def _read(lines: IO[bytes]) -> Iterator[_Line]:
    number = 0
    while raw := lines.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE:
            raise _wrong(number, f"is longer than {MAX_LINE:,} bytes")
        try:
            text = raw.decode()
            # Numbers are not computed with: the text goes on as it is.
            value = json.loads(text, parse_float=str, parse_int=str, parse_constant=_no_constant)
        except ValueError:
            raise _wrong(number, "is not JSON in UTF-8") from None
        except RecursionError:
            raise _wrong(number, "is nested too deep") from None
        if not isinstance(value, dict):
            raise _wrong(number, "is no JSON object")
        yield _Line(number, text, value)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _header(line: _Line | None) -> dict[str, Any]:
    header = line.value if line else {}
    if header.get("almagest") != "export" or not isinstance(header.get("org"), dict) or "user" not in header:
        raise Problem(422, "invalid_export", "The first line is not the header of an export.")
    if header.get("format") != str(FORMAT):
        raise Problem(
            422, "invalid_export", f"The export has format {header.get('format')}, this version reads {FORMAT}."
        )
    if header["user"] is not None and not isinstance(header["user"], dict):
        raise Problem(422, "invalid_export", "The first line is not the header of an export.")
    return header


def _check_schema(connection: psycopg.Connection, header: dict[str, Any]) -> None:
    [(here,)] = connection.execute("select max(version) from almagest.migrations").fetchall()
    made_by = str(header.get("schema"))
    if not made_by.isdigit() or int(made_by) > here:
        detail = (
            f"The export has schema {made_by}, this database {here}: run `almagest migrate` of a newer version first."
        )
        raise Problem(422, "schema_mismatch", detail)


def _make_org(connection: psycopg.Connection, header: str, about: dict[str, Any]) -> str:
    [(reserved,)] = connection.execute("select engine.system_slug()").fetchall()
    if about.get("slug") == reserved:
        raise Problem(409, "slug_reserved", f"The slug {reserved!r} is kept for the system itself.")
    made = None
    try:
        with connection.transaction():
            made = connection.execute(
                "insert into almagest.orgs (id, slug, name, settings, created_at)"
                " select id, slug, name, settings, created_at"
                " from jsonb_populate_record(null::almagest.orgs, %s::jsonb -> 'org')"
                " on conflict do nothing returning id::text",
                (header,),
            ).fetchone()
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise _wrong(1, _reason(error)) from error
    if made is None:
        raise Problem(409, "org_exists", f"There is an org {about.get('slug')!r} here already, or one with its id.")
    return str(made[0])


def _places(
    connection: psycopg.Connection, org: str, named: dict[str, dict[str, Any]]
) -> dict[str, dict[str, str | None]]:
    """The id that each place of the export has here: a place of the same name."""
    found: dict[str, dict[str, str | None]] = {}
    for kind, names in named.items():
        found[kind] = {}
        for id_, name in names.items():
            here = _folder(connection, org, name) if kind == "folders" else _place(connection, org, kind, name)
            if here is None:
                path = " / ".join(name) if isinstance(name, list) else name
                what = f"{kind.removesuffix('s')} {path!r}"
                detail = f"The org has no {what}, where items of the export belong: make it first."
                raise Problem(422, "unknown_place", detail)
            found[kind][id_] = here
    return found


def _place(connection: psycopg.Connection, org: str, kind: str, name: object) -> str | None:
    if kind not in _PLACES:
        raise Problem(422, "invalid_export", "The header names places of an unknown kind.")
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


def _columns(connection: psycopg.Connection, table: Table, *, personal: bool) -> set[str]:
    """Columns that a line of a table may name."""
    rows = connection.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
        (f"almagest.{table.name}",),
    ).fetchall()
    added = {"vectors"} if table.name == "chunks" else set()
    return {name for (name,) in rows} - left_out(table, personal=personal) | added


def _own_scope(connection: psycopg.Connection, table: Table) -> list[str]:
    rows = connection.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attname = any(%s) and not attisdropped",
        (f"almagest.{table.name}", list(SCOPE)),
    ).fetchall()
    return sorted(name for (name,) in rows)


def _check_end(line: _Line, counts: dict[str, int], lines: Iterator[_Line]) -> None:
    said = line.value.get("rows")
    told = {table: int(number) for table, number in said.items() if number != "0"} if isinstance(said, dict) else None
    if told != counts:
        raise Problem(
            422, "invalid_export", f"Line {line.number} counts other rows than the file has: lines are missing."
        )
    if next(lines, None) is not None:
        raise _wrong(line.number + 1, "comes after the end")


def _reason(error: Exception) -> str:
    if isinstance(error, _Foreign):
        return "belongs to an item that this import does not bring"
    if isinstance(error, psycopg.errors.UniqueViolation):
        return "is in this database already"
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return message or type(error).__name__


def _wrong(number: int, what: str) -> Problem:
    return Problem(422, "invalid_line", f"Line {number}: {what}.", line=number)
