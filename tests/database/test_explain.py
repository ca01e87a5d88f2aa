"""How an answer came about: traces for whoever asked, and why an item is not in an answer."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from infra.local.postgres import Postgres
from tests.database.support import (
    Caller,
    Org,
    Refused,
    Server,
    attempt,
    ids,
    one_hot,
    search,
    serve,
    unique_key,
    write_one,
)
from tests.database.world import World, build, may_see
from tests.support import Database, clone


@pytest.fixture(scope="module")
def world(cluster: Postgres, template_database: Database) -> Iterator[World]:
    """One world for all tests that change nothing in it."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        yield build(server)


def get_trace(server: Server, caller: Caller, trace: str) -> Any:
    return server.call("get_trace", caller, {"id": trace})


# Traces


def test_a_trace_tells_how_a_search_was_answered(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1), title="Retries")
    answer = search(
        server, org.owner, "retry", one_hot(1), filters={"kind": "memory"}, profile="middleware", request_id="r-1"
    )
    trace = get_trace(server, org.owner, answer["trace_id"])

    expected = {
        "id": answer["trace_id"], "request_id": "r-1", "purpose": "search", "profile": "middleware", "mode": "hybrid",
        "degraded_reason": None, "query": "retry", "terms": ["retri"], "filters": {"kind": "memory"}, "exact": True,
        "found": 1, "results": [{"item": item, "title": "Retries"}], "hidden": 0,
    }  # fmt: skip
    assert {name: trace[name] for name in expected} == expected
    [candidate] = trace["candidates"]
    assert (candidate["item"], candidate["title"], candidate["vector"]) == (item, "Retries", 1)
    assert {"keyword", "hybrid", "relevance", "strength", "final"} <= candidate.keys()
    assert trace["knobs"]["keyword_weight"] > 0
    assert trace["legs"].keys() == {"keyword", "vector"}
    assert all(milliseconds >= 0 for milliseconds in trace["stages_ms"].values())
    assert trace["stages_ms"]


def test_a_trace_tells_of_candidates_that_are_not_in_the_answer(server: Server, org: Org) -> None:
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": {"fused_floor": 0.3}})
    for number in range(40):
        write_one(server, org.owner, f"We retry, and this is number {number}.", one_hot(1))
    weak = write_one(server, org.owner, "We do not retry.", one_hot(2))
    answer = search(server, org.owner, "retry", one_hot(1), k=2)
    trace = get_trace(server, org.owner, answer["trace_id"])

    assert trace["found"] >= len(trace["candidates"]) >= 30
    cuts = ["cut" in candidate for candidate in trace["candidates"]]
    assert cuts == sorted(cuts)
    finals = [candidate["final"] for candidate in trace["candidates"] if "cut" not in candidate]
    assert len(finals) >= 30
    assert finals == sorted(finals, reverse=True)
    assert [result["item"] for result in trace["results"]] == ids(answer)
    answer = search(server, org.owner, "not retry", None, k=10)
    told = {entry["item"]: entry for entry in get_trace(server, org.owner, answer["trace_id"])["candidates"]}
    assert told[weak]["hybrid"] > 0


def test_a_trace_tells_of_a_degraded_search_and_of_a_bootstrap(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    answer = search(server, org.owner, "retry", degraded_reason="model_missing")
    trace = get_trace(server, org.owner, answer["trace_id"])
    assert (trace["mode"], trace["degraded_reason"]) == ("lexical", "model_missing")

    for request in ({"query": "retry"}, {}):
        bootstrap = server.call("bootstrap", org.owner, request)
        trace = get_trace(server, org.owner, bootstrap["trace_id"])
        assert (trace["purpose"], trace["query"]) == ("bootstrap", request.get("query"))
        assert [result["item"] for result in trace["results"]] == ([item] if request else [])


def _stored(server: Server, caller: Caller, **trace: Any) -> str:
    """Store a trace behind the engine's back."""
    stored = server.value(
        "insert into almagest.retrievals (org_id, user_id, agent_id, purpose, profile, mode, candidates, trace)"
        " values (%s, %s, %s, 'search', 'user_search', 'hybrid', 7, %s) returning id::text",
        *(caller["org"], caller.get("user"), caller.get("agent"), Jsonb(trace)),
    )
    return str(stored)


def test_items_have_their_titles_and_their_order(server: Server, org: Org) -> None:
    one, two = (write_one(server, org.owner, text, title=text) for text in ("One", "Two"))
    candidates = [{"item": two, "keyword": 0.5, "cut": None}, {"item": one, "keyword": 0.1, "cut": "floor"}]
    trace = _stored(
        server, org.owner, candidates=candidates, mmr=[{"item": two, "value": 0.5}], results=[two], terms=["a"]
    )

    answer = get_trace(server, org.owner, trace)

    assert answer["candidates"] == [{**candidates[0], "title": "Two"}, {**candidates[1], "title": "One"}]
    assert answer["mmr"] == [{"item": two, "value": 0.5, "title": "Two"}]
    assert answer["results"] == [{"item": two, "title": "Two"}]
    assert (answer["found"], answer["hidden"], answer["terms"]) == (7, 0, ["a"])


@pytest.mark.parametrize("trace", [{}, {"terms": 3, "candidates": 5}, {"results": [], "mmr": [{}]}])
def test_a_trace_of_an_earlier_version_is_told(server: Server, org: Org, trace: dict[str, Any]) -> None:
    answer = get_trace(server, org.owner, _stored(server, org.owner, **trace))
    assert [answer[name] for name in ("terms", "candidates", "mmr", "results")] == [[]] * 4


def test_what_its_reader_may_not_see_any_more_is_left_out(server: Server, org: Org) -> None:
    """P3: an erased item, and one of a client whose scope was taken back."""
    org.client("north")
    member = org.member(clients=["north"])
    kept, north, erased, archived = (
        write_one(server, org.owner, f"We retry {word}.", one_hot(1), title=f"Title of {word}", client=client)
        for word, client in (("here", None), ("north", "north"), ("never", None), ("once", None))
    )
    everything = [kept, north, erased, archived]
    lists = {"candidates": [{"item": item} for item in everything], "mmr": [{"item": north}], "results": everything}
    trace = _stored(server, member, **lists)
    assert len(get_trace(server, member, trace)["results"]) == 4

    org.system("revoke_scope", {"member": member["user"], "client": "north"})
    server.call("erase_item", org.owner, {"id": erased, "idempotency": unique_key()})
    server.call("archive_item", org.owner, {"id": archived, "idempotency": unique_key()})

    answer = get_trace(server, member, trace)
    for name in ("candidates", "results"):
        assert [entry["item"] for entry in answer[name]] == [kept, archived]
    assert (answer["mmr"], answer["hidden"]) == ([], 2)
    assert not [hidden for hidden in (north, erased, "Title of north", "Title of never") if hidden in str(answer)]


def test_an_erasure_takes_what_was_asked_out_of_the_trace(server: Server, org: Org) -> None:
    """W7: the question may repeat what the item said."""
    item = write_one(server, org.owner, "The vault code is quokka.", one_hot(1), title="Vault")
    answer = search(server, org.owner, "is the vault code quokka", one_hot(1), filters={"title": "vault"})
    assert "quokka" in str(get_trace(server, org.owner, answer["trace_id"]))
    server.call("erase_item", org.owner, {"id": item, "idempotency": unique_key()})

    trace = get_trace(server, org.owner, answer["trace_id"])
    assert (trace["query"], trace["terms"], trace["results"], trace["hidden"]) == (None, [], [], 1)
    stored = server.value("select r::text from almagest.retrievals as r where id = %s", answer["trace_id"])
    for text in (stored, str(trace)):
        assert "quokka" not in text.lower()
        assert "vault" not in text.lower()


def _readers(world: World, traces: dict[str, str]) -> list[str]:
    """Who can read whose trace although it is not theirs, or cannot although it is."""
    wrong = []
    for reader in world.callers:
        nothing = attempt(world.server, "get_trace", reader.caller, {"id": str(uuid4())})
        for asker in world.callers:
            answer = attempt(world.server, "get_trace", reader.caller, {"id": traces[asker.name]})
            own = (reader.org, reader.user, reader.agent) == (asker.org, asker.user, asker.agent)
            if isinstance(answer, Refused):
                same = (answer.status, answer.code, answer.message) == (404, "not_found", nothing.message)
                if own or not same or answer.members:
                    wrong.append(f"- {reader.name} / {asker.name}")
            elif not own:
                wrong.append(f"+ {reader.name} / {asker.name}")
    return wrong


def test_a_trace_is_read_by_those_who_asked(world: World) -> None:
    """P3: an owner or an admin reads nobody's, and an agent not those of whom it works for."""
    traces = {who.name: search(world.server, who.caller, "common")["trace_id"] for who in world.callers}
    assert _readers(world, traces) == []


def test_the_engine_alone_keeps_traces_apart(cluster: Postgres, template_database: Database) -> None:
    """The same without row level security; that alone is tested with the policies."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        world = build(server)
        server.rows("alter policy reader on almagest.retrievals using (true)")
        traces = {who.name: search(server, who.caller, "common")["trace_id"] for who in world.callers}
        assert _readers(world, traces) == []


# Why an item is not in an answer


def why_not(server: Server, caller: Caller, item: str, query: str | None, vector: Any = None, **fields: Any) -> Any:
    """What the search says of the item; the answer is the same as without the question."""
    answer = search(server, caller, query, vector, why_not=item, **fields)
    assert ids(answer) == ids(search(server, caller, query, vector, **fields))
    told = answer["explain"]["why_not"]
    assert told["item"] == item
    assert told["reason"].endswith(".")
    return told


def test_it_tells_only_of_what_the_caller_may_see(world: World) -> None:
    """P3: a hidden item is like one that never was, in every mode."""
    server = world.server
    for who in world.callers:
        for vector in (None, one_hot(3)):
            nothing = why_not(server, who.caller, str(uuid4()), "common", vector)
            assert nothing["step"] == "not_found"
            for item in world.items:
                told = why_not(server, who.caller, item.id, "common", vector)
                if may_see(who, item):
                    assert told["step"] != "not_found", (who.name, item.name)
                else:
                    assert {**told, "item": nothing["item"]} == nothing, (who.name, item.name)


@pytest.mark.parametrize("without", ["first", "second"])
def test_each_layer_alone_keeps_it_silent(cluster: Postgres, template_database: Database, without: str) -> None:
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        world = build(server)
        if without == "second":
            server.rows("alter policy reader on almagest.items using (true)")
        else:
            server.rows(
                "create or replace function engine.readable(c engine.caller, i almagest.items) returns boolean"
                " language sql immutable parallel safe as 'select true'"
            )
        for who in world.callers:
            for item in world.items:
                if not may_see(who, item):
                    answer = search(server, who.caller, "common", why_not=item.id)
                    assert answer["explain"]["why_not"]["step"] == "not_found", (who.name, item.name)


def test_an_item_in_the_answer_is_told_with_its_place(server: Server, org: Org) -> None:
    first = write_one(server, org.owner, "retry retry retry", one_hot(1))
    second = write_one(server, org.owner, "retry or not, it is all the same to me", one_hot(1, 2))
    told = [why_not(server, org.owner, item, "retry", one_hot(1)) for item in (first, second)]
    assert [(entry["step"], entry["place"]) for entry in told] == [("answer", 1), ("answer", 2)]
    assert told[0]["final"] >= told[1]["final"] > 0


def test_an_item_of_another_state_is_not_searched(server: Server, org: Org) -> None:
    item = org.item("We retry with backoff.", one_hot(1), state="archived")
    told = why_not(server, org.owner, item, "retry", one_hot(1))
    assert (told["step"], told["state"]) == ("state", "archived")
    assert why_not(server, org.owner, item, "retry", one_hot(1), include_archived=True)["step"] == "answer"
    provisional = org.item("We retry without backoff.", one_hot(1), state="provisional")
    assert why_not(server, org.owner, provisional, "retry")["state"] == "provisional"


def test_the_filters_that_an_item_does_not_pass_are_named(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1), type="decision", tags=["http"])
    filters = {"type": ["note"], "tags": ["http"], "title": "retries", "kind": ["memory"]}
    told = why_not(server, org.owner, item, "retry", one_hot(1), filters=filters)
    assert (told["step"], told["filters"]) == ("filters", ["title", "type"])
    told = why_not(server, org.owner, item, "retry", one_hot(1), filters={"type": ["decision"]})
    assert told["step"] == "answer"


def test_an_item_without_chunks_waits_for_its_index(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.")
    server.rows("delete from almagest.chunks where item_id = %s", item)
    assert why_not(server, org.owner, item, "retry")["step"] == "not_indexed"


@pytest.mark.parametrize(
    ("query", "vector", "similarity", "says"),
    [
        ("cats", one_hot(2), 0, "None of the query's words is in it. Its similarity is below"),
        ("cats", None, None, "None of the query's words is in it. Its meaning was not compared."),
        (None, one_hot(2), 0, "Its similarity is below the threshold of 0.2"),
    ],
)
def test_an_item_that_does_not_match(
    server: Server, org: Org, query: str | None, vector: Any, similarity: float | None, says: str
) -> None:
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    told = why_not(server, org.owner, item, query, vector)
    assert told["step"] == "no_match"
    assert told["reason"].startswith(says)
    assert (told["matched"], told["similarity"]) == ([], similarity)


def test_an_item_without_a_vector_cannot_be_compared(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.")
    write_one(server, org.owner, "Cats sleep.", one_hot(2))
    told = why_not(server, org.owner, item, "cats", one_hot(2))
    assert (told["step"], told["similarity"]) == ("no_match", None)
    assert "no vector" in told["reason"]


def test_an_item_that_others_match_much_better_is_no_candidate(server: Server, org: Org) -> None:
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": {"candidates": 1}})
    for number in range(4):
        write_one(server, org.owner, f"retry retry retry {number}", one_hot(1))
    item = write_one(server, org.owner, "retry, but among so many other words that it hardly counts", one_hot(1, 2))
    told = why_not(server, org.owner, item, "retry", one_hot(1), k=1)
    assert (told["step"], told["matched"]) == ("candidates", ["retri"])
    assert told["similarity"] == pytest.approx(0.7071, abs=1e-3)


def test_an_item_below_the_floor(server: Server, org: Org) -> None:
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": {"fused_floor": 0.4}})
    item = write_one(server, org.owner, "retry", one_hot(5))
    told = why_not(server, org.owner, item, "retry", one_hot(1))
    assert (told["step"], told["reason"]) == ("floor", "Its fused score is below the floor of 0.4.")
    assert told["hybrid"] < 0.4


def test_an_item_that_says_what_a_result_says(server: Server, org: Org) -> None:
    """S19."""
    one, two = (write_one(server, org.owner, "We retry.", one_hot(1), source_ref=ref) for ref in "ab")
    [shown] = ids(search(server, org.owner, "retry", one_hot(1)))
    other = two if shown == one else one
    told = why_not(server, org.owner, other, "retry", one_hot(1))
    assert (told["step"], told["twin"]) == ("duplicate", shown)


def test_an_item_that_resembles_a_result_too_much(server: Server, org: Org) -> None:
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": {"mmr_lambda": 0.1}})
    write_one(server, org.owner, "retry retry retry", one_hot(1))
    like_it = write_one(server, org.owner, "retry retry again", one_hot(1))
    unlike_it = write_one(server, org.owner, "retry whatever else there may be to say of it", one_hot(1, 2, 3))
    told = why_not(server, org.owner, like_it, "retry", one_hot(1), k=2)
    assert (told["step"], told["rank"]) == ("diversity", 2)
    assert why_not(server, org.owner, unlike_it, "retry", one_hot(1), k=2)["step"] == "answer"


def test_an_item_that_ranks_too_low(server: Server, org: Org) -> None:
    for number in range(4):
        write_one(server, org.owner, "retry " * (5 - number), one_hot(number + 1))
    last = write_one(server, org.owner, "retry whatever else there may be to say of it", one_hot(9))
    told = why_not(server, org.owner, last, "retry", k=2)
    assert (told["step"], told["rank"], told["reason"]) == ("rank", 5, "It ranks 5, and 2 were asked for.")
