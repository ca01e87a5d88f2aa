"""An org, or what is one person's own, as JSON Lines: one snapshot, streamed."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg

from almagest.database.portable import FORMAT, TABLES, Table, left_out
from almagest.problems import Problem

# Rows that are fetched at a time: an item has up to a million characters.
FETCH = 50

# A lease means nothing elsewhere, and what comes without its vectors waits for them.
_STATUS = """ || case
    when t.index_status = 'indexing' or (t.index_status = 'search_ready' and not %(vectors)s) then jsonb_build_object(
        'index_status', case when exists (
            select from almagest.chunks as k where k.item_id = t.id and k.version = t.version
        ) then 'text_ready' else 'pending' end)
    else '{}' end"""
_VECTORS = """ || jsonb_build_object('vectors', case when %(vectors)s then (
    select coalesce(jsonb_object_agg(m.name, e.vector::text), '{}')
    from almagest.embeddings as e join almagest.embedding_models as m on m.id = e.model_id
    where e.chunk_id = t.id) else '{}' end)"""
_ADDED = {"items": _STATUS, "chunks": _VECTORS}

# What a person's items refer to, by the names that it has in any org.
_PLACES = """
with own as (select * from almagest.items where org_id = %(org)s and user_id = %(user)s)
select jsonb_build_object(
    'projects', (select coalesce(jsonb_object_agg(id, slug), '{}') from almagest.projects
        where id in (select project_id from own)),
    'clients', (select coalesce(jsonb_object_agg(id, slug), '{}') from almagest.clients
        where id in (select client_id from own)),
    'deals', (select coalesce(jsonb_object_agg(id, slug), '{}') from almagest.deals
        where id in (select deal_id from own)),
    'agents', (select coalesce(jsonb_object_agg(id, slug), '{}') from almagest.agents
        where id in (select unnest(agent_ids) from own union select author_agent_id from own
            union select g.agent_id from almagest.item_agents as g join own on own.id = g.item_id)),
    'folders', (select coalesce(jsonb_object_agg(f.id, (
            with recursive up as (
                select f.id, f.name, f.parent_id, 0 as depth
                union all select p.id, p.name, p.parent_id, up.depth + 1
                from almagest.folders as p join up on p.id = up.parent_id
            ) cycle id set repeats using passed
            select jsonb_agg(up.name order by up.depth desc) from up where not up.repeats)), '{}')
        from almagest.folders as f where f.id in (select folder_id from own)))
"""


def export(
    connection: psycopg.Connection, org: str, user: str | None = None, *, vectors: bool = True
) -> Iterator[tuple[str, str]]:
    """Read an export line by line.

    Parameters
    ----------
    connection
        Not in autocommit mode, and with no transaction open; the role must be one that no row level security binds.
    org
        Slug.
    user
        E-mail address or id of a member, whose own items are wanted: those that are private to that person.
    vectors
        Whether chunks bring their vectors; without them the index job of the other side makes them anew.

    Yields
    ------
    tuple of str and str
        The table, or `header` and `end`, and the line without its line feed.

    Raises
    ------
    Problem
        404 `unknown_org` or `unknown_member`.
    psycopg.errors.InsufficientPrivilege
        When row level security would hide rows from the role.
    """
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        # Rather an error than an export that lacks what the role is not shown.
        connection.execute("set local row_security = off")
        connection.execute("set local timezone = 'UTC'")
        connection.execute("set local statement_timeout = 0")
        header = _header(connection, org, user, vectors)
        parameters = {"org": header.pop("_org"), "user": header.pop("_user"), "vectors": vectors}
        if user is not None:
            header["places"] = _one(connection, _PLACES, parameters)
        yield "header", json.dumps(header, ensure_ascii=False)
        counts = {}
        for table in TABLES:
            if user is not None and table.personal is None:
                continue
            counts[table.name] = 0
            for line in _rows(connection, table, parameters, personal=user is not None):
                counts[table.name] += 1
                yield table.name, line
        yield "end", json.dumps({"end": True, "rows": counts})


def _header(connection: psycopg.Connection, org: str, user: str | None, vectors: bool) -> dict[str, Any]:
    row = connection.execute(
        "select to_jsonb(o) - 'is_system', (select max(version) from almagest.migrations) from almagest.orgs as o"
        " where o.slug = %s and not o.is_system",
        (org,),
    ).fetchone()
    if row is None:
        raise Problem(404, "unknown_org", f"There is no org {org!r}.")
    about, schema = row
    header = {"almagest": "export", "format": FORMAT, "schema": schema, "vectors": vectors, "org": about, "user": None}
    if user is None:
        return header | {"_org": about["id"], "_user": None}
    member = member_of(connection, about["id"], user)
    person = {"email": member["email"], "name": member["name"]}
    place = {"slug": about["slug"], "name": about["name"]}
    return header | {"org": place, "user": person, "_org": about["id"], "_user": member["user_id"]}


def member_of(connection: psycopg.Connection, org: str, user: str) -> dict[str, Any]:
    """Return a member by e-mail address or id.

    Raises
    ------
    Problem
        404 `unknown_member`.
    """
    row = connection.execute(
        "select to_jsonb(m) from almagest.members as m"
        " where m.org_id = %(org)s and (lower(m.email) = lower(%(user)s) or m.user_id::text = lower(%(user)s))",
        {"org": org, "user": user},
    ).fetchone()
    if row is None:
        raise Problem(404, "unknown_member", f"There is no member {user!r}.")
    found: dict[str, Any] = row[0]
    return found


def _rows(connection: psycopg.Connection, table: Table, parameters: dict[str, Any], *, personal: bool) -> Iterator[str]:
    """The lines of a table; made by Postgres, so that no number or text changes on its way through Python."""
    condition = table.personal if personal else "true"
    statement = (
        # names of tables and columns are this code's own, values are parameters
        f"select jsonb_build_object('table', '{table.name}', 'row', to_jsonb(t) - %(left_out)s::text[]"  # noqa: S608
        f" {_ADDED.get(table.name, '')})::text from almagest.{table.name} as t"
        f" where t.org_id = %(org)s and {condition} order by {table.order}"
    )
    given = {**parameters, "left_out": sorted(left_out(table, personal=personal))}
    with connection.cursor(name="export") as cursor:
        cursor.itersize = FETCH
        cursor.execute(statement.encode(), given)
        for (line,) in cursor:
            yield line


def _one(connection: psycopg.Connection, statement: str, parameters: dict[str, Any]) -> Any:
    row = connection.execute(statement.encode(), parameters).fetchone()
    assert row is not None  # noqa: S101 - an aggregate
    return row[0]
