"""Filters: each alone, every two of them, one of several, and what they cost."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database.support import Caller, Org, Refused, Server, ids, one_hot, search

DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    """One item as filters see it, known from how it was made."""

    id: str
    user: str | None
    client: str | None
    deal: str | None
    agents: tuple[str, ...]
    kind: str
    type: str
    origin: str
    tier: str
    title: str | None
    tags: frozenset[str]
    project: str | None
    folder: str | None
    agent_name: str | None
    source_ref: str | None
    conversation: str | None
    mime_type: str | None
    file_name: str | None
    metadata: dict[str, Any]
    priority: float
    created: datetime
    updated: datetime
    occurred: datetime | None


@dataclass
class Library:
    """An org with many items that differ in all that filters ask for, and its callers."""

    server: Server
    callers: dict[str, Caller] = field(default_factory=dict)
    sees: dict[str, Callable[[Row], bool]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    folders: dict[str, str] = field(default_factory=dict)
    filters: list[dict[str, Any]] = field(default_factory=list)


def _folders(server: Server, org: Org) -> dict[str, str]:
    """Three folders inside one another, and one beside them."""
    folders: dict[str, str] = {}
    for name, parent in (("top", None), ("middle", "top"), ("bottom", "middle"), ("beside", None)):
        folders[name] = server.value(
            "insert into almagest.folders (org_id, parent_id, name) values (%s, %s, %s) returning id::text",
            *(org.id, folders.get(parent or ""), name),
        )
    return folders


def _build(server: Server, org: Org) -> Library:
    library = Library(server)
    rng = random.Random(7)  # noqa: S311
    for slug in ("north", "south"):
        org.client(slug)
    places: dict[str | None, Any] = {None: None}
    for table, slugs in (
        ("clients", ("north", "south")),
        ("deals", ("deal-n", "deal-s")),
        ("projects", ("one", "two")),
    ):
        for slug in slugs:
            if table == "deals":
                org.deal(slug, "north" if slug == "deal-n" else "south")
            if table == "projects":
                org.project(slug)
            places[slug] = server.value(f"select id from almagest.{table} where slug = %s", slug)
    member, scribe = org.member(clients=["north"]), org.agent("scribe", deals=["deal-s"])
    clerk = org.agent("clerk")
    other = org.member()
    library.callers = {"owner": org.owner, "member": member, "scribe": scribe}
    library.sees = {
        "owner": lambda row: row.user in (None, org.owner["user"]),
        "member": lambda row: (
            row.user in (None, member["user"]) and row.client in (None, "north") and row.deal in (None, "deal-n")
            and not row.agents
        ),
        "scribe": lambda row: (
            row.user is None and row.client in (None, "south") and row.deal in (None, "deal-s")
            and (not row.agents or "scribe" in row.agents)
        ),
    }  # fmt: skip
    library.folders = _folders(server, org)
    agent_ids = {"scribe": scribe["agent"], "clerk": clerk["agent"]}
    for number in range(120):
        client, deal = rng.choice([(None, None)] * 3 + [("north", None), ("north", "deal-n"), ("south", "deal-s")])
        agents = tuple(rng.choice([[]] * 4 + [["scribe"], ["clerk"], ["scribe", "clerk"]]))
        user = rng.choice([None] * 6 + [org.owner["user"], member["user"], other["user"]]) if not agents else None
        folder = rng.choice([None, "top", "middle", "bottom", "beside"])
        kind = rng.choice(["memory", "page", "file"])
        file_name = rng.choice(["a.md", "B.PDF", "c.tar.gz", "md", None]) if kind == "file" else None
        metadata = rng.choice([{}, {"a": {"b": 1}}, {"a": {"b": 2}, "c": ["x", "y"]}, {"a": None}])
        row = Row(
            id="",
            user=user,
            client=client,
            deal=deal,
            agents=agents,
            kind=kind,
            type=rng.choice(["note", "decision", "playbook"]),
            origin=rng.choice(["upload", "chat", "agent"]),
            tier=rng.choice(["hot", "warm"]),
            title=rng.choice([None, "Zebra Report", "a report on 100%", "Plan"]),
            tags=frozenset(rng.sample(["red", "green", "blue"], rng.randint(0, 3))),
            project=rng.choice([None, "one", "two"]),
            folder=folder,
            agent_name=rng.choice([None, "Ada", "Grace"]),
            source_ref=rng.choice([None, "mail-1", "mail-2"]),
            conversation=rng.choice([None, "standup", "retro"]),
            mime_type=rng.choice(["text/markdown", "Application/PDF", None]) if kind == "file" else None,
            file_name=file_name,
            metadata=metadata,
            priority=rng.choice([0.25, 0.5, 0.75]),
            created=FIRST + rng.randint(0, 30) * DAY,
            updated=FIRST + rng.randint(40, 60) * DAY,
            occurred=rng.choice([None, FIRST + rng.randint(0, 30) * DAY]),
        )
        item = org.item(
            f"zebra n{number}x",
            one_hot(1),
            tags=sorted(row.tags),
            agents=[agent_ids[slug] for slug in agents],
            user_id=user,
            client_id=places[client],
            deal_id=places[deal],
            project_id=places[row.project],
            folder_id=library.folders.get(folder or ""),
            kind=kind,
            type=row.type,
            origin=row.origin,
            tier=row.tier,
            title=row.title,
            agent_name=row.agent_name,
            source_ref=row.source_ref,
            conversation_id=row.conversation,
            conversation_position=number if row.conversation else None,
            mime_type=row.mime_type,
            file_name=file_name,
            metadata=Jsonb(metadata),
            priority=row.priority,
            created_at=row.created,
            updated_at=row.updated,
            occurred_at=row.occurred,
        )
        library.rows.append(Row(**{**row.__dict__, "id": item}))
    library.filters = _filters(library)
    server.rows("analyze")
    return library


def _filters(library: Library) -> list[dict[str, Any]]:
    """Filters to be tried alone and in pairs: one or two of each name, and empty lists."""
    middle, beside = library.folders["middle"], library.folders["beside"]
    time = (FIRST + 15 * DAY).isoformat()
    return [
        {"kind": "memory"}, {"kind": ["page", "file"]}, {"kind": []},
        {"type": ["decision", "playbook"]}, {"type": "nothing"},
        {"tags": ["red"]}, {"tags": ["red", "blue", "red"]}, {"tags": []},
        {"tags_any": ["red", "green"]}, {"tags_any": []},
        {"folder": middle}, {"folder": [middle, beside]}, {"folder_tree": middle}, {"folder_tree": []},
        {"project": "one"}, {"project": ["one", "nowhere"]}, {"client": "north"}, {"deal": ["deal-s", "deal-n"]},
        {"agent": "scribe"}, {"agent": ["clerk", "nobody"]},
        {"origin": ["chat", "upload"]}, {"agent_name": "Ada"}, {"source_ref": ["mail-1", "mail-2"]},
        {"mime_type": "application/pdf"}, {"extension": ["md", "gz"]}, {"extension": "tar.gz"},
        {"title": "REPORT"}, {"title": "%"},
        {"metadata": {"a": {"b": 1}}}, {"metadata": {"c": ["y"]}}, {"metadata": {"a": None}}, {"metadata": {}},
        {"conversation": "standup"}, {"tier": ["hot", "archive"]},
        {"created_after": time}, {"created_before": time}, {"occurred_after": time}, {"occurred_before": time},
        {"updated_after": (FIRST + 50 * DAY).isoformat()}, {"updated_before": (FIRST + 50 * DAY).isoformat()},
        {"priority_min": 0.5}, {"priority_max": 0.5},
        {"any": [{"kind": "memory", "tags": ["red"]}, {"title": "plan"}, {"metadata": {"a": {}}}]}, {"any": []},
    ]  # fmt: skip


def _listed(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else [wanted]


def _contains(held: Any, wanted: Any) -> bool:
    """JSON containment, said once more."""
    if isinstance(wanted, dict):
        return isinstance(held, dict) and all(key in held and _contains(held[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(held, list) and all(any(_contains(one, each) for one in held) for each in wanted)
    return type(held) is type(wanted) and held == wanted


def _below(library: Library, folders: list[str]) -> set[str | None]:
    names = {library.folders[name]: name for name in library.folders}
    below = {"top": {"top", "middle", "bottom"}, "middle": {"middle", "bottom"}}
    return {each for folder in folders for each in below.get(names[folder], {names[folder]})}


def _passes(library: Library, row: Row, name: str, wanted: Any) -> bool:
    match name:
        case "any":
            return any(_passes_all(library, row, one) for one in wanted)
        case "tags":
            return bool(wanted) and set(wanted) <= row.tags
        case "tags_any":
            return bool(set(wanted) & row.tags)
        case "folder":
            return row.folder is not None and library.folders[row.folder] in _listed(wanted)
        case "folder_tree":
            return row.folder in _below(library, _listed(wanted))
        case "agent":
            return bool(set(_listed(wanted)) & set(row.agents))
        case "mime_type":
            return row.mime_type is not None and row.mime_type.lower() in _listed(wanted)
        case "extension":
            return row.file_name is not None and any(row.file_name.lower().endswith(f".{e}") for e in _listed(wanted))
        case "title":
            return row.title is not None and wanted.lower() in row.title.lower()
        case "metadata":
            return _contains(row.metadata, wanted)
        case "priority_min":
            return row.priority >= wanted
        case "priority_max":
            return row.priority <= wanted
        case _ if name.endswith(("_after", "_before")):
            moment = getattr(row, name.partition("_")[0])
            return moment is not None and (moment.isoformat() >= wanted) == name.endswith("after")
        case _:
            return getattr(row, name) in _listed(wanted)


def _passes_all(library: Library, row: Row, filters: dict[str, Any]) -> bool:
    return all(_passes(library, row, name, wanted) for name, wanted in filters.items())


def _found(library: Library, caller: str, filters: dict[str, Any]) -> list[str]:
    """Items of the chunks that the engine would search."""
    return library.server.rows(
        "select k.item_id::text from engine.resolve_caller(%s) as c"
        " join almagest.chunks as k on k.id = any(engine.matching_chunks(c, '{active}', %s, null))",
        *(Jsonb(library.callers[caller]), Jsonb(filters)),
    )


@pytest.fixture
def library(server: Server, org: Org) -> Library:
    """The org, read only."""
    return _build(server, org)


def test_every_two_filters_let_through_what_passes_both(library: Library) -> None:
    """S15: for a person, an agent and the owner; of the private items of others, never one."""
    combinations = [{}, *library.filters]
    combinations += [
        {**one, **two} for one, two in itertools.combinations(library.filters, 2) if not one.keys() & two.keys()
    ]
    passing = [{row.id for row in library.rows if _passes_all(library, row, filters)} for filters in combinations]
    assert sum(1 for some in passing if some) > len(passing) / 3
    for caller, sees in library.sees.items():
        visible = {row.id for row in library.rows if sees(row)}
        assert 0 < len(visible) < len(library.rows)
        for filters, passes in zip(combinations, passing, strict=True):
            found = _found(library, caller, filters)
            assert len(found) == len(set(found)), filters
            assert set(found) == passes & visible, (caller, filters)


def test_each_filter_is_kept_by_the_whole_search(library: Library) -> None:
    for caller, sees in library.sees.items():
        for filters in library.filters:
            answer = search(library.server, library.callers[caller], "zebra", one_hot(1), k=100, filters=filters)
            expected = {row.id for row in library.rows if sees(row) and _passes_all(library, row, filters)}
            assert len(answer["results"]) == min(len(expected), 100), (caller, filters)
            assert set(ids(answer)) <= expected, (caller, filters)


def test_alternatives_hold_beside_all_other_filters(library: Library) -> None:
    alternatives = [{"type": "decision"}, {"tags": ["red"], "kind": "page"}]
    for filters in (
        {"any": alternatives, "origin": "chat"},
        {"any": [{}], "origin": "chat"},
        {"any": alternatives[:1]},
    ):
        expected = {row.id for row in library.rows if _passes_all(library, row, filters)}
        assert set(_found(library, "owner", filters)) == {
            row.id for row in library.rows if row.id in expected and library.sees["owner"](row)
        }


def test_an_empty_list_lets_nothing_through(library: Library) -> None:
    names = "kind type tags tags_any folder folder_tree project client deal agent origin agent_name source_ref"
    for name in [*names.split(), "mime_type", "extension", "conversation", "tier", "any"]:
        assert _found(library, "owner", {name: []}) == [], name


def test_nulls_are_no_filters(server: Server) -> None:
    given = {"kind": None, "metadata": {"a": None}, "any": [{"type": None, "title": "x"}, {"type": None}]}
    assert server.value("select engine.given_filters(%s)", Jsonb(given)) == {
        "metadata": {"a": None},
        "any": [{"title": "x"}, {}],
    }
    assert server.value("select engine.given_filters(null)") == {}


def test_a_name_that_is_none_is_refused(server: Server, org: Org) -> None:
    for filters in ({"user": "x"}, {"any": [{"user": "x"}]}, {"1=1) or (true": "x"}):
        with pytest.raises(Refused) as refused:
            search(server, org.owner, "zebra", filters=filters)
        assert (refused.value.status, refused.value.code) == (422, "unknown_filter")


@pytest.mark.parametrize("value", ["'", "' or true --", "\\", "%s", "$1", "{}", '"', "x') or ('a' = 'a", "漢"])
def test_values_are_never_sql(library: Library, value: str) -> None:
    for name in ("kind", "type", "title", "source_ref", "conversation", "agent_name", "project", "agent", "extension"):
        assert _found(library, "owner", {name: value}) == ([] if name != "title" else _titled(library, value)), name
    assert _found(library, "owner", {"tags": [value]}) == []
    assert _found(library, "owner", {"metadata": {value: value}}) == []
    assert _found(library, "owner", {"any": [{"type": value}, {"tags_any": [value]}]}) == []


def _titled(library: Library, value: str) -> list[str]:
    return [row.id for row in library.rows if row.title and value in row.title and library.sees["owner"](row)]


def test_folders_that_lie_in_each_other_in_a_ring_end(server: Server, org: Org) -> None:
    folders = _folders(server, org)
    server.rows("update almagest.folders set parent_id = %s where id = %s", folders["bottom"], folders["top"])
    item = org.item("zebra", folder_id=folders["middle"])
    assert ids(search(server, org.owner, "zebra", filters={"folder_tree": folders["bottom"]})) == [item]


def test_a_folder_of_another_org_holds_nothing(server: Server, org: Org) -> None:
    other = Org(server, "other")
    folders = _folders(server, other)
    other.item("zebra", folder_id=folders["top"])
    for name in ("folder", "folder_tree"):
        assert search(server, org.owner, "zebra", filters={name: folders["top"]})["results"] == []


# What they cost

CROWD = """
insert into almagest.items (org_id, kind, type, title, content, content_hash, origin, conversation_id,
    conversation_position, metadata, folder_id, project_id, client_id, created_at, occurred_at, source_ref,
    index_status)
select o.id, 'memory', case when n %% 2000 = 0 then 'playbook' else 'note' end, 'Title ' || n, 'Text ' || n,
    lpad(n::text, 64, '0'), 'agent', case when n %% 2 = 0 then 'talk ' || n / 200 end, n,
    jsonb_build_object('n', n), f.ids[1 + n %% 200], p.ids[1 + n %% 200], k.ids[1 + n %% 200],
    '2026-01-01'::timestamptz + make_interval(mins => n), '2025-01-01'::timestamptz + make_interval(mins => n),
    'ref ' || n / 10, 'search_ready'
from almagest.orgs as o, generate_series(1, 40000) as n,
    (select array_agg(id) as ids from almagest.folders) as f,
    (select array_agg(id) as ids from almagest.projects) as p,
    (select array_agg(id) as ids from almagest.clients) as k
where o.id = %s;
"""


@pytest.fixture
def crowd(server: Server, org: Org) -> str:
    """An org of 40,000 items of one chunk each, and a folder in it."""
    for table in ("projects", "clients"):
        server.rows(
            f"insert into almagest.{table} (org_id, slug, name)"
            " select %s, 'place' || n, 'n' from generate_series(1, 200) as n",
            org.id,
        )
    server.rows(
        "insert into almagest.folders (org_id, name) select %s, 'folder ' || n from generate_series(1, 200) as n",
        org.id,
    )
    server.rows(CROWD, org.id)
    server.rows(
        "insert into almagest.item_tags (item_id, org_id, tag)"
        " select id, org_id, 'tag ' || conversation_position %% 300 from almagest.items where org_id = %s"
        " union all select id, org_id, 'common' from almagest.items where org_id = %s",
        *(org.id, org.id),
    )
    server.rows(
        "insert into almagest.chunks (item_id, org_id, position, start_offset, end_offset, text)"
        " select id, org_id, 0, 0, 1, content from almagest.items where org_id = %s",
        org.id,
    )
    server.rows(
        "vacuum analyze almagest.items, almagest.item_tags, almagest.chunks, almagest.folders, almagest.projects"
    )
    server.rows("analyze")
    folder: str = server.value("select min(id::text) from almagest.folders")
    return folder


def _plan(server: Server, caller: Caller, filters: dict[str, Any], as_of: str | None = None) -> list[str]:
    server.rows(
        "create or replace function pg_temp.explained("
        "c engine.caller, states text[], filters jsonb, as_of timestamptz) returns setof text language plpgsql as $$"
        " begin return query execute 'explain ' || engine.matching_query(filters, as_of is not null)"
        " using c, states, filters, as_of; end $$"
    )
    return server.rows(
        "select plan.line from engine.resolve_caller(%s) as c"
        " cross join lateral pg_temp.explained(c, '{active}', %s, %s) as plan (line)",
        *(Jsonb(caller), Jsonb(filters), as_of),
    )


def test_selective_filters_are_answered_from_their_indexes(server: Server, org: Org, crowd: str) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tags": ["tag 7"]}, "item_tags_tag"),
        ({"tags": ["common", "tag 7"]}, "item_tags_tag"),
        ({"conversation": "talk 7"}, "items_conversation"),
        ({"project": "place7"}, "items_project"),
        ({"client": "place7"}, "items_client"),
        ({"folder": crowd}, "items_folder"),
        ({"folder_tree": crowd}, "items_folder"),
        ({"type": "playbook"}, "items_type"),
        ({"source_ref": "ref 7"}, "items_source"),
        ({"metadata": {"n": 7}}, "items_metadata"),
        ({"created_after": "2026-01-28T18:00:00Z"}, "items_created"),
        ({"occurred_before": "2025-01-01T02:00:00Z"}, "items_occurred"),
        ({"updated_before": "2026-01-01T00:00:00Z"}, "items_recent"),
    ]
    for filters, index in cases:
        plan = "\n".join(_plan(server, org.owner, filters))
        assert index in plan, (filters, plan)
        assert "chunks_place" in plan, (filters, plan)
        assert "Seq Scan on items" not in plan, (filters, plan)
        assert "Seq Scan on chunks" not in plan, (filters, plan)


def test_a_wide_filter_does_not_look_up_item_after_item(server: Server, org: Org, crowd: str) -> None:
    for filters, as_of in (({"kind": "memory"}, None), ({}, "2027-01-01T00:00:00Z"), ({"tags": ["common"]}, None)):
        plan = "\n".join(_plan(server, org.owner, filters, as_of))
        assert "Nested Loop" not in plan, (filters, plan)
