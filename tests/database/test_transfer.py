"""An org, or what is one person's own, leaves one database and is the same in another one."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from almagest.database.exporter import export
from almagest.database.importer import import_
from almagest.database.portable import STAYS, TABLES
from almagest.problems import Problem
from infra.local.postgres import Postgres
from tests.database.support import (
    MODEL,
    Caller,
    Org,
    Server,
    ids,
    memory,
    one_hot,
    search,
    serve,
    unique_key,
    write,
    write_one,
)
from tests.support import Database, clone

Lines = list[str]


@pytest.fixture
def server(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    with clone(cluster, template_database.name) as here, serve(here) as connections:
        yield connections


@pytest.fixture
def there(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """Another database, in which another org has things already."""
    with clone(cluster, template_database.name) as other, serve(other) as connections:
        neighbour = Org(connections, "neighbour")
        for number in range(3):
            write_one(connections, neighbour.owner, f"neighbour {number}", one_hot(100 + number))
        yield connections


def exported(server: Server, org: str, user: str | None = None, **options: Any) -> Lines:
    with psycopg.connect(server.database.url, prepare_threshold=None) as connection:
        return [line for _, line in export(connection, org, user, **options)]


def imported(server: Server, lines: Lines, org: str | None = None, user: str | None = None) -> dict[str, int]:
    with psycopg.connect(server.database.url, prepare_threshold=None) as connection:
        return import_(connection, io.BytesIO("".join(f"{line}\n" for line in lines).encode()), org, user)


def edit(server: Server, caller: Caller, item: str, content: str | None = None, **changes: Any) -> None:
    [version] = server.rows("select version from almagest.items where id = %s", item)
    request: dict[str, Any] = {"id": item, "version": version, "idempotency": unique_key()}
    if content is not None:
        made = memory(content, one_hot(50))
        changes |= {"content": content}
        request |= {"content_hash": made["content_hash"], "chunks": made["chunks"], "model": MODEL}
    server.call("update_item", caller, {**request, "changes": changes})


def act(server: Server, name: str, caller: Caller, item: str, **fields: Any) -> None:
    server.call(name, caller, {"id": item, "idempotency": unique_key(), **fields})


def fill(server: Server, org: Org) -> Caller:
    """Something of everything that an org can have; returns a member with private items."""
    owner = org.owner
    client = org.client("globex")
    org.deal("renewal", "globex")
    org.project("atlas")
    ann = org.member(clients=["globex"])
    agent = org.agent("scout", clients=["globex"])
    folders: list[str] = []
    for name in ("plans", "2026"):
        folders.append(
            server.value(
                "insert into almagest.folders (org_id, name, parent_id, icon) values (%s, %s, %s, 'x')"
                " returning id::text",
                *(org.id, name, folders[-1] if folders else None),
            )
        )
    # a folder whose number sorts before its parent's
    server.rows(
        "insert into almagest.folders (id, org_id, name, parent_id)"
        " values ('00000000-0000-0000-0000-000000000001', %s, 'deep', %s)",
        *(org.id, folders[-1]),
    )
    odd = {"number": 1.10, "big": 12345678901234567890, "nested": {"list": [None, True, 'ü \u2028 \\n " 😀']}}
    first = write_one(server, owner, "We deploy on Tuesdays.", one_hot(1), tags=["ops", "Ünïcode"], metadata=odd)
    edit(server, owner, first, "We deploy on Wednesdays.", title="Deployments")
    edit(server, owner, first, tags=["ops", "days"])
    archived = write_one(server, owner, "An old plan about otters.", one_hot(2), project="atlas")
    act(server, "archive_item", owner, archived)
    erased = write_one(server, owner, "A secret to be forgotten.", one_hot(3))
    act(server, "erase_item", owner, erased)
    for place, text in enumerate(("Shall we ship on Friday?", "Monday, said Anna.", "Then Monday it is.")):
        write_one(
            server, ann, text, one_hot(10 + place), origin="chat", conversation={"id": "standup", "position": place}
        )
    scoped = write_one(server, owner, "Globex pays late.", one_hot(4), client="globex", deal="renewal")
    own = write_one(server, ann, "Anna likes short notes.", one_hot(5), private=True, type="preference", tags=["me"])
    edit(server, ann, own, "Anna likes very short notes.")
    write_one(server, ann, "Anna on globex, in confidence.", one_hot(6), private=True, client="globex", project="atlas")
    without = write_one(server, owner, "Found by its words alone.", None)
    write_one(server, {**agent, "user": ann["user"]}, "Scout's note for Anna.", one_hot(7), private=True)
    org.item("Only scout reads this.", one_hot(8), agents=[agent["agent"]])
    server.rows("update almagest.items set folder_id = %s where id = any(%s)", folders[1], [first, own])
    act(server, "pin_item", owner, first)
    act(server, "pin_item", ann, own, private=True)
    for number, (item, after) in enumerate(((scoped, None), (first, scoped))):
        server.rows(
            "insert into almagest.facts (item_id, org_id, client_id, deal_id, subject, relation, status, superseded_by)"
            " select id, org_id, client_id, deal_id, %s, 'is', 'active', %s from almagest.items where id = %s",
            *(f"subject {number}", after, item),
        )
    server.rows("insert into almagest.item_types (org_id, name) values (%s, 'recipe')", org.id)
    edit(server, owner, without, type="recipe")
    server.rows("insert into almagest.policies (org_id, name, body) values (%s, 'tone', 'Be brief.')", org.id)
    server.rows(
        "insert into almagest.variables (org_id, client_id, name, value) values (%s, %s, 'currency', 'EUR')",
        *(org.id, client),
    )
    server.rows("update almagest.orgs set settings = '{\"limit\": 1.50}' where id = %s", org.id)
    server.rows("update almagest.strength_signals set frequency = 0.1, validated_at = '2026-01-02T03:04:05.678901Z'")
    server.rows("insert into almagest.retention (org_id, trace_days) values (%s, 30)", org.id)
    server.call("put_profile", owner, {"name": "user_search", "knobs": {"keyword_weight": 0.6, "vector_weight": 0.4}})
    org.system("create_key", {"name": "laptop", "member": ann["user"], "key_hash": "ab" * 32, "prefix": "alm_abc"})
    search(server, ann, "an unmistakable question", one_hot(1))
    return ann


def answers(server: Server, caller: Caller, *, vector: bool = True) -> list[Any]:
    """What searches of all kinds answer, without what belongs to the one search."""
    found = []
    for text, axis, fields in (
        ("deploy wednesdays", 50, {}),
        ("deploy tuesdays", 1, {"as_of": "2100-01-01T00:00:00Z"}),
        ("otters", 2, {"include_archived": True}),
        ("ship friday", 10, {"filters": {"conversation": ["standup"]}}),
        ("globex", 4, {}),
        ("anna notes", 5, {"level": "chunk"}),
        ("words alone", 60, {}),
        ("scout", 8, {}),
    ):
        answer = search(server, caller, text, one_hot(axis) if vector else None, **fields)
        kept = [{key: value for key, value in result.items() if key != "chunk"} for result in answer["results"]]
        found.append((text, answer["mode"], kept))
    return found


def test_every_table_is_taken_along_or_stays_for_a_reason(server: Server) -> None:
    tables = server.rows(
        "select relname from pg_class where relnamespace = 'almagest'::regnamespace and relkind in ('r', 'p')"
        " and not relispartition"
    )
    taken = [table.name for table in TABLES]
    assert not set(taken) & STAYS.keys()
    assert set(tables) <= {*taken, *STAYS}
    # What has lines names no org in them, and every one of its columns is exported or named as left behind.
    assert len(taken) == len(set(taken))


def test_an_org_is_the_same_in_another_database(server: Server, there: Server) -> None:
    org = Org(server, "acme")
    ann = fill(server, org)
    before = {who: answers(server, caller) for who, caller in (("owner", org.owner), ("ann", ann))}
    lines = exported(server, "acme")

    counts = imported(there, lines)

    assert exported(there, "acme") == lines
    said = json.loads(lines[-1])["rows"]
    assert counts == {table: rows for table, rows in said.items() if rows}
    assert all(counts.get(table.name) for table in TABLES), "the test's org lacks something"
    assert {who: answers(there, caller) for who, caller in (("owner", org.owner), ("ann", ann))} == before
    for table in ("chunks", "lexical", "embeddings", "item_versions"):
        compared = f"select count(*) from almagest.{table} where org_id = %s"
        assert there.value(compared, org.id) == server.value(compared, org.id)
    terms = (
        "select l.item_id, k.version, k.position, l.state, l.sequence, l.place, l.terms::text, l.user_id, l.client_id,"
        " l.agent_ids, l.kind from almagest.lexical as l join almagest.chunks as k on k.id = l.chunk_id"
        " where l.org_id = %s order by 1, 2, 3"
    )
    assert there.rows(terms, org.id) == server.rows(terms, org.id)
    vectors = (
        terms.replace("lexical", "embeddings")
        .replace("l.sequence, l.place, l.terms::text", "l.vector::text")
        .replace(", l.kind", "")
    )
    assert there.rows(vectors, org.id) == server.rows(vectors, org.id)


def test_life_goes_on_in_the_other_database(server: Server, there: Server) -> None:
    org = Org(server, "acme")
    ann = fill(server, org)
    imported(there, exported(server, "acme"))
    [archived] = there.rows("select id::text from almagest.items where state = 'archived'")
    act(there, "restore_item", org.owner, archived)
    assert ids(search(there, org.owner, "otters")) == [archived]
    new = write_one(there, ann, "Written after the move.", one_hot(70))
    assert ids(search(there, ann, "move", one_hot(70))) == [new]
    # Said again, it is recognised.
    [again] = write(there, org.owner, memory("Found by its words alone.", None, type="recipe"), atomic=True)
    assert again["deduplicated"]
    act(there, "erase_item", org.owner, archived)
    assert search(there, org.owner, "otters", include_archived=True)["results"] == []


def test_no_key_and_no_question_leaves(server: Server) -> None:
    fill(server, Org(server, "acme"))
    text = "\n".join(exported(server, "acme"))
    assert "ab" * 32 not in text
    assert "alm_" not in text
    assert "unmistakable" not in text
    assert "A secret to be forgotten" not in text


def test_another_tenants_rows_do_not_leave(server: Server) -> None:
    other = Org(server, "other")
    write_one(server, other.owner, "Something of the others.", one_hot(9))
    fill(server, Org(server, "acme"))
    assert "of the others" not in "\n".join(exported(server, "acme"))
    assert other.id not in "\n".join(exported(server, "acme"))


def test_a_persons_export_holds_what_is_private_to_them_alone(server: Server) -> None:
    org = Org(server, "acme")
    ann = fill(server, org)
    bob = org.member()
    write_one(server, bob, "Bob keeps this to himself.", one_hot(9), private=True)

    lines = exported(server, "acme", ann["user"])

    rows = [json.loads(line) for line in lines[1:-1]]
    contents = {row["row"]["content"] for row in rows if row["table"] == "items"}
    assert contents == {
        "Anna likes very short notes.", "Anna on globex, in confidence.", "Scout's note for Anna.",
    }  # fmt: skip
    text = "\n".join(lines)
    for foreign in ("Bob keeps", "Tuesdays", "Friday", "Globex pays", "Be brief", org.owner["user"], bob["user"]):
        assert foreign not in text
    # and what was said before an edit is theirs too
    assert "Anna likes short notes." in text


def prepared(there: Server) -> tuple[Org, Caller]:
    """An org elsewhere with places of the same names, and other ids."""
    org = Org(there, "globular")
    org.client("globex")
    org.project("atlas")
    org.agent("scout")
    parent = None
    for name in ("plans", "2026"):
        parent = there.value(
            "insert into almagest.folders (org_id, name, parent_id) values (%s, %s, %s) returning id",
            *(org.id, name, parent),
        )
    return org, org.member(clients=["globex"])


def test_a_person_takes_their_own_to_another_org(server: Server, there: Server) -> None:
    ann = fill(server, Org(server, "acme"))
    org, anna = prepared(there)
    lines = exported(server, "acme", ann["user"])

    imported(there, lines, "globular", anna["user"])

    again = exported(there, "globular", anna["user"])
    untied = dict.fromkeys(("client_id", "project_id", "folder_id", "author_agent_id"))

    def without_ids(line: str) -> Any:
        value = json.loads(line)
        return {**value, "row": {**value["row"], **untied}} if value.get("table") == "items" else value

    assert list(map(without_ids, again[1:])) == list(map(without_ids, lines[1:]))
    answer = search(there, anna, "short notes", one_hot(50))
    assert [result["title"] or result["snippet"] for result in answer["results"]]
    assert len(search(there, anna, "globex confidence", filters={"client": ["globex"]})["results"]) == 1
    for other in (org.owner, org.member()):
        assert search(there, other, "notes confidence", one_hot(50))["results"] == []


def test_a_place_that_is_missing_is_named(server: Server, there: Server) -> None:
    ann = fill(server, Org(server, "acme"))
    org = Org(there, "globular")
    with pytest.raises(Problem, match=r"no project 'atlas'|no client 'globex'|no agent|no folder") as caught:
        imported(there, exported(server, "acme", ann["user"]), "globular", org.owner["user"])
    assert caught.value.code == "unknown_place"


def test_without_vectors_the_other_side_makes_them(server: Server, there: Server) -> None:
    org = Org(server, "acme")
    fill(server, org)
    lines = exported(server, "acme", vectors=False)
    imported(there, lines)
    assert exported(there, "acme", vectors=False) == lines
    assert there.value("select count(*) from almagest.embeddings where org_id = %s", org.id) == 0
    waiting = "select distinct index_status from almagest.items where org_id = %s and state <> 'erased'"
    assert there.rows(waiting, org.id) == ["text_ready"]
    assert there.rows("select count(*) from engine.lease_items('worker', 100, 60)")[0] > 5


def test_a_lease_stays_behind(server: Server, there: Server) -> None:
    org = Org(server, "acme")
    write_one(server, org.owner, "Leased.", None)
    server.rows("select engine.lease_items('worker', 1, 60)")
    imported(there, exported(server, "acme"))
    look = "select index_status, lease_owner, index_after <= now() from almagest.items where org_id = %s"
    assert there.rows(look, org.id) == [("text_ready", None, True)]


def changed(lines: Lines, table: str, **fields: Any) -> Lines:
    """The first line of a table with other values."""
    place = next(number for number, line in enumerate(lines) if json.loads(line).get("table") == table)
    value = json.loads(lines[place])
    value["row"] |= fields
    return [*lines[:place], json.dumps(value), *lines[place + 1 :]]


BROKEN: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "nothing": (lambda lines: [], "header of an export"),
    "no header": (lambda lines: lines[1:], "header of an export"),
    "another format": (lambda lines: [lines[0].replace('"format": 1', '"format": 2'), *lines[1:]], "format 2"),
    "a newer schema": (lambda lines: [lines[0].replace('"schema": ', '"schema": 9'), *lines[1:]], "almagest migrate"),
    "cut off": (lambda lines: lines[:-1], "cut off"),
    "a line is missing": (lambda lines: [*lines[:-2], lines[-1]], "lines are missing"),
    "no JSON": (lambda lines: [*lines[:5], "{", *lines[6:]], "Line 6: is not JSON"),
    "NaN": (lambda lines: [*lines[:5], '{"table": NaN}', *lines[6:]], "Line 6: is not JSON"),
    "a list": (lambda lines: [*lines[:5], "[]", *lines[6:]], "Line 6: is no JSON object"),
    "an unknown table": (
        lambda lines: [*lines[:5], '{"table": "api_keys", "row": {}}', *lines[6:]],
        "Line 6: is no row",
    ),
    "an org of its own": (lambda lines: changed(lines, "items", org_id=str(uuid4())), "have no 'org_id'"),
    "a scope of its own": (lambda lines: changed(lines, "chunks", user_id=str(uuid4())), "have no 'user_id'"),
    "an unknown column": (lambda lines: changed(lines, "items", colour="red"), "items have no 'colour'"),
    "a bad value": (lambda lines: changed(lines, "items", priority=7), r"Line \d+: .*items_priority_check"),
    "a bad date": (lambda lines: changed(lines, "items", created_at="soon"), r"Line \d+: .*soon"),
    "a bad vector": (lambda lines: changed(lines, "chunks", vectors={"m": "[1,2]"}), r"Line \d+: .*dimensions"),
    "an order of its own": (lambda lines: [*lines[:-2], lines[3], *lines[-2:]], "come before"),
    "after the end": (lambda lines: [*lines, lines[1]], "after the end"),
    "the same twice": (lambda lines: [*lines[:2], *lines[1:]], "Line 3: is in this database already"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_leaves_nothing_and_says_where(name: str, server: Server, there: Server) -> None:
    fill(server, Org(server, "acme"))
    spoil, message = BROKEN[name]
    with pytest.raises(Problem, match=message):
        imported(there, spoil(exported(server, "acme")))
    assert there.rows("select slug from almagest.orgs") == ["neighbour"]
    assert (
        there.value("select count(*) from almagest.audit_log where org_id not in (select id from almagest.orgs)") == 0
    )


@pytest.mark.parametrize("table", ["item_tags", "item_versions", "chunks", "pins", "strength_signals", "facts"])
def test_no_row_hangs_itself_on_another_tenants_item(table: str, server: Server, there: Server) -> None:
    fill(server, Org(server, "acme"))
    foreign = there.value("select id::text from almagest.items limit 1")
    before = there.rows("select i::text from almagest.items as i order by 1")
    with pytest.raises(Problem, match=r"Line \d+: belongs to an item that this import does not bring"):
        imported(there, changed(exported(server, "acme"), table, item_id=foreign))
    assert there.rows("select i::text from almagest.items as i order by 1") == before


def test_a_fact_is_superseded_by_none_of_another_tenant(server: Server, there: Server) -> None:
    fill(server, Org(server, "acme"))
    foreign = there.value("select id::text from almagest.items limit 1")
    with pytest.raises(Problem, match=r"Line \d+: belongs to an item that this import does not bring"):
        imported(there, changed(exported(server, "acme"), "facts", superseded_by=foreign))


def test_a_persons_file_brings_nothing_for_others(server: Server, there: Server) -> None:
    ann = fill(server, Org(server, "acme"))
    _, anna = prepared(there)
    lines = exported(server, "acme", ann["user"])
    for bad in (changed(lines, "items", user_id=None), [lines[0], exported(server, "acme")[1], *lines[1:]]):
        with pytest.raises(Problem, match=r"Line \d+: (items have no 'user_id'|members belong to an org)"):
            imported(there, bad, "globular", anna["user"])
    assert there.value("select count(*) from almagest.items where user_id is not null") == 0


def test_an_org_is_not_imported_over_another(server: Server) -> None:
    fill(server, Org(server, "acme"))
    before = exported(server, "acme")
    with pytest.raises(Problem) as caught:
        imported(server, before)
    assert caught.value.code == "org_exists"
    assert exported(server, "acme") == before


def test_unknown_names(server: Server) -> None:
    org = Org(server, "acme")
    for given, code in ((("nobody", None), "unknown_org"), ((org.slug, "nobody@acme"), "unknown_member")):
        with pytest.raises(Problem) as caught:
            exported(server, *given)
        assert caught.value.code == code


def test_a_role_that_is_shown_less_is_told_so(server: Server) -> None:
    Org(server, "acme")
    with server.database.connect("supabase_admin", autocommit=False) as connection:
        connection.execute("create role narrow")
        connection.execute("grant usage on schema almagest to narrow")
        connection.execute("grant select on all tables in schema almagest to narrow")
        connection.execute("set session authorization narrow")
        connection.commit()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            list(export(connection, "acme"))
        connection.rollback()
        connection.execute("reset session authorization")
        connection.execute("drop owned by narrow")
        connection.execute("drop role narrow")
        connection.commit()


def test_memory_is_bounded(server: Server, there: Server) -> None:
    """Sixty megabytes of text pass through a process that never holds more than a few of them."""
    import resource

    org = Org(server, "acme")
    server.rows(
        "insert into almagest.items (org_id, kind, type, content, content_hash, origin, index_status)"
        " select %s, 'memory', 'note', repeat(md5(n::text), 25000), n::text, 'agent', 'pending'"
        " from generate_series(1, 75) as n",
        org.id,
    )
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    import tempfile

    with tempfile.TemporaryFile() as file:
        with psycopg.connect(server.database.url) as connection:
            for _, line in export(connection, "acme"):
                file.write(line.encode() + b"\n")
        file.seek(0)
        with psycopg.connect(there.database.url) as connection:
            assert import_(connection, file)["items"] == 75
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used) / 1024
    assert grown < 200, f"{grown:.0f} MB"
