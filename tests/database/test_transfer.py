"""An org, or what is one person's own, leaves one database and is the same in another one."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from almagest.database.exporter import export
from almagest.database.importer import import_
from almagest.database.portable import STAYS, TABLES
from almagest.models.search import Item, SearchResponse, SearchResult
from almagest.problems import Problem
from infra.local.postgres import Postgres
from tests.database.support import (
    MODEL,
    Caller,
    Org,
    Refused,
    Server,
    attempt,
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


@dataclass(frozen=True)
class Files:
    """Lines of an org's export, and of a person's."""

    org: Lines = field(repr=False)
    person: Lines = field(repr=False)


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


def prepared(there: Server, slug: str = "globular") -> tuple[Org, Caller]:
    """An org elsewhere with places of the same names, and other ids."""
    org = Org(there, slug)
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


def changed(lines: Lines, table: str, *without: str, **fields: Any) -> Lines:
    """The first line of a table with other values, or without some."""
    place = next(number for number, line in enumerate(lines) if json.loads(line).get("table") == table)
    value = json.loads(lines[place])
    value["row"] |= fields
    for name in without:
        del value["row"][name]
    return [*lines[:place], json.dumps(value), *lines[place + 1 :]]


def headed(lines: Lines, **fields: Any) -> Lines:
    """With other values in the header."""
    return [json.dumps(json.loads(lines[0]) | fields), *lines[1:]]


def of_org(lines: Lines, **fields: Any) -> Lines:
    """With other values in what the header says of the org."""
    return headed(lines, org=json.loads(lines[0])["org"] | fields)


def ended(lines: Lines, rows: Any) -> Lines:
    """With other counts at the end."""
    return [*lines[:-1], json.dumps({"end": True, "rows": rows})]


def in_circles(lines: Lines, size: int) -> Lines:
    """With folders of which each lies in the next, and the last in the first."""
    places = [number for number, line in enumerate(lines) if json.loads(line).get("table") == "folders"][:size]
    rows = [json.loads(lines[place]) for place in places]
    for row, within in zip(rows, [*rows[1:], rows[0]], strict=True):
        row["row"]["parent_id"] = within["row"]["id"]
    spoilt = dict(zip(places, map(json.dumps, rows), strict=True))
    return [spoilt.get(number, line) for number, line in enumerate(lines)]


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
    "a bad value": (lambda lines: changed(lines, "items", priority=7), r"Line \d+: .*priority: must be at most 1"),
    "a bad vector": (lambda lines: changed(lines, "chunks", vectors={"m": "[1,2]"}), r"Line \d+: .*dimensions"),
    "a vector of nothing": (
        lambda lines: changed(lines, "chunks", vectors={"m": f"[{','.join('0' * 384)}]"}),
        r"Line \d+: .*all zeros",
    ),
    "an order of its own": (lambda lines: [*lines[:-2], lines[3], *lines[-2:]], "come before"),
    "after the end": (lambda lines: [*lines, lines[1]], "after the end"),
    "the same twice": (lambda lines: [*lines[:2], *lines[1:]], "Line 3: is in this database already"),
    "NUL": (lambda lines: changed(lines, "items", title="a\0b"), r"Line \d+: title: must not hold"),
    "NUL within": (lambda lines: changed(lines, "items", metadata={"a": ["\0"]}), r"Line \d+: .*"),
    "half a sign": (lambda lines: changed(lines, "items", title="\ud800"), r"Line \d+: .*title"),
    "half a sign within": (lambda lines: changed(lines, "items", metadata={"\ud800": 1}), r"Line \d+: .*metadata"),
    "half a sign as a column": (lambda lines: changed(lines, "items", **{"\ud800": 1}), r"Line \d+: items have no"),
    "a folder in itself": (lambda lines: in_circles(lines, 1), r"Line \d+: .*folder"),
    "two folders in each other": (lambda lines: in_circles(lines, 2), r"Line \d+: .*folder"),
    "three folders in circles": (lambda lines: in_circles(lines, 3), r"Line \d+: .*folder"),
    "unknown knobs": (lambda lines: changed(lines, "search_profiles", knobs={"colour": 1}), r"Line \d+: .*colour"),
    "modes that are none": (lambda lines: changed(lines, "search_profiles", knobs={"modes": 1}), r"Line \d+: .*modes"),
    "counts that are a text": (lambda lines: ended(lines, {"items": "x"}), "is not the end of an export: rows.items"),
    "counts that are a list": (lambda lines: ended(lines, [1]), "is not the end of an export: rows"),
    "counts with a fraction": (lambda lines: ended(lines, {"items": 1.5}), "is not the end of an export: rows.items"),
    "counts below nothing": (lambda lines: ended(lines, {"items": -1}), "is not the end of an export: rows.items"),
    "no counts": (lambda lines: ended(lines, None), "is not the end of an export: rows"),
    "an odd schema": (lambda lines: headed(lines, schema="²"), "not the header of an export: schema"),
    "a long schema": (
        lambda lines: [lines[0].replace('"schema": ', '"schema": ' + "1" * 5000), *lines[1:]],
        "not the header of an export: schema",
    ),
    "no schema": (lambda lines: headed(lines, schema=None), "not the header of an export: schema"),
    "an odd format": (lambda lines: headed(lines, format={}), "not the header of an export: format"),
    "a long format": (
        lambda lines: [lines[0].replace('"format": 1', '"format": ' + "1" * 5000), *lines[1:]],
        "not the header of an export: format",
    ),
    "an org that is a text": (lambda lines: headed(lines, org="acme"), "not the header of an export: org"),
    "an org without a name": (lambda lines: of_org(lines, name=None), "not the header of an export: org.name"),
    "an org of NUL": (lambda lines: of_org(lines, name="a\0b"), "not the header of an export: org.name"),
    "half an org": (lambda lines: of_org(lines, name="\ud800"), "not the header of an export: org.name"),
    "an org with an odd id": (lambda lines: of_org(lines, id=7), "not the header of an export: org.id"),
    "an org without an id": (lambda lines: of_org(lines, id=None), "not the header of an export: org.id"),
    "an org of no time": (lambda lines: of_org(lines, created_at="infinity"), "of an export: org.created_at"),
    "an org with settings of its own": (lambda lines: of_org(lines, settings=[]), "of an export: org.settings"),
    "NUL in an org's settings": (lambda lines: of_org(lines, settings={"a": "\0"}), "Line 1: "),
    "a user that is a text": (lambda lines: headed(lines, user="ann"), "not the header of an export: user"),
}
# What the API would never have stored, and could not give back.
UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "infinity": ("items", {"created_at": "infinity"}, "created_at: must be a time"),
    "minus infinity": ("items", {"occurred_at": "-infinity"}, "occurred_at: must be a time"),
    "before our time": ("items", {"updated_at": "0044-03-15 00:00:00+00 BC"}, "updated_at: must be a time"),
    "after all time": ("items", {"validated_at": "294000-01-01T00:00:00+00:00"}, "validated_at: must be a time"),
    "a year too late": ("items", {"created_at": "9999-12-31T23:59:59-01:00"}, "created_at: must be a time"),
    "rounded up": ("items", {"created_at": "9999-12-31T23:59:59.9999999+00:00"}, "created_at: must be a time"),
    "the year 0": ("items", {"created_at": "0000-12-31T23:59:59+00:00"}, "created_at: must be a time"),
    "no time": ("items", {"created_at": "soon"}, "created_at: must be a time"),
    "a figure": ("items", {"created_at": 1}, "created_at: must be a time"),
    "a date": ("items", {"archived_at": "2026-01-01"}, "archived_at: must be a time"),
    "time of a member": ("members", {"created_at": "infinity"}, "created_at: must be a time"),
    "time of a version": ("item_versions", {"valid_to": "infinity"}, "valid_to: must be a time"),
    "time of a signal": ("strength_signals", {"validated_at": "infinity"}, "validated_at: must be a time"),
    "time of a pin": ("pins", {"created_at": "infinity"}, "created_at: must be a time"),
    "time of the audit": ("audit_log", {"created_at": "infinity"}, "created_at: must be a time"),
    "time of retention": ("retention", {"updated_at": "-infinity"}, "updated_at: must be a time"),
    "much content": ("items", {"content": "many words " * 100_000}, "content: must have at most 1,000,000 characters"),
    "no content": ("items", {"content": None}, "content"),
    "blank content": ("items", {"content": " "}, "content: must not be blank"),
    "content once more": ("item_versions", {"content": "x" * 1_000_001}, "content: must have at most 1,000,000"),
    "a long title": ("items", {"title": "x" * 501}, "title: must have at most 500 characters"),
    "a long reference": ("items", {"source_ref": "x" * 1001}, "source_ref: must have at most 1,000"),
    "a reference of many bytes": ("items", {"source_ref": "😀" * 900}, "source_ref: must not be larger than 1500"),
    "a long name": ("members", {"name": "x" * 201}, "name: must have at most 200 characters"),
    "no address": ("members", {"email": "ann"}, "email: must be an e-mail address"),
    "much metadata": ("items", {"metadata": {"a": "x" * 64_000}}, "metadata: must not be larger than 64000 bytes"),
    "deep metadata": ("items", {"metadata": json.loads("[" * 0 + '{"a":' * 30 + "1" + "}" * 30)}, "metadata: must not"),
    "metadata that are a list": ("items", {"metadata": [1]}, "metadata: must be a JSON object"),
    "metadata of a version": ("item_versions", {"metadata": "x"}, "metadata: must be a JSON object"),
    "detail that is a list": ("audit_log", {"detail": []}, "detail: must be a JSON object"),
    "no number": ("items", {"priority": "NaN"}, "priority: must be a number"),
    "no number of a version": ("item_versions", {"priority": "Infinity"}, "priority: must be a number"),
    "priority of a version": ("item_versions", {"priority": 7}, "priority: must be at most 1"),
    "no room for a version": ("items", {"version": 2_147_483_647}, "version: must be at most"),
    "version 0": ("items", {"version": 0}, "version: must be at least 1"),
    "no whole number": ("items", {"version": 1.0}, "version: must be a whole number"),
    "a long number": ("items", {"conversation_position": 10**30}, "conversation_position: must be"),
    "a place before the first": ("chunks", {"position": -1}, "position: must be at least 0"),
    "an offset before the text": ("chunks", {"start_offset": -5}, "start_offset: must be at least 0"),
    "an offset after the text": ("chunks", {"end_offset": 2_000_000_000}, "end_offset: must be at most 1,000,000"),
    "an offset a little after the text": ("chunks", {"end_offset": 5_000}, "ends after its item's text"),
    "no offset": ("chunks", {"end_offset": None}, "null value in column"),
    "no first version": ("chunks", {"since_version": None}, "null value in column"),
    "the end first": ("chunks", {"start_offset": 2, "end_offset": 1}, "ends before it starts"),
    "a chunk of a version to come": ("chunks", {"version": 9}, "is of a version that its item does not have"),
    "a long chunk": ("chunks", {"text": "x" * 10_001}, "text: must have at most 10,000 characters"),
    "a conversation without a place": ("items", {"conversation_id": "c"}, "conversation"),
    "a place without a conversation": ("items", {"conversation_position": 1}, "conversation"),
    "no status": ("items", {"index_status": None}, "index_status"),
    "a long tag": ("item_tags", {"tag": "x" * 101}, "tag: must have at most 100 characters"),
    "tags of a version": ("item_versions", {"tags": ["x" * 101]}, r"tags\[0\]: must have at most 100 characters"),
    "tags that are a text": ("item_versions", {"tags": "{a,b}"}, "tags: must be a list"),
    "agents that are none": ("items", {"agent_ids": ["scout"]}, r"agent_ids\[0\]: must be a UUID"),
    "no id": ("items", {"id": "otter"}, "id: must be a UUID"),
    "no truth": ("items", {"evergreen": "maybe"}, "evergreen: must be true or false"),
    "a text that is a list": ("items", {"summary": ["a"]}, "summary: must be a string"),
    "vectors that are a list": ("chunks", {"vectors": []}, "vectors: must be a JSON object"),
    "a vector that is a list": ("chunks", {"vectors": {"m": [1]}}, "vectors.m: must be a string"),
    "no vectors": ("chunks", {"vectors": None}, "vectors"),
}
for _name, (_table, _fields, _message) in UNFIT.items():
    BROKEN[_name] = (
        lambda lines, table=_table, fields=_fields: changed(lines, table, **fields),
        rf"Line \d+: .*{_message}",
    )  # type: ignore[misc]  # defaults of a lambda have no types


def nothing_of_another(there: Server) -> bool:
    """Whether only the neighbour's rows are in a database."""
    counted = "select count(*) from almagest.{} where org_id not in (select id from almagest.orgs)"
    left = {table: there.value(counted.format(table)) for table in (*(each.name for each in TABLES), "lexical")}
    return there.rows("select slug from almagest.orgs") == ["neighbour"] and not any(left.values())


@pytest.fixture(scope="module")
def files(cluster: Postgres, template_database: Database) -> Files:
    """Exports of a full org and of one person in it."""
    with clone(cluster, template_database.name) as here, serve(here) as connections:
        ann = fill(connections, Org(connections, "acme"))
        return Files(exported(connections, "acme"), exported(connections, "acme", ann["user"]))


@pytest.fixture(scope="module")
def neighbours(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """A database with one org, in which a person's places are."""
    with clone(cluster, template_database.name) as other, serve(other) as connections:
        org, _ = prepared(connections, "neighbour")
        write_one(connections, org.owner, "neighbour", one_hot(100))
        yield connections


def clear(there: Server) -> None:
    """Take out all that an import may have stored."""
    there.rows("delete from almagest.orgs where slug <> 'neighbour'")
    there.rows("delete from almagest.items where user_id is not null")
    there.rows(
        "delete from almagest.audit_log where org_id not in (select id from almagest.orgs) or user_id is not null"
    )


@pytest.fixture
def target(neighbours: Server) -> Iterator[Server]:
    """The same for a test that imports into it."""
    yield neighbours
    clear(neighbours)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_leaves_nothing_and_says_where(name: str, files: Files, target: Server) -> None:
    spoil, message = BROKEN[name]
    with pytest.raises(Problem, match=message) as caught:
        imported(target, spoil(files.org))
    assert len(caught.value.detail) < 1000
    assert caught.value.detail.isprintable()
    assert nothing_of_another(target)


BROKEN_PERSONS: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "no person": (lambda lines: headed(lines, user={}), "not the header of an export: user.email"),
    "an odd person": (lambda lines: headed(lines, user={"email": 1}), "not the header of an export: user.email"),
    "half a person": (lambda lines: headed(lines, user={"email": "\ud800"}), "of an export: user.email"),
    "no places": (lambda lines: headed(lines, places=None), "not the header of an export: places"),
    "places in a list": (lambda lines: headed(lines, places=[]), "not the header of an export: places"),
    "a kind in a list": (lambda lines: headed(lines, places={"clients": []}), "of an export: places.clients"),
    "a kind that is none": (lambda lines: headed(lines, places={"moons": {}}), "of an export: places.moons"),
    "a name that is an object": (
        lambda lines: headed(lines, places={"clients": {str(uuid4()): {}}}),
        "not the header of an export: places.clients",
    ),
    "an id that is none": (lambda lines: headed(lines, places={"clients": {"x": "y"}}), "of an export: places.clients"),
    "a folder of nothing": (
        lambda lines: headed(lines, places={"folders": {str(uuid4()): None}}),
        "not the header of an export: places.folders",
    ),
    "a folder of no path": (
        lambda lines: headed(lines, places={"folders": {str(uuid4()): []}}),
        "not the header of an export: places.folders",
    ),
    "half a sign in a folder's path": (
        lambda lines: headed(lines, places={"folders": {str(uuid4()): ["\ud800"]}}),
        "not the header of an export: places.folders",
    ),
    "NUL in a name": (
        lambda lines: headed(lines, places={"clients": {str(uuid4()): "a\0b"}}),
        "not the header of an export: places.clients",
    ),
}


@pytest.mark.parametrize("name", BROKEN_PERSONS)
def test_a_broken_file_of_a_person_leaves_nothing(name: str, files: Files, target: Server) -> None:
    spoil, message = BROKEN_PERSONS[name]
    with pytest.raises(Problem, match=message):
        imported(target, spoil(files.person), "neighbour", "owner@neighbour")
    assert nothing_of_another(target)
    assert target.value("select count(*) from almagest.items where user_id is not null") == 0


REFERENCES = {
    "client_id": "clients",
    "deal_id": "deals",
    "project_id": "projects",
    "folder_id": "folders",
    "author_agent_id": "agents",
    "agent_ids": "agents",
}


@pytest.mark.parametrize("column", REFERENCES)
@pytest.mark.parametrize("alone", [False, True])
def test_a_person_brings_no_place_that_the_header_does_not_name(
    column: str, alone: bool, files: Files, there: Server
) -> None:
    """Not even one that the org has, be there other references in the line or not."""
    org, anna = prepared(there)
    org.deal("renewal", "globex")
    foreign = there.value(f"select id::text from almagest.{REFERENCES[column]} where org_id = %s limit 1", org.id)
    given = {column: [foreign], "scope": "agent"} if column == "agent_ids" else {column: foreign}
    absent = sorted({"agent_ids", "author_agent_id"} - {column}) if alone else []
    with pytest.raises(Problem, match=r"Line 2: .*that the header does not name"):
        imported(there, changed(files.person, "items", *absent, **given), "globular", anna["user"])
    assert there.value("select count(*) from almagest.items where user_id is not null") == 0


def test_a_place_is_found_whatever_else_a_line_names(files: Files, there: Server) -> None:
    org, anna = prepared(there)
    lines = list(files.person)
    place = next(place for place, line in enumerate(lines) if '"client_id": "' in line)
    value = json.loads(lines[place])
    for column in ("agent_ids", "author_agent_id"):
        del value["row"][column]
    lines[place] = json.dumps(value)
    imported(there, lines, "globular", anna["user"])
    [client] = there.rows("select id from almagest.clients where org_id = %s", org.id)
    assert there.rows("select client_id from almagest.items where client_id is not null and org_id = %s", org.id) == [
        client
    ]


def test_an_export_ends_though_folders_lie_in_circles(server: Server) -> None:
    """Of an org and of a person, whatever brought them there."""
    ann = fill(server, Org(server, "acme"))
    server.rows(
        "update almagest.folders set parent_id = (select id from almagest.folders where name = 'deep')"
        " where name = 'plans'"
    )
    for user in (None, ann["user"]):
        lines: Lines = []
        with psycopg.connect(server.database.url, prepare_threshold=None) as connection:
            watch = threading.Timer(20, connection.cancel)
            watch.start()
            lines = [line for _, line in export(connection, "acme", user)]
            watch.cancel()
        assert json.loads(lines[-1])["end"]
    assert json.loads(lines[0])["places"]["folders"]


def test_extreme_times_are_served(files: Files, server: Server) -> None:
    """What is let in, searches and readers can give back."""
    lines = [files.org[0]]
    ends = ("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00")
    for number, line in enumerate(files.org[1:-1]):
        value = json.loads(line)
        times = [name for name in value["row"] if name.endswith(("_at", "_from", "_to")) and value["row"][name]]
        value["row"] |= dict.fromkeys(times, ends[number % 2])
        lines.append(json.dumps(value))
    imported(server, [*lines, files.org[-1]])
    [(org, owner)] = server.rows("select org_id::text, user_id::text from almagest.members where role = 'owner'")
    caller = {"org": org, "user": owner, "role": "owner"}
    results = search(server, caller, "deploy otters globex scout words", one_hot(1), explain=True)["results"]
    assert len(results) >= 2
    for result in results:
        SearchResult.model_validate(result)
        Item.model_validate(server.call("get_item", caller, {"id": result["id"]}))
    assert server.call("bootstrap", caller, {"query": "deploy"})["canon"]


SECRET = "zqsecret"


@pytest.mark.parametrize(
    ("table", "fields"),
    [
        ("items", {"priority": 9}),
        ("items", {"priority": "NaN"}),
        ("items", {"metadata": {"a": "\0"}}),
        ("items", {"title": "\ud800"}),
        ("items", {"created_at": SECRET}),
        ("items", {"kind": SECRET}),
        ("items", {"slug": None, "source_ref": SECRET * 3000}),
        ("items", {"folder_id": str(uuid4())}),
        ("items", {"id": None}),
        ("items", {"type": SECRET}),
        ("item_versions", {"valid_from": None}),
        ("chunks", {"end_offset": 5000}),
        ("chunks", {"vectors": {"m": SECRET}}),
        ("facts", {"status": SECRET}),
        ("item_tags", {"confidence": 2}),
        ("variables", {"name": ""}),
    ],
)
def test_a_failed_import_leaves_nothing_in_the_servers_log(
    table: str, fields: dict[str, Any], files: Files, target: Server
) -> None:
    """Postgres logs the row, the text or the JSON that a statement fails on."""
    log = target.database.cluster.log
    before = log.stat().st_size
    marked = [line.replace("Anna", f"Anna {SECRET}") for line in files.org]
    texts = {"items": "content", "item_versions": "content", "chunks": "text", "facts": "subject", "variables": "value"}
    given = {texts[table]: SECRET} if table in texts else {"tag": SECRET}
    with pytest.raises(Problem):
        imported(target, changed(marked, table, **{**given, **fields}))
    with pytest.raises(Problem):
        imported(target, of_org(marked, settings={SECRET: "\0"}))
    assert nothing_of_another(target)
    written = log.read_bytes()[before:].decode(errors="replace")
    assert [line for line in written.splitlines() if SECRET in line] == []


# Stands for a number of more digits than Python writes.
LONG = "@long"
# What stands in a file at random places instead of what an export has there.
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(LONG), st.floats(allow_nan=False), st.text(max_size=20),
    st.sampled_from(["infinity", "-infinity", "NaN", "\0", "\ud800", "x" * 3000, "²", "0044-03-15 BC", "{}", "[1]"]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=3),
    st.uuids().map(str), st.datetimes().map(lambda at: f"{at.isoformat()}+00:00"),
)  # fmt: skip


def spoilt(value: Any, way: list[int], what: str, odd: Any, name: str) -> Any:
    """A JSON value in which something, at the end of a way through it, is something else, is gone, or has come."""
    if not way or not isinstance(value, (dict, list)) or not value:
        return odd
    keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[way[0] % len(keys)]
    entries = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    if len(way) > 1 or what == "other":
        entries[key] = spoilt(value[key], way[1:], what, odd, name)
    elif what == "gone":
        del entries[key]
    elif isinstance(value, dict):
        entries[name] = odd
    else:
        entries[len(value)] = odd
    return entries if isinstance(value, dict) else list(entries.values())


def servable(there: Server) -> None:
    """What was stored can be read and searched: no answer is one that the API could not give."""
    owners = dict(there.rows("select org_id::text, user_id::text from almagest.members where role = 'owner'"))
    for item, org, user in there.rows("select id::text, org_id::text, user_id::text from almagest.items"):
        caller = {"org": org, "user": user or owners.get(org), "role": "owner"}
        if caller["user"] is None:
            continue
        read = attempt(there, "get_item", caller, {"id": item})
        assert isinstance(read, Refused) or Item.model_validate(read)
        found = attempt(there, "search", caller, {"query": "notes deploy globex", "k": 20})
        assert isinstance(found, Refused) or SearchResponse.model_validate(found)
        attempt(there, "bootstrap", caller, {})


def refusal(there: Server, lines: Lines, org: str | None, user: str | None) -> Problem | None:
    """Why an import stored nothing; None where it stored all."""
    try:
        imported(there, lines, org, user)
    except Problem as problem:
        return problem
    return None


@pytest.mark.parametrize("whose", ["org", "person"])
@settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(
    # the header and the end as often as a quarter of the rows
    place=st.one_of(st.just(0), st.just(-1), *[st.integers(0, 10_000)] * 4),
    way=st.lists(st.integers(0, 1000), max_size=5),
    what=st.sampled_from(["other", "other", "gone", "new"]), odd=ODD, name=st.text(max_size=10),
)  # fmt: skip
def test_a_spoilt_file_is_stored_or_refused_in_a_sentence(
    whose: str, files: Files, target: Server, place: int, way: list[int], what: str, odd: Any, name: str
) -> None:
    """Whatever stands where: success, or one clear sentence and nothing stored."""
    lines = list(files.org if whose == "org" else files.person)
    place %= len(lines)
    lines[place] = json.dumps(spoilt(json.loads(lines[place]), way, what, odd, name)).replace(f'"{LONG}"', "1" * 5000)
    into = ("neighbour", "owner@neighbour") if whose == "person" else (None, None)
    try:
        problem = refusal(target, lines, *into)
        if problem is None:
            servable(target)
            return
        assert problem.status in (404, 409, 422)
        assert len(problem.detail) < 1000
        assert problem.detail.isprintable()
        assert nothing_of_another(target)
        assert target.value("select count(*) from almagest.items where user_id is not null") == 0
    finally:
        clear(target)


@pytest.mark.parametrize(
    "table", ["item_tags", "item_versions", "chunks", "pins", "strength_signals", "facts", "audit_log"]
)
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


def test_a_person_does_not_go_into_another_org_of_the_same_database(server: Server) -> None:
    ann = fill(server, Org(server, "acme"))
    _, anna = prepared(server)
    with pytest.raises(Problem, match=r"Line 2: is in this database already"):
        imported(server, exported(server, "acme", ann["user"]), "globular", anna["user"])


def test_unknown_names(server: Server) -> None:
    org = Org(server, "acme")
    for names, code in ((("nobody", None), "unknown_org"), ((org.slug, "nobody@acme"), "unknown_member")):
        with pytest.raises(Problem) as caught:
            exported(server, *names)
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
