"""P3, P5, P6: in every way a search can be answered, nobody learns of what they may not see; and how it was answered.

A way is forced by taking away what it would need: the request's vector, its words, the vector index, the vectors, the
terms, or both. Every caller of the world asks in each way, and looks at all that comes back.
"""

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

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
    call,
    ids,
    literal,
    one_hot,
    search,
    serve,
    unique_key,
    write_one,
)
from tests.database.world import Item, Who, World, build, may_find
from tests.support import Database, clone

ALL_AXES = one_hot(*range(40))
NO_TERMS = "delete from almagest.lexical"
NO_VECTORS = "delete from almagest.embeddings"


@dataclass(frozen=True)
class Way:
    """A way to be answered.

    Attributes
    ----------
    mode
        What the answer has to say; None for one of `modes`.
    taken
        What the database loses first.
    words, vector
        Whether the request has them.
    degraded
        Whether the answer has to give a reason.
    """

    mode: str
    taken: tuple[str, ...] = ()
    words: bool = True
    vector: bool = True
    degraded: bool = True

    def request(self, **fields: Any) -> dict[str, Any]:
        """A search for what every item of the world holds, in its words and in its vector."""
        return {
            "query": "common note" if self.words else None,
            "embedding": literal(ALL_AXES) if self.vector else None,
            "model": MODEL if self.vector else None,
            "degraded_reason": None if self.vector else "embedder_failed",
            "k": 100,
            **fields,
        }


WAYS = {
    "both legs": Way("hybrid", degraded=False),
    "no vector index": Way("hybrid", ("drop index almagest.embeddings_vector_1",), degraded=False),
    "no words": Way("vector", words=False),
    "no embedder": Way("lexical", vector=False),
    "no word index": Way("substring", ("drop index almagest.lexical_terms",), vector=False),
    "no vectors": Way("lexical", (NO_VECTORS,)),
    "no terms": Way("vector", (NO_TERMS,)),
    "neither vectors nor terms": Way("substring", (NO_TERMS, NO_VECTORS)),
    "no embedder and no terms": Way("substring", (NO_TERMS,), vector=False),
}
# One of each kind, where trying all of them takes long.
KINDS = (
    "owner", "admin", "member", "member with client", "project_manager with deal", "agent with client",
    "assigned agent", "agent of member with client", "owner of another org",
)  # fmt: skip
# The same legs answer with an index or without, so most tests leave these out.
WITHOUT_INDEX = {"no vector index", "no word index"}


def each_way(*names: str) -> pytest.MarkDecorator:
    """Parametrise by ways."""
    return pytest.mark.parametrize("name", names or [name for name in WAYS if name not in WITHOUT_INDEX])


@dataclass
class Worlds:
    """A world for each of what is taken away, made when it is asked for."""

    cluster: Postgres
    template: str
    stack: ExitStack
    made: dict[tuple[str, ...], World]

    def __getitem__(self, taken: tuple[str, ...]) -> World:
        if taken not in self.made:
            copy = self.stack.enter_context(clone(self.cluster, self.template))
            server = self.stack.enter_context(serve(copy))
            world = build(server)
            for who in ("owner", "owner of another org"):
                # the vector of the searches is as near to one item as to another, and not very
                knobs = {"vector_threshold": 0, "fused_floor": 0, "keyword_only_cap": 1}
                server.call("put_profile", world[who].caller, {"name": "user_search", "knobs": knobs})
            for statement in taken:
                server.rows(statement)
            self.made[taken] = world
        return self.made[taken]


@pytest.fixture(scope="module")
def worlds(cluster: Postgres, template_database: Database) -> Iterator[Worlds]:
    with ExitStack() as stack:
        yield Worlds(cluster, template_database.name, stack, {})


def ask(world: World, who: Who, way: Way, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = world.server.call("search", who.caller, way.request(**fields))
    assert answer["mode"] == way.mode
    return answer


def findable(world: World, who: Who, *, archived: bool = False) -> list[Item]:
    return [item for item in world.items if may_find(who, item, archived=archived)]


def told_of(said: Any, items: Sequence[Item]) -> list[str]:
    """Names of the items of which a text has the id, a word of their own, or their tag."""
    text = said if isinstance(said, str) else json.dumps(said)
    return [item.name for item in items if item.id in text or item.word in text]


@each_way(*WAYS)
@pytest.mark.parametrize("archived", [False, True])
def test_p5_every_way_answers_with_what_its_caller_may_find(worlds: Worlds, name: str, archived: bool) -> None:
    """All of it, and nothing else: in results, counts, explanation and trace, stored and as it is read."""
    way = WAYS[name]
    world = worlds[way.taken]
    for who in world.callers:
        expected = findable(world, who, archived=archived)
        hidden = [item for item in world.items if item not in expected]
        answer = ask(world, who, way, explain=True, include_archived=archived)
        assert set(ids(answer)) == {item.id for item in expected}, who.name
        assert told_of(answer, hidden) == [], who.name

        [stored] = world.server.rows("select r::text from almagest.retrievals as r where r.id = %s", answer["trace_id"])
        trace = world.server.call("get_trace", who.caller, {"id": answer["trace_id"]})
        assert told_of(stored, hidden) == told_of(trace, hidden) == [], who.name
        for counted in (answer["explain"]["found"], trace["found"], *trace["legs"].values()):
            assert counted is None or counted <= len(expected), who.name
        assert trace["hidden"] == 0
        surfaced = world.server.rows(
            "select item_id::text from almagest.activations where retrieval_id = %s", answer["trace_id"]
        )
        assert set(surfaced) == set(ids(answer))


@each_way()
def test_p3_why_not_tells_nothing_of_what_is_hidden(worlds: Worlds, name: str) -> None:
    way = WAYS[name]
    world = worlds[way.taken]
    for who in (world[caller] for caller in KINDS[1::3]):
        nothing = ask(world, who, way, why_not=str(uuid4()))["explain"]["why_not"]
        hidden = [item for item in world.items if not may_find(who, item, archived=True)]
        for item in hidden:
            if item.state in ("provisional", "revoked"):
                continue  # readable for some, and tested where that is decided
            told = ask(world, who, way, why_not=item.id)["explain"]["why_not"]
            assert told == {**nothing, "item": item.id}, (who.name, item.name)


@each_way()
def test_p6_what_is_hidden_changes_no_score(worlds: Worlds, name: str) -> None:
    """A caller is answered as if the rows that they may not see had never been there: frequencies and all."""
    way = WAYS[name]
    world = worlds[way.taken]

    def said(connection: Any, who: Who) -> list[Any]:
        found = []
        for query in ("common note", "private note about the client of a deal agent"):
            request = way.request(explain=True)
            request["query"] = query if way.words else None
            answer = call(connection, "search", who.caller, request)
            assert answer["mode"] == way.mode
            answer.pop("trace_id")
            answer["explain"].pop("stages_ms")
            found.append(answer)
        return found

    for who in (world[caller] for caller in KINDS):
        with world.server.database.connect("supabase_admin", autocommit=False) as connection:
            # within one transaction, so that no time passes between the two
            before = said(connection, who)
            visible = [item.id for item in findable(world, who)]
            connection.execute("delete from almagest.items where id <> all(%s::uuid[])", [visible])
            after = said(connection, who)
            connection.rollback()
        assert after == before, who.name


@each_way()
def test_filters_open_nothing_in_any_way(worlds: Worlds, name: str) -> None:
    way = WAYS[name]
    world = worlds[way.taken]
    for who in world.callers:
        for filters in (
            {"kind": ["memory"]},
            {"client": "north"},
            {"deal": ["north-one", "south-one"]},
            {"title": "t"},
        ):
            answer = ask(world, who, way, filters=filters)
            expected = {
                item.id
                for item in findable(world, who)
                if ("client" not in filters or item.client in ("north", "north (other)"))
                and ("deal" not in filters or item.deal in filters["deal"])
            }
            assert set(ids(answer)) == expected, (who.name, filters)


# How it was answered


def _stored(server: Server, trace: str) -> tuple[str, str | None]:
    [(mode, reason)] = server.rows("select mode, degraded_reason from almagest.retrievals where id = %s", trace)
    return mode, reason


@each_way(*WAYS)
def test_the_way_is_in_the_answer_in_its_trace_and_among_the_degraded(worlds: Worlds, name: str) -> None:
    way = WAYS[name]
    world = worlds[way.taken]
    who = world["member"]
    answer = ask(world, who, way)
    reason = answer["degraded_reason"]
    assert (reason is not None) == way.degraded
    assert reason is None or reason.replace("_", "").isalpha()
    assert _stored(world.server, answer["trace_id"]) == (way.mode, reason)
    trace = world.server.call("get_trace", who.caller, {"id": answer["trace_id"]})
    assert (trace["mode"], trace["degraded_reason"]) == (way.mode, reason)
    listed = world.server.rows(
        "select mode, degraded_reason from dashboard.degraded_retrievals where trace_id = %s", answer["trace_id"]
    )
    assert listed == ([(way.mode, reason)] if way.degraded else [])
    if name == "no embedder":
        assert reason == "embedder_failed"
    assert answer["results"]


@each_way()
def test_a_way_has_thresholds_of_its_own(worlds: Worlds, name: str) -> None:
    way = WAYS[name]
    world = worlds[way.taken]
    owner = world["owner"]
    for mode in ("hybrid", "vector", "lexical", "substring"):
        profile = f"strict_{mode}"
        knobs = {"vector_threshold": 0, "modes": {mode: {"fused_floor": 1}}}
        world.server.call("put_profile", owner.caller, {"name": profile, "knobs": knobs})
        answer = ask(world, owner, way, profile=profile)
        assert bool(answer["results"]) == (mode != way.mode), mode


@each_way("no vectors", "no terms", "neither vectors nor terms", "no embedder and no terms")
def test_a_session_starts_whatever_is_missing(worlds: Worlds, name: str) -> None:
    way = WAYS[name]
    world = worlds[way.taken]
    for who in world.callers:
        answer = world.server.call("bootstrap", who.caller, way.request())
        assert answer["search"]["mode"] == way.mode
        hidden = [item for item in world.items if not may_find(who, item)]
        assert told_of(answer, hidden) == [], who.name


@pytest.mark.parametrize("query", ["->", "?!", "of the"])
def test_without_vector_and_terms_the_text_itself_is_matched(server: Server, org: Org, query: str) -> None:
    item = write_one(server, org.owner, f"a list of the signs such as {query} and others", one_hot(1))
    write_one(server, org.owner, "nothing like it", one_hot(1))
    hidden = write_one(server, org.member(), f"mine, {query}", one_hot(1), private=True)
    answer = search(server, org.owner, query, degraded_reason="embedder_failed")
    assert (answer["mode"], ids(answer)) == ("substring", [item])
    assert hidden not in str(answer)


# What is not there, and what is hidden, take as long


def _seconds(server: Server, caller: Caller, name: str, item: str) -> float:
    start = time.perf_counter()
    answer = attempt(server, name, caller, {"id": item, "idempotency": unique_key(), "version": 1, "changes": {}})
    spent = time.perf_counter() - start
    assert isinstance(answer, Refused)
    assert (answer.status, answer.code, answer.members) == (404, "not_found", {})
    return spent


@pytest.mark.parametrize("name", ["get_item", "get_chunks", "get_trace"])
def test_p3_a_404_of_a_hidden_item_is_no_slower(server: Server, org: Org, name: str) -> None:
    """A large text of somebody else's: were it read before it is refused, that would show."""
    member = org.member()
    hidden = write_one(server, member, "a long private text " * 2000, one_hot(1), private=True)
    if name == "get_trace":
        hidden = search(server, member, "private text", one_hot(1), k=100)["trace_id"]
    spent: dict[str, list[float]] = {"hidden": [], "nothing": []}
    for _ in range(60):
        spent["nothing"].append(_seconds(server, org.owner, name, str(uuid4())))
        spent["hidden"].append(_seconds(server, org.owner, name, hidden))
    medians = {what: statistics.median(times) for what, times in spent.items()}
    assert medians["hidden"] < 1.5 * medians["nothing"] + 0.0005


def test_p4_a_search_takes_its_scope_from_the_caller_alone(server: Server, org: Org) -> None:
    """Whatever else a request names."""
    other = Org(server, f"other-{uuid4()}")
    theirs = write_one(server, other.owner, "zebra", one_hot(1))
    forged = {
        "org": other.id, "org_id": other.id, "user": other.owner["user"], "caller": other.owner, "manages": True,
        "states": ["provisional", "active"], "within": [1, 2, 3], "items": [theirs], "scope": "all",
    }  # fmt: skip
    for filters in ({}, {"org": other.id}, {"org_id": [other.id]}, {"user_id": other.owner["user"]}):
        answer = attempt(
            server, "search", org.owner, {"query": "zebra", "embedding": literal(one_hot(1)), "model": MODEL,
                                          "filters": filters, "explain": True, **forged}
        )  # fmt: skip
        if not isinstance(answer, Refused):
            assert answer["results"] == []
            assert theirs not in json.dumps(answer["explain"] | {"filters": None})


def test_jsonb_callers_cannot_be_widened(server: Server, org: Org) -> None:
    """P4: what a caller says of itself beside who it is, counts for nothing in a search."""
    org.client("north")
    hidden = write_one(server, org.owner, "zebra north", one_hot(1), client="north")
    client = server.value("select id::text from almagest.clients where org_id = %s", org.id)
    member = org.member()
    widened = {**member, "role": "owner", "manages": True, "client_ids": [client], "org_id": org.id}
    assert hidden not in str(search(server, widened, "zebra", one_hot(1), explain=True))
    stored = server.owner.execute("select api.search(%s, %s)", (Jsonb(widened), Jsonb({"query": "zebra"}))).fetchone()
    assert hidden not in str(stored)
