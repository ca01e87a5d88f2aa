"""Who sees what: every caller against every item, on every path that reads or writes, and each layer by itself."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from infra.local.postgres import Postgres
from tests.database.support import (
    MODEL,
    Caller,
    Org,
    Refused,
    Server,
    attempt,
    digest,
    ids,
    literal,
    memory,
    one_hot,
    search,
    serve,
    unique_key,
    write,
    write_one,
)
from tests.database.world import Item, Who, World, build, may_find, may_see
from tests.support import Database, clone

Probe = Callable[[World, Who, Item], bool]


@pytest.fixture(scope="module")
def world(cluster: Postgres, template_database: Database) -> Iterator[World]:
    """One world for all tests that change nothing in it."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        yield build(server)


def disagreements(world: World, probe: Probe, expected: Callable[[Who, Item], bool]) -> list[str]:
    """Where a probe does not find what it should: `+` leaks, `-` hides."""
    return [
        f"{'-' if expected(who, item) else '+'} {who.name} / {item.name}"
        for who in world.callers
        for item in world.items
        if probe(world, who, item) != expected(who, item)
    ]


def _found(answer: dict[str, Any], item: Item) -> bool:
    return item.id in ids(answer) or item.word in str(answer)


def by_words(world: World, who: Who, item: Item, **fields: Any) -> bool:
    return _found(search(world.server, who.caller, item.word, k=100, **fields), item)


def by_vector(world: World, who: Who, item: Item, **fields: Any) -> bool:
    answer = search(world.server, who.caller, None, item.vector, k=100, **fields)
    assert answer["mode"] == "vector"
    return _found(answer, item)


def by_both(world: World, who: Who, item: Item, **fields: Any) -> bool:
    answer = search(world.server, who.caller, item.word, item.vector, k=100, **fields)
    assert answer["mode"] == "hybrid"
    return _found(answer, item)


@pytest.mark.parametrize("probe", [by_words, by_vector, by_both])
@pytest.mark.parametrize("archived", [False, True])
def test_a_search_finds_what_its_caller_may_see_in_every_mode(world: World, probe: Any, archived: bool) -> None:
    """P1, P3, P5."""

    def look(world: World, who: Who, item: Item) -> bool:
        return bool(probe(world, who, item, include_archived=archived))

    assert disagreements(world, look, lambda who, item: may_find(who, item, archived=archived)) == []


def test_a_search_for_a_common_word_finds_all_that_its_caller_may_see(world: World) -> None:
    for who in world.callers:
        answer = search(world.server, who.caller, "common note", k=100)
        assert set(ids(answer)) == {item.id for item in world.items if may_find(who, item)}, who.name


def test_filters_reach_nothing_hidden(world: World) -> None:
    for who in world.callers:
        for filters in ({"client": "north"}, {"deal": ["north-one", "south-one"]}, {"title": "title"}):
            answer = search(world.server, who.caller, "common", k=100, filters=filters)
            assert set(ids(answer)) <= {item.id for item in world.items if may_find(who, item)}, who.name
        for item in world.items:
            tagged = search(world.server, who.caller, "common", filters={"tags": [f"{item.word}tag"]})
            assert _found(tagged, item) == may_find(who, item), (who.name, item.name)


def _is_not_found(answer: Any) -> bool:
    return isinstance(answer, Refused) and (answer.status, answer.code) == (404, "not_found")


def test_an_item_opens_for_those_who_may_see_it(world: World) -> None:
    def opens(world: World, who: Who, item: Item) -> bool:
        answer = attempt(world.server, "get_item", who.caller, {"id": item.id})
        return not _is_not_found(answer) and bool(answer["id"] == item.id)

    assert disagreements(world, opens, may_see) == []


def test_chunks_open_for_those_who_may_see_the_item(world: World) -> None:
    def opens(world: World, who: Who, item: Item) -> bool:
        answer = attempt(world.server, "get_chunks", who.caller, {"id": item.id})
        return not _is_not_found(answer) and item.word in str(answer)

    assert disagreements(world, opens, may_see) == []


def test_index_status_counts_what_its_caller_may_see(cluster: Postgres, template_database: Database) -> None:
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        world = build(server)
        server.rows("update almagest.items set index_status = 'text_ready' where state <> 'erased'")
        for who in world.callers:
            visible = sum(may_see(who, item) for item in world.items)
            expected = {"pending": visible, "indexing": 0, "failed": 0}
            assert server.call("index_status", who.caller) == expected, who.name


def test_a_bootstrap_holds_what_its_caller_may_see(cluster: Postgres, template_database: Database) -> None:
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        world = build(server)
        # Everything is pinned for everybody: a pin must not show what its reader may not see.
        server.rows("insert into almagest.pins (org_id, item_id) select org_id, id from almagest.items")
        for who in world.callers:
            findable = {item.id for item in world.items if may_find(who, item)}
            answer = server.call("bootstrap", who.caller, {"query": "common note", "k": 100, "titles": 100})
            assert {entry["id"] for entry in answer["canon"]} == findable, who.name
            assert {entry["id"] for entry in answer["contents"]["items"]} == findable, who.name
            assert sum(entry["count"] for entry in answer["contents"]["types"]) == len(findable), who.name
            assert set(ids(answer["search"])) == findable, who.name
            hidden = [item.word for item in world.items if not may_find(who, item)]
            assert not [word for word in hidden if word in str(answer)], who.name


def test_canon_without_pins_is_what_is_workspace_scoped(world: World) -> None:
    for who in world.callers:
        canon = world.server.call("bootstrap", who.caller, {})["canon"]
        expected = {item.id for item in world.items if item.workspace and may_find(who, item)}
        assert {entry["id"] for entry in canon} == expected, who.name


WRITES: dict[str, dict[str, Any]] = {
    "update_item": {"version": 1, "changes": {"title": "Mine now"}},
    "archive_item": {},
    "restore_item": {},
    "validate_item": {},
    "erase_item": {},
    "pin_item": {"private": True},
    "unpin_item": {"private": True},
}


@pytest.mark.parametrize("name", WRITES)
def test_a_hidden_item_is_like_one_that_never_was(world: World, name: str) -> None:
    """P3: nothing in an error tells that there is something."""
    server = world.server
    before = server.rows("select i::text from almagest.items as i order by id")

    def refusal(who: Who, item: str) -> tuple[int, str, str, dict[str, Any]]:
        request = {"id": item, "idempotency": unique_key(), **WRITES[name]}
        with pytest.raises(Refused) as refused:
            server.call(name, who.caller, request)
        return refused.value.status, refused.value.code, refused.value.message, refused.value.members

    for who in world.callers:
        nothing = refusal(who, str(uuid4()))
        assert nothing[:2] == (404, "not_found")
        for item in world.items:
            if not may_see(who, item):
                assert refusal(who, item.id) == nothing, (who.name, item.name)

    assert server.rows("select i::text from almagest.items as i order by id") == before
    assert server.value("select count(*) from almagest.pins") == 0


def test_traces_are_read_by_those_who_asked(world: World) -> None:
    """P3: what somebody asked is theirs, and so is what they were answered."""
    asked = {}
    for who in world.callers:
        asked[who.name] = search(world.server, who.caller, f"common question of {who.name}")["trace_id"]
    for who in world.callers:
        seen = set(as_reader(world.server, who, "select id::text from almagest.retrievals"))
        mine = {
            asked[other.name]
            for other in world.callers
            if (other.org, other.user, other.agent) == (who.org, who.user, who.agent)
        }
        assert seen & set(asked.values()) == mine, who.name


def test_traces_hold_ids_of_visible_items_only(world: World) -> None:
    for who in world.callers:
        trace = search(world.server, who.caller, "common note", k=100)["trace_id"]
        [stored] = world.server.rows("select trace::text from almagest.retrievals where id = %s", trace)
        hidden = [item for item in world.items if not may_find(who, item)]
        assert not [item.name for item in hidden if item.id in stored or item.word in stored], who.name


# Callers that are nobody


def _strangers(world: World) -> dict[str, Any]:
    acme, user = world["owner"].org, world["owner"].user
    return {
        "no caller": None,
        "an empty one": {},
        "an org alone": {"org": acme},
        "a role alone": {"org": acme, "role": "owner"},
        "an unknown org": {"org": str(uuid4()), "user": user},
        "an unknown user": {"org": acme, "user": str(uuid4()), "role": "owner"},
        "a member of another org": {"org": acme, "user": world["owner of another org"].user, "role": "owner"},
        "an unknown agent": {"org": acme, "agent": str(uuid4())},
        "an unknown agent of a member": {"org": acme, "user": user, "agent": str(uuid4())},
        "an agent of an unknown user": {"org": acme, "user": str(uuid4()), "agent": world["agent"].agent},
        "an agent of another org": {"org": world["owner of another org"].org, "agent": world["agent"].agent},
        "null for all": {"org": None, "user": None, "agent": None, "role": None, "key": None},
    }


ENTRANCES: dict[str, dict[str, Any]] = {
    "search": {"query": "common", "k": 10},
    "get_item": {},
    "get_chunks": {},
    "get_trace": {},
    "index_status": {},
    "bootstrap": {},
    "write_memories": {"memories": []},
    "update_item": {"version": 1, "changes": {"title": "x"}},
    "archive_item": {},
    "restore_item": {},
    "validate_item": {},
    "erase_item": {},
    "pin_item": {},
    "unpin_item": {},
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_nobody_gets_in(world: World, name: str) -> None:
    """P1: fails closed, and says the same whatever is missing."""
    request = {"id": world.item("shared").id, **ENTRANCES[name]}
    said = set()
    for title, stranger in _strangers(world).items():
        with pytest.raises(Refused) as refused:
            world.server.call(name, stranger, request)
        assert (refused.value.status, refused.value.code) == (403, "caller_unknown"), title
        said.add(refused.value.message)
    assert len(said) == 1


def test_a_removed_member_is_out_at_once(server: Server, org: Org) -> None:
    member = org.member()
    item = write_one(server, member, "something private", private=True)
    org.system("remove_member", {"member": member["user"]})

    with pytest.raises(Refused, match="403 caller_unknown"):
        server.call("get_item", member, {"id": item})


def test_a_member_who_joins_again_finds_their_private_items(server: Server, org: Org) -> None:
    member = org.member()
    item = write_one(server, member, "something private", private=True)
    org.system("remove_member", {"member": member["user"]})
    org.system("add_member", {"user_id": member["user"], "email": "again@acme"})

    assert server.call("get_item", member, {"id": item})["private"] is True


def test_the_role_in_the_caller_counts_for_nothing(server: Server, org: Org) -> None:
    """P4: roles are the database's, whatever a cached or forged caller says."""
    org.client("north")
    hidden = write_one(server, org.owner, "about north", client="north")
    member = {**org.member(), "role": "owner", "manages": True, "client_ids": "{}"}

    with pytest.raises(Refused, match="404 not_found"):
        server.call("get_item", member, {"id": hidden})


def test_the_tenant_comes_from_the_caller_only(server: Server, org: Org) -> None:
    """P4: whatever a request names."""
    other = Org(server, "other")
    forged = {"org": other.id, "org_id": other.id, "user": other.owner["user"], "user_id": other.owner["user"]}
    mine = memory("in my own org", **forged)
    request = {"memories": [mine], "model": MODEL, "idempotency": unique_key(), **forged}
    [result] = server.call("write_memories", org.owner, request)["results"]

    assert server.value("select org_id::text from almagest.items where id = %s", result["id"]) == org.id
    assert ids(search(server, other.owner, "own org", **forged)) == []
    members = server.call("list_members", org.owner, {"org": "other"})["members"]
    assert [member["user_id"] for member in members] == [org.owner["user"]]


# What hidden rows may not change


def _answers(server: Server, caller: Caller) -> list[Any]:
    """Everything that an answer says but times and trace ids, for queries that touch the hidden rows' words."""
    answers = []
    for query in ("deployment rollback", "rollback", "deployment of the gateway", "gateway secret", "weekly"):
        for vector in (None, one_hot(1, 2), one_hot(5)):
            answer = search(server, caller, query, vector, k=100, explain=True)
            answer.pop("trace_id")
            answer["explain"].pop("stages_ms")
            answers.append(answer)
    bootstrap = server.call("bootstrap", caller, {"query": "deployment rollback", "k": 100})
    bootstrap.pop("trace_id")
    bootstrap["search"].pop("trace_id")
    return [*answers, bootstrap, server.call("index_status", caller)]


def test_hidden_rows_change_no_answer(server: Server, org: Org) -> None:
    """P3, P6: not in results, counts, candidates or scores, for owners and admins too."""
    org.client("north")
    org.deal("north-one", "north")
    admin, member, scoped = org.member("admin"), org.member(), org.member(clients=["north"])
    agent, other = org.agent("scribe"), Org(server, "other")
    texts = ("deployment of the gateway", "rollback of a deployment", "gateway notes", "weekly report")
    for number, text in enumerate(texts):
        write_one(server, org.owner, text, one_hot(number))
    before = {name: _answers(server, caller) for name, caller in _lookers(org, admin, member, agent).items()}

    for number in range(12):
        text = f"deployment rollback gateway secret weekly {number}"
        write_one(server, scoped, f"{text} private", one_hot(1, 2), private=True, tags=["deployment"])
        write_one(server, other.owner, text, one_hot(1, 2))
        org.item(f"{text} provisional", one_hot(1, 2), state="provisional", user_id=scoped["user"])
    server.rows("update almagest.items set index_status = 'failed' where user_id = %s", scoped["user"])

    after = {name: _answers(server, caller) for name, caller in _lookers(org, admin, member, agent).items()}
    assert after == before


def _lookers(org: Org, admin: Caller, member: Caller, agent: Caller) -> dict[str, Caller]:
    return {"owner": org.owner, "admin": admin, "member": member, "agent": agent}


def test_rows_of_a_hidden_client_change_no_answer(server: Server, org: Org) -> None:
    org.client("north")
    org.deal("north-one", "north")
    member, agent = org.member(), org.agent("scribe")
    assigned = org.agent("assigned")["agent"]
    for number, text in enumerate(("deployment of the gateway", "rollback of a deployment", "gateway notes")):
        write_one(server, member, text, one_hot(number))
    before = [_answers(server, member), _answers(server, agent)]

    for number in range(12):
        text = f"deployment rollback gateway secret weekly {number}"
        write_one(server, org.owner, f"{text} client", one_hot(1, 2), client="north")
        write_one(server, org.owner, f"{text} deal", one_hot(1, 2), deal="north-one")
        org.item(f"{text} assigned", one_hot(1, 2), agents=[assigned])
        org.item(f"{text} provisional", one_hot(1, 2), state="provisional")

    assert [_answers(server, member), _answers(server, agent)] == before


# Neighbours lend their words, hidden ones do not


def _chat(position: int) -> dict[str, Any]:
    return {"conversation": {"id": "chat", "position": position}}


def _say_hidden(org: Org, other: Org, speaker: Caller, kind: str, text: str, position: int) -> str:
    """A turn of the same conversation that the readers of its shared turns may not see, or not find."""
    server, turn = org.server, {"conversation_id": "chat", "conversation_position": position}
    by_api: dict[str, tuple[Caller, dict[str, Any]]] = {
        "private": (speaker, {"private": True}),
        "client": (org.owner, {"client": "north"}),
        "deal": (org.owner, {"deal": "north-one"}),
        "other org": (other.owner, {}),
    }
    if kind in by_api:
        caller, fields = by_api[kind]
        return write_one(server, caller, text, one_hot(1, 2), **fields, **_chat(position))
    if kind == "agent":
        agent = server.value("select id::text from almagest.agents where slug = 'assigned'")
        return org.item(text, one_hot(1, 2), agents=[agent], **turn)
    return org.item(text, one_hot(1, 2), state=kind, **turn)


def _sequences(server: Server, items: Sequence[str]) -> set[Any]:
    return set(server.rows("select sequence, state from almagest.lexical where item_id = any(%s::uuid[])", list(items)))


def _windows(server: Server, items: Sequence[str]) -> list[Any]:
    """(item, score, matched, identifiers, attributes) of what lies around items, for words that hidden turns hold."""
    return server.rows(
        "with wanted as (select row("
        " '{secret,gateway}', '{secret,gateway}'::tsquery[], '{2,2}', '{1.5,1}', 10, 4, 'live', '{true,false}', 2.5"
        ")::engine.query_terms as q)"
        " select w.item_id::text, w.score, w.matched, w.identifiers, w.attributes"
        " from wanted cross join lateral engine.word_scores("
        "  wanted.q, 2, array(select k.id from almagest.chunks as k where k.item_id = any(%s::uuid[])),"
        "  engine.default_knobs()"
        " ) as w order by 1",
        list(items),
    )


def _say_shared(server: Server, caller: Caller) -> list[str]:
    """Four turns, with a place for another after each."""
    return [write_one(server, caller, f"the gateway is down {n}", one_hot(n), **_chat(2 * n)) for n in range(4)]


@pytest.mark.parametrize(
    "kind", ["private", "client", "deal", "agent", "other org", "provisional", "revoked", "archived"]
)
def test_a_hidden_turn_lends_no_words(server: Server, org: Org, kind: str) -> None:
    """P3, P6: who may see a turn is part of the sequence that it stands in, and so is whether it is there."""
    org.client("north")
    org.deal("north-one", "north")
    org.agent("assigned")
    member, other = org.member(), Org(server, "other")
    turns = _say_shared(server, member)
    before = (_windows(server, turns), _answers(server, member))
    assert len(_sequences(server, turns)) == 1

    speaker = org.member()
    hidden = [_say_hidden(org, other, speaker, kind, f"secret gateway {n}", 2 * n + 1) for n in range(4)]

    assert (_windows(server, turns), _answers(server, member)) == before
    assert not _sequences(server, turns) & _sequences(server, hidden)
    assert {row[0] for row in _windows(server, turns)} == set(turns)
    assert {row[0] for row in _windows(server, hidden)} == set(hidden)


@pytest.mark.parametrize("vector", [None, one_hot(1, 2)])
def test_a_hidden_turn_lends_no_words_to_those_who_see_it_either(server: Server, org: Org, vector: Any) -> None:
    """A caller's private turn beside a shared one is found by its own words alone."""
    member = org.member()
    turns = _say_shared(server, member)
    own = write_one(server, member, "a secret", one_hot(1, 2), private=True, **_chat(1))
    answer = search(server, member, "secret", vector)

    assert ids(answer)[0] == own
    assert all(result["scores"]["keyword"] == 0 for result in answer["results"] if result["id"] in turns)


def test_a_visible_turn_lends_its_words(server: Server, org: Org) -> None:
    """So that the tests above would notice."""
    turns = _say_shared(server, org.owner)
    before = {row[0]: row[1] for row in _windows(server, turns)}
    said = write_one(server, org.owner, "a secret of the gateway", one_hot(9), **_chat(1))
    after = {row[0]: row[1] for row in _windows(server, turns)}

    assert set(after) == {*turns, said}
    assert after[turns[0]] > before[turns[0]]
    assert after[turns[1]] > before[turns[1]]
    assert set(ids(search(server, org.owner, "secret"))) > {said, turns[0], turns[1]}


# Deduplication stays within a scope


def test_the_same_text_is_kept_once_in_each_scope(server: Server, org: Org) -> None:
    """W2: and two turns that say the same both stay."""
    for client, deal in (("north", "north-one"), ("south", "south-one")):
        org.client(client)
        org.deal(deal, client)
    org.deal("north-two", "north")
    org.project("website")
    anna, bert = org.member(), org.member()
    other = Org(server, "other")
    places: list[tuple[Caller, dict[str, Any]]] = [
        (org.owner, {}),
        (anna, {"private": True}),
        (bert, {"private": True}),
        (org.owner, {"client": "north"}),
        (org.owner, {"client": "south"}),
        (org.owner, {"deal": "north-one"}),
        (org.owner, {"deal": "north-two"}),
        (org.owner, {"deal": "south-one"}),
        (org.owner, {"client": "north", "private": True}),
        (org.owner, {"project": "website"}),
        (org.owner, {"project": "website", "client": "north"}),
        (org.owner, {"conversation": {"id": "chat", "position": 0}}),
        (org.owner, {"conversation": {"id": "chat", "position": 1}}),
        (org.owner, {"conversation": {"id": "talk", "position": 1}}),
        (org.owner, {"source_ref": "mail-1"}),
        (org.owner, {"source_ref": "mail-2"}),
        (other.owner, {}),
    ]

    def write_all() -> list[dict[str, Any]]:
        return [write(server, caller, memory("Thanks!", one_hot(1), **fields))[0] for caller, fields in places]

    first, second = write_all(), write_all()

    assert len({result["id"] for result in first}) == len(places)
    assert [result["deduplicated"] for result in first] == [False] * len(places)
    assert [result["id"] for result in second] == [result["id"] for result in first]
    assert [result["deduplicated"] for result in second] == [True] * len(places)
    assert server.value("select count(*) from almagest.items") == len(places)


def test_a_deal_names_its_client(server: Server, org: Org) -> None:
    org.client("north")
    org.deal("north-one", "north")
    by_deal = write_one(server, org.owner, "the price is right", deal="north-one")
    by_both = write_one(server, org.owner, "the price is right", deal="north-one", client="north")

    assert by_deal == by_both
    assert server.call("get_item", org.owner, {"id": by_deal})["client"] == "north"


def test_deduplication_is_no_oracle(server: Server, org: Org) -> None:
    """P3: that a hidden row says the same is not to be learned by writing it."""
    org.client("north")
    member, agent = org.member(), org.agent("scribe")
    text = "the launch is on the ninth"
    hidden = [
        write_one(server, org.owner, text, private=True),
        write_one(server, org.owner, text, client="north"),
        org.item(text, state="provisional"),
        org.item(text, state="revoked"),
        org.item(text, agents=[org.agent("assigned")["agent"]]),
        write_one(server, Org(server, "other").owner, text),
    ]

    [result] = write(server, member, memory(text))
    assert not result["deduplicated"]
    assert result["id"] not in hidden
    [private] = write(server, member, memory(text, private=True))
    assert not private["deduplicated"]
    # What everybody sees is no secret.
    [again] = write(server, agent, memory(text))
    assert again == {**result, "deduplicated": True}


def test_a_workspace_item_is_not_restated_by_others(server: Server, org: Org) -> None:
    """Canon is set by those who manage: to say the same is to say it beside."""
    member = org.member()
    workspace = org.item("always be kind", scope="workspace", state="archived")

    [result] = write(server, member, memory("always be kind", tags=["mine"]))

    assert result["id"] != workspace
    assert server.call("get_item", org.owner, {"id": workspace})["state"] == "archived"


def test_edits_do_not_merge_or_tell_across_scopes(server: Server, org: Org) -> None:
    anna, bert = org.member(), org.member()
    write_one(server, anna, "the code is 1234", private=True)
    org.item("the code is 1234", state="provisional")
    item = write_one(server, bert, "the code is 9999", private=True)

    text = "the code is 1234"
    edit = {**memory(text), "id": item, "version": 1, "changes": {"content": text}, "idempotency": unique_key()}
    assert server.call("update_item", bert, edit)["version"] == 2
    shared = write_one(server, bert, "something else")
    assert server.call("update_item", bert, {**edit, "id": shared, "idempotency": unique_key()})["version"] == 2


def test_facts_are_current_within_their_scope(server: Server, org: Org) -> None:
    """P2, W3: scope is part of the key that lets one fact be the current one."""
    org.client("north")
    client = server.value("select id from almagest.clients")
    member, agent = org.member(), org.agent("scribe")

    def fact(**columns: Any) -> None:
        agents = columns.pop("agents", ())
        item = org.item(f"Anna likes tea {uuid4()}", kind="fact", type="fact", agents=agents, **columns)
        server.rows(
            "insert into almagest.facts (item_id, org_id, user_id, client_id, deal_id, agent_ids, subject, relation,"
            " status) select id, org_id, user_id, client_id, deal_id, agent_ids, 'Anna', 'likes', 'active'"
            " from almagest.items where id = %s",
            item,
        )

    scopes: list[dict[str, Any]] = [
        {},
        {"user_id": member["user"]},
        {"user_id": org.owner["user"]},
        {"client_id": client},
        {"agents": [agent["agent"]]},
    ]
    for scope in scopes:
        fact(**scope)
    for scope in scopes:
        with pytest.raises(psycopg.errors.UniqueViolation):
            fact(**scope)


# The first layer by itself: what the engine finds before anything is read


def _as_engine(server: Server, who: Who, query: str, *parameters: object) -> list[Any]:
    """Run a query of the engine's, which has `c`: the caller resolved, and nothing told to row level security."""
    return server.rows(
        f"select found.* from engine.resolve_caller(%s) as c cross join lateral ({query}) as found",
        Jsonb(who.caller),
        *parameters,
    )


_STATES = ["active", "archived"]
_TERMS = "engine.weigh_terms(c, %s, engine.query_terms(%s), %s)"
# As a filter that lets everything through, hidden items too.
_ALL_CHUNKS = "(select array_agg(every.id) from almagest.chunks as every)"


def _keyword_leg(server: Server, who: Who, item: Item, within: str, by_chunk: bool = False) -> bool:
    """Whether a chunk of the item is among those that the leg sends."""
    query = (
        f"select k.item_id::text from engine.keyword_leg("
        f"  c, {_TERMS}, %s, {within}, {by_chunk}, engine.default_knobs(), 100, 10) as leg"
        " join almagest.chunks as k on k.id = any(leg.chunk_ids)"
    )
    return item.id in _as_engine(server, who, query, item.word, item.word, _STATES, _STATES)


def keyword_leg(server: Server, who: Who, item: Item) -> bool:
    return _keyword_leg(server, who, item, "null")


def keyword_leg_by_chunk(server: Server, who: Who, item: Item) -> bool:
    return _keyword_leg(server, who, item, "null", by_chunk=True)


def filtered_keyword_leg(server: Server, who: Who, item: Item) -> bool:
    return _keyword_leg(server, who, item, _ALL_CHUNKS)


def _pruned_keyword_leg(server: Server, who: Who, item: Item, asked: str, rows: int, bound: str) -> bool:
    """As in a large org: the query's terms stand in a thousand times as many rows."""
    query = (
        "select k.item_id::text"
        " from (select (q.terms, q.queries, array(select 1001 * d from unnest(q.documents) as d), q.idfs,"
        "   1001 * q.size, q.average_length, q.counted, q.identifiers, q.all_idf)::engine.query_terms as q"
        f"  from {_TERMS} as q where q.terms is not null) as large"
        " cross join lateral engine.rows_to_read(large.q, c.org_id, %s, false) as r"
        " cross join lateral engine.best_of_rows("
        "  c, large.q, %s, null, false, engine.default_knobs(), 100, r.query, r.conditions) as leg"
        " join almagest.chunks as k on k.id = any(leg.chunk_ids)"
        f" where r.bound {bound}"
    )
    return item.id in _as_engine(server, who, query, asked, asked, _STATES, rows, _STATES)


def pruned_keyword_leg(server: Server, who: Who, item: Item) -> bool:
    """By a rare word where common ones stand beside it."""
    return _pruned_keyword_leg(server, who, item, f"{item.word} common note about", 1000, "< 'infinity'")


def cut_keyword_leg(server: Server, who: Who, item: Item) -> bool:
    """By as many rows as may be read; there are fewer."""
    return _pruned_keyword_leg(server, who, item, "common note", 50, "= 'infinity'")


def weigh_terms(server: Server, who: Who, item: Item) -> bool:
    """The word is in one item alone: where that is hidden, it counts for nothing."""
    query = f"select q.documents from {_TERMS} as q"
    [counts] = _as_engine(server, who, query, item.word, item.word, _STATES)
    return counts is not None


def _vector_leg(server: Server, who: Who, item: Item, within: str, size: float, by_chunk: bool = False) -> bool:
    query = (
        "select k.item_id::text from engine.vector_leg("
        f"  c, engine.parse_vector(%s), engine.model_id(%s), %s, {within}, {by_chunk}, {size}, 0.2, 50) as leg"
        " join almagest.chunks as k on k.id = leg.chunk_id"
    )
    return item.id in _as_engine(server, who, query, literal(item.vector), MODEL, _STATES)


def vector_leg(server: Server, who: Who, item: Item) -> bool:
    return _vector_leg(server, who, item, "null", 10)


def filtered_vector_leg(server: Server, who: Who, item: Item) -> bool:
    return _vector_leg(server, who, item, _ALL_CHUNKS, 10, by_chunk=True)


def vector_leg_by_index(server: Server, who: Who, item: Item) -> bool:
    """As in a large org."""
    return _vector_leg(server, who, item, "null", 1e6)


def _substring_leg(server: Server, who: Who, item: Item, within: str) -> bool:
    query = (
        f"select k.item_id::text from engine.substring_leg(c, %s, %s, {within}, 100) as leg"
        " join almagest.chunks as k on k.id = leg.chunk_id"
    )
    return item.id in _as_engine(server, who, query, f"{item.word} common", _STATES)


def substring_leg(server: Server, who: Who, item: Item) -> bool:
    return _substring_leg(server, who, item, "null")


def filtered_substring_leg(server: Server, who: Who, item: Item) -> bool:
    return _substring_leg(server, who, item, _ALL_CHUNKS)


def _matching_chunks(server: Server, who: Who, item: Item, as_of: str) -> bool:
    matching = f"engine.matching_chunks(c, %s, '{{}}', {as_of})"
    query = f"select k.item_id::text from almagest.chunks as k where k.id = any({matching})"
    return item.id in _as_engine(server, who, query, _STATES)


def matching_chunks(server: Server, who: Who, item: Item) -> bool:
    return _matching_chunks(server, who, item, "null")


def chunks_of_the_past(server: Server, who: Who, item: Item) -> bool:
    return _matching_chunks(server, who, item, "now()")


# Handed every chunk there is, as if the legs had let them slip through.
_RANKED = (
    f"{_TERMS} as q cross join lateral engine.rank("
    "  c, %s, engine.query_terms(%s), q, engine.parse_vector(%s), engine.model_id(%s), %s, %s,"
    "  array(select k.id from almagest.chunks as k), null, {within}, {by_chunk}, engine.default_knobs(), 1000, null"
    ") as ranked"
)


def _rank(server: Server, who: Who, item: Item, mode: str, within: str = "null", by_chunk: bool = False) -> bool:
    query = (
        f"select r.item_id::text from {_RANKED.format(within=within, by_chunk=by_chunk)}"
        " cross join lateral unnest(ranked.candidates) as r"
    )
    asked, vector = item.word, literal(item.vector)
    return item.id in _as_engine(server, who, query, asked, asked, _STATES, asked, asked, vector, MODEL, mode, _STATES)


def rank(server: Server, who: Who, item: Item) -> bool:
    return _rank(server, who, item, "hybrid")


def rank_by_vectors(server: Server, who: Who, item: Item) -> bool:
    return _rank(server, who, item, "vector")


def rank_substrings(server: Server, who: Who, item: Item) -> bool:
    return _rank(server, who, item, "substring")


def filtered_rank(server: Server, who: Who, item: Item) -> bool:
    return _rank(server, who, item, "hybrid", _ALL_CHUNKS, by_chunk=True)


FIRST_LAYER = [
    keyword_leg,
    keyword_leg_by_chunk,
    filtered_keyword_leg,
    pruned_keyword_leg,
    cut_keyword_leg,
    weigh_terms,
    vector_leg,
    filtered_vector_leg,
    vector_leg_by_index,
    substring_leg,
    filtered_substring_leg,
    matching_chunks,
    chunks_of_the_past,
    rank,
    rank_by_vectors,
    rank_substrings,
    filtered_rank,
]


def test_the_ranking_counts_nothing_hidden(world: World) -> None:
    """How many candidates there were is in the trace."""
    for who in world.callers:
        for mode in ("hybrid", "vector", "lexical", "substring"):
            asked, vector = "common", literal(one_hot(1))
            [total] = _as_engine(
                world.server,
                who,
                f"select ranked.total from {_RANKED.format(within='null', by_chunk=False)}",
                *(asked, asked, _STATES, asked, asked, vector, MODEL, mode, _STATES),
            )
            assert total == sum(may_find(who, item, archived=True) for item in world.items), (who.name, mode)


def first_layer(world: World, look: Callable[[Server, Who, Item], bool]) -> list[str]:
    return disagreements(
        world,
        lambda world, who, item: look(world.server, who, item),
        lambda who, item: may_find(who, item, archived=True),
    )


@pytest.mark.parametrize("look", FIRST_LAYER)
def test_the_engine_finds_nothing_hidden(world: World, look: Any) -> None:
    """The visibility predicate alone."""
    assert first_layer(world, look) == []


# The second layer by itself: what the reader gives out when it is asked for hidden items


@contextmanager
def _entered(server: Server, who: Who | None) -> Iterator[None]:
    """A transaction in which row level security knows the caller."""
    with server.owner.transaction():
        if who is not None:
            server.rows("select engine.enter(%s)", Jsonb(who.caller))
        yield


def as_reader(server: Server, who: Who | None, query: str, *parameters: object) -> list[Any]:
    """Run a query as `almagest_reader`, with the caller told to row level security."""
    with _entered(server, who):
        server.rows("set local role almagest_reader")
        return server.rows(query, *parameters)


# A caller who passes the engine's own predicate for the item, whoever row level security knows of.
_SEES_ALL = (
    "(select row(i.org_id, i.user_id, null, 'owner', null, true, '{}', '{}')::engine.caller"
    " from almagest.items as i where i.id = %s)"
)


def read_results(server: Server, who: Who | None, item: Item) -> bool:
    [chunk] = server.rows("select min(id) from almagest.chunks where item_id = %s", item.id)
    candidate = "(%s, %s, 1, 1, 1, 1, '{}', 1, 'high', 1, 1, null, 1, 1)::engine.candidate"
    with _entered(server, who):
        return server.value(f"select engine.read_results(array[{candidate}])", chunk, item.id) != []


def read_item(server: Server, who: Who | None, item: Item) -> bool:
    with _entered(server, who):
        return server.value(f"select engine.read_item({_SEES_ALL}, %s)", item.id, item.id) is not None


def read_chunks(server: Server, who: Who | None, item: Item) -> bool:
    with _entered(server, who):
        return server.value(f"select engine.read_chunks({_SEES_ALL}, %s, -1, 100)", item.id, item.id) != []


def read_neighbours(server: Server, who: Who | None, item: Item) -> bool:
    with _entered(server, who):
        return server.value(f"select engine.read_neighbours({_SEES_ALL}, %s, 2)", item.id, item.id) is not None


def is_readable(server: Server, who: Who | None, item: Item) -> bool:
    with _entered(server, who):
        return bool(server.value("select engine.is_readable(%s)", item.id))


def read_canon(server: Server, who: Who | None, item: Item) -> bool:
    with _entered(server, who):
        return item.id in str(server.value(f"select engine.read_canon({_SEES_ALL})", item.id))


def read_contents(server: Server, who: Who | None, item: Item) -> bool:
    with _entered(server, who):
        return item.id in str(server.value(f"select engine.read_contents({_SEES_ALL}, 100)", item.id))


def select_item(server: Server, who: Who | None, item: Item) -> bool:
    return as_reader(server, who, "select 1 from almagest.items where id = %s", item.id) != []


def select_chunks(server: Server, who: Who | None, item: Item) -> bool:
    return as_reader(server, who, "select 1 from almagest.chunks where item_id = %s", item.id) != []


def select_tags(server: Server, who: Who | None, item: Item) -> bool:
    return as_reader(server, who, "select 1 from almagest.item_tags where item_id = %s", item.id) != []


def select_strength(server: Server, who: Who | None, item: Item) -> bool:
    return as_reader(server, who, "select 1 from almagest.strength_signals where item_id = %s", item.id) != []


def select_versions(server: Server, who: Who | None, item: Item) -> bool:
    return as_reader(server, who, "select 1 from almagest.item_versions where item_id = %s", item.id) != []


SECOND_LAYER = [
    read_results,
    read_item,
    read_chunks,
    read_neighbours,
    is_readable,
    select_item,
    select_chunks,
    select_tags,
    select_strength,
    select_versions,
]


@pytest.fixture(scope="module")
def deep_world(cluster: Postgres, template_database: Database) -> Iterator[World]:
    """The world with an old version of every item, and everything pinned."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        world = build(server)
        server.rows(
            "insert into almagest.item_versions (item_id, version, org_id, user_id, type, content, metadata, tags,"
            " priority, valid_from, valid_to)"
            " select id, 0, org_id, user_id, type, 'old', '{}', '{}', 0.5, now(), now() from almagest.items"
        )
        server.rows("insert into almagest.pins (org_id, item_id) select org_id, id from almagest.items")
        yield world


@pytest.mark.parametrize("look", SECOND_LAYER)
def test_the_reader_gives_out_nothing_hidden(deep_world: World, look: Any) -> None:
    """Row level security alone, asked for every item by its id."""

    def expected(who: Who, item: Item) -> bool:
        return may_see(who, item)

    assert disagreements(deep_world, lambda world, who, item: look(world.server, who, item), expected) == []


@pytest.mark.parametrize("look", [read_canon, read_contents])
def test_the_reader_lists_nothing_hidden(deep_world: World, look: Any) -> None:
    assert disagreements(deep_world, lambda world, who, item: look(world.server, who, item), may_find) == []


@pytest.mark.parametrize("look", [*SECOND_LAYER, read_canon, read_contents])
def test_the_reader_gives_out_nothing_without_a_caller(deep_world: World, look: Any) -> None:
    for item in deep_world.items:
        assert not look(deep_world.server, None, item), item.name


def test_the_caller_is_forgotten_with_its_transaction(world: World) -> None:
    server = world.server
    search(server, world["owner"].caller, "common")
    [setting] = server.api.execute("select current_setting('almagest.caller', true)").fetchone() or [None]
    assert not setting


def test_the_reader_sees_the_pins_and_places_of_its_caller(server: Server, org: Org) -> None:
    org.client("north")
    org.client("south")
    member, other = org.member(clients=["north"]), Org(server, "other")
    for caller in (member, org.owner):
        item = write_one(server, caller, "to remember", private=True)
        server.call("pin_item", caller, {"id": item, "private": True, "idempotency": unique_key()})
    who = Who("member", member, org.id)

    assert as_reader(server, who, "select user_id::text from almagest.pins") == [member["user"]]
    assert as_reader(server, who, "select slug from almagest.clients") == ["north"]
    assert as_reader(server, Who("owner", other.owner, other.id), "select slug from almagest.clients") == []


# Negative controls: with one layer gone, these tests notice, and the other layer still holds


VISIBLE_TO_ALL = """
create or replace function engine.visible(
    c engine.caller, org_id uuid, user_id uuid, client_id uuid, deal_id uuid, agent_ids uuid[]
)
returns boolean language sql immutable parallel safe as $$ select true $$
"""


@pytest.fixture
def without_first_layer(cluster: Postgres, template_database: Database) -> Iterator[World]:
    """A world whose visibility predicate lets everything through."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        world = build(server)
        server.rows(VISIBLE_TO_ALL)
        yield world


@pytest.fixture
def without_second_layer(cluster: Postgres, template_database: Database) -> Iterator[World]:
    """A world whose policies let everything through."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        world = build(server)
        for table, policy in server.rows("select tablename, policyname from pg_policies where schemaname = 'almagest'"):
            server.rows(f"alter policy {policy} on almagest.{table} using (true)")
        yield world


def _leaks(found: list[str]) -> bool:
    return any(line.startswith("+") for line in found)


def _everything_said(world: World) -> dict[str, str]:
    """All that each caller can get out of the reading functions, as text."""
    server, said = world.server, {}
    for who in world.callers:
        parts = [server.call("bootstrap", who.caller, {"query": "common note", "k": 100, "titles": 100})]
        for vector in (None, one_hot(*range(len(world.items)))):
            parts.append(search(server, who.caller, "common note", vector, k=100, include_archived=True))
        for item in world.items:
            for name in ("get_item", "get_chunks", "get_neighbours"):
                parts.append(attempt(server, name, who.caller, {"id": item.id}))
        said[who.name] = str(parts)
    return said


def _nothing_hidden_is_said(world: World) -> None:
    said = _everything_said(world)
    for who in world.callers:
        hidden = [item for item in world.items if not may_see(who, item)]
        assert not [item.name for item in hidden if item.id in said[who.name] or item.word in said[who.name]], who.name


@pytest.mark.parametrize("look", FIRST_LAYER)
def test_the_first_layers_tests_notice_its_absence(without_first_layer: World, look: Any) -> None:
    assert _leaks(first_layer(without_first_layer, look))


def test_without_the_first_layer_nothing_hidden_leaves(without_first_layer: World) -> None:
    _nothing_hidden_is_said(without_first_layer)


@pytest.mark.parametrize("name", WRITES)
def test_without_the_first_layer_nothing_hidden_is_changed(without_first_layer: World, name: str) -> None:
    test_a_hidden_item_is_like_one_that_never_was(without_first_layer, name)


def test_the_second_layers_tests_notice_its_absence(without_second_layer: World) -> None:
    for look in (
        read_results,
        read_item,
        read_chunks,
        read_neighbours,
        is_readable,
        select_item,
        select_chunks,
        select_tags,
    ):
        found = disagreements(
            without_second_layer, lambda world, who, item, look=look: look(world.server, who, item), may_see
        )
        assert _leaks(found), look.__name__


def test_without_the_second_layer_nothing_hidden_leaves(without_second_layer: World) -> None:
    _nothing_hidden_is_said(without_second_layer)


def test_with_neither_layer_everything_leaves(without_second_layer: World) -> None:
    """So that the two tests above would notice."""
    without_second_layer.server.rows(VISIBLE_TO_ALL)
    with pytest.raises(AssertionError):
        _nothing_hidden_is_said(without_second_layer)


def test_a_private_digest_is_no_secret_key(server: Server, org: Org) -> None:
    """The hash in a request decides nothing about whose row it meets."""
    anna, bert = org.member(), org.member()
    item = write_one(server, anna, "mine", private=True)
    [result] = write(server, bert, {**memory("yours", private=True), "content_hash": digest("mine")})

    assert result["id"] != item
    assert not result["deduplicated"]
