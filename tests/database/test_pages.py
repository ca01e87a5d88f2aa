"""Paging through an answer, and reading on from a result: the chunks and the messages around it."""

import base64
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.database.support import (
    Caller,
    Org,
    Refused,
    Server,
    chunks_of,
    ids,
    memory,
    one_hot,
    search,
    unique_key,
    write,
    write_one,
)

KNOBS = {"mmr_lambda": 1, "candidates": 100}


@pytest.fixture
def answers(server: Server, org: Org) -> list[str]:
    """35 items that answer a question, in the order of one search for all of them."""
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": KNOBS})
    write(server, org.owner, *(memory(f"zebra {'herd ' * n} n{n}x", one_hot(1, n + 2), tags=["t"]) for n in range(35)))
    found = ids(search(server, org.owner, "zebra", one_hot(1), k=35))
    assert len(set(found)) == 35
    return found


def page(server: Server, caller: Caller, cursor: str | None, **fields: Any) -> dict[str, Any]:
    """The page behind a cursor."""
    answer: dict[str, Any] = server.call("search", caller, {"cursor": cursor, **fields})
    return answer


def test_pages_give_each_result_once_and_in_order(server: Server, org: Org, answers: list[str]) -> None:
    """S16."""
    first = search(server, org.owner, "zebra", one_hot(1), k=10)
    pages, cursor = [ids(first)], first["next_cursor"]
    while cursor:
        answer = page(server, org.owner, cursor, k=10)
        assert (answer["mode"], answer["trace_id"]) == ("hybrid", first["trace_id"])
        pages.append(ids(answer))
        cursor = answer["next_cursor"]
    assert [len(each) for each in pages] == [10, 10, 10, 5]
    assert [item for each in pages for item in each] == answers


def test_a_page_may_be_of_any_size_and_be_asked_for_again(server: Server, org: Org, answers: list[str]) -> None:
    cursor = search(server, org.owner, "zebra", one_hot(1), k=3)["next_cursor"]
    for k in (1, 7, 32, 100):
        assert ids(page(server, org.owner, cursor, k=k)) == answers[3 : 3 + k]
    assert page(server, org.owner, cursor, k=32)["next_cursor"] is None
    assert len(page(server, org.owner, cursor)["results"]) == 10
    second = page(server, org.owner, cursor, k=1, query="zebra")
    assert ids(page(server, org.owner, second["next_cursor"], k=1)) == answers[4:5]


def test_the_last_answer_has_no_cursor(server: Server, org: Org, answers: list[str]) -> None:
    assert search(server, org.owner, "zebra", one_hot(1), k=35)["next_cursor"] is None
    assert search(server, org.owner, "zebra", one_hot(1), k=34)["next_cursor"] is not None
    assert search(server, org.owner, "lion", None)["next_cursor"] is None
    assert search(server, Org(server, "other").owner, "zebra", one_hot(1))["next_cursor"] is None


@pytest.mark.parametrize(("k", "candidates", "reached"), [(10, 30, 30), (40, 30, 80), (10, 100, 60), (40, 100, 100)])
def test_pages_end_with_what_the_search_has_ranked(
    server: Server, org: Org, k: int, candidates: int, reached: int
) -> None:
    """Each leg brings its candidates, or twice k; 60 or three times k are weighed, and a trace keeps 100."""
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": {"mmr_lambda": 1, "candidates": candidates}})
    write(server, org.owner, *(memory(f"zebra n{n}x", one_hot(1, n + 2)) for n in range(130)))
    answer = search(server, org.owner, "zebra", one_hot(1), k=k)
    pages = [ids(answer)]
    while answer["next_cursor"]:
        answer = page(server, org.owner, answer["next_cursor"], k=k)
        pages.append(ids(answer))
    shown = [item for each in pages for item in each]
    assert len(shown) == len(set(shown))
    assert len(shown) == reached
    assert all(len(each) == k for each in pages[:-1])
    assert 0 < len(pages[-1]) <= k
    assert answer["next_cursor"] is None


def test_results_of_a_page_are_as_those_of_a_search(server: Server, org: Org, answers: list[str]) -> None:
    whole = search(server, org.owner, "zebra herds", one_hot(1), k=35)["results"]
    first = search(server, org.owner, "zebra herds", one_hot(1), k=5)
    rest = page(server, org.owner, first["next_cursor"], k=35)["results"]
    assert len(rest) == 30
    for one, other in zip(whole[5:], rest, strict=True):
        # the metadata score is worked out for what is shown by a search
        scores = {name: score for name, score in other["scores"].items() if name != "metadata"}
        assert scores == {name: pytest.approx(one["scores"][name], abs=1e-4) for name in scores}
        assert other | {"scores": None} == one | {"scores": None}
        assert [other["snippet"][start:end] for start, end in other["marks"]][:1] == ["zebra"]


def test_what_has_changed_meanwhile_is_left_out(server: Server, org: Org, answers: list[str]) -> None:
    member = org.member()
    first = search(server, member, "zebra", one_hot(1), k=5)
    gone, archived, edited, hidden = answers[5], answers[7], answers[9], answers[11]
    server.call("erase_item", org.owner, {"id": gone, "idempotency": unique_key()})
    server.call("archive_item", org.owner, {"id": archived, "idempotency": unique_key()})
    change = {"content": "a lion", "content_hash": "0" * 64, "chunks": chunks_of(["a lion"], [None])}
    server.call(
        "update_item", org.owner,
        {"id": edited, "version": 1, "changes": {"content": "a lion"}, **change, "idempotency": unique_key()},
    )  # fmt: skip
    server.rows("update almagest.items set user_id = %s where id = %s", org.owner["user"], hidden)

    answer = page(server, member, first["next_cursor"], k=10)
    left = [item for item in answers[5:] if item not in (gone, archived, edited, hidden)]
    assert ids(answer) == left[:10]
    assert ids(page(server, member, answer["next_cursor"], k=100)) == left[10:]


def test_pages_of_archived_items_go_on_with_archived_items(server: Server, org: Org, answers: list[str]) -> None:
    for item in answers[::2]:
        server.call("archive_item", org.owner, {"id": item, "idempotency": unique_key()})
    first = search(server, org.owner, "zebra", one_hot(1), k=5, include_archived=True)
    assert set(ids(first)) | set(ids(page(server, org.owner, first["next_cursor"], k=100))) == set(answers)


def test_pages_of_the_past_stay_in_the_past(server: Server, org: Org, answers: list[str]) -> None:
    then = server.value("select clock_timestamp()").isoformat()
    for item in answers:
        change = {
            "content": f"a lion {item}",
            "content_hash": item * 2,
            "chunks": chunks_of([f"a lion {item}"], [None]),
        }
        server.rows("update almagest.items set title = 'Before' where id = %s", item)
        server.call(
            "update_item", org.owner,
            {"id": item, "version": 1, "changes": {"content": change["content"], "title": "After"}, **change,
             "idempotency": unique_key()},
        )  # fmt: skip
    first = search(server, org.owner, "zebra", one_hot(1), k=5, as_of=then)
    rest = page(server, org.owner, first["next_cursor"], k=100)
    assert [*ids(first), *ids(rest)] == answers
    assert {(r["version"], r["title"], r["snippet"][:5]) for r in rest["results"]} == {(1, "Before", "zebra")}


def test_the_items_of_a_page_count_as_surfaced(server: Server, org: Org, answers: list[str]) -> None:
    first = search(server, org.owner, "zebra", one_hot(1), k=2, profile="middleware")
    page(server, org.owner, first["next_cursor"], k=3)
    surfaced = server.rows(
        "select item_id::text, rank, use, profile from almagest.activations where retrieval_id = %s order by rank",
        first["trace_id"],
    )
    assert [row[1:] for row in surfaced] == [(n, "surfaced", "middleware") for n in range(1, 6)]
    assert len({row[0] for row in surfaced}) == 5


def test_a_cursor_may_stand_in_a_url(server: Server, org: Org, answers: list[str]) -> None:
    for k in range(1, 35):
        cursor = search(server, org.owner, "zebra", one_hot(1), k=k)["next_cursor"]
        assert len(cursor) == 27
        assert cursor.isascii()
        assert cursor.replace("-", "").replace("_", "").isalnum()


def cursor_of(trace: str, passed: int) -> str:
    """A cursor as one might forge it."""
    packed = UUID(trace).bytes + (passed % 2**32).to_bytes(4, "big")
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def test_only_ones_own_cursor_is_taken(server: Server, org: Org, answers: list[str]) -> None:
    first = search(server, org.owner, "zebra", one_hot(1), k=5)
    cursor, trace = first["next_cursor"], first["trace_id"]
    assert cursor == cursor_of(trace, 5)
    agent = org.agent("scribe")
    strangers = [org.member(), org.member("admin"), agent, {**org.owner, "agent": agent["agent"]}]
    bad: list[tuple[Caller, str]] = [(caller, cursor) for caller in [*strangers, Org(server, "other").owner]]
    bad += [(org.owner, cursor_of(trace, passed)) for passed in (0, -1, 36, 2**31 - 1, -(2**31))]
    bad += [(org.owner, cursor_of(str(uuid4()), 5))]
    bad += [
        (org.owner, text)
        for text in ("", "x", "漢" * 27, "=" * 27, cursor + "A", cursor[:-1], "' or true --", "_" * 27)
    ]
    refusals = []
    for caller, text in bad:
        with pytest.raises(Refused) as refused:
            page(server, caller, text)
        refusals.append((refused.value.status, refused.value.code, refused.value.message))
    # all alike, so that it tells nothing
    assert set(refusals) == {(422, "invalid_cursor", refusals[0][2])}
    with pytest.raises(Refused) as refused:
        page(server, org.owner, cursor, query="lion")
    assert refused.value.code == "invalid_cursor"

    server.rows("delete from almagest.retrievals")
    with pytest.raises(Refused) as refused:
        page(server, org.owner, cursor)
    assert refused.value.code == "invalid_cursor"


def test_a_cursor_of_an_agent_is_that_agents(server: Server, org: Org, answers: list[str]) -> None:
    agent = org.agent("scribe")
    cursor = search(server, agent, "zebra", one_hot(1), k=5)["next_cursor"]
    assert ids(page(server, agent, cursor, k=30)) == answers[5:]


def test_a_cursor_survives_that_its_trace_was_redacted(server: Server, org: Org, answers: list[str]) -> None:
    first = search(server, org.owner, "zebra", one_hot(1), k=5)
    server.call("erase_item", org.owner, {"id": ids(first)[0], "idempotency": unique_key()})
    rest = page(server, org.owner, first["next_cursor"], k=30)
    assert ids(rest) == answers[5:]
    assert [result["marks"] for result in rest["results"]] == [[]] * 30


# Two steps


def test_a_chunk_comes_with_those_around_it(server: Server, org: Org) -> None:
    parts = [f"part {number}. " for number in range(12)]
    chunks = chunks_of(parts, [None] * 12)
    chunks[4]["heading_path"] = "One > Two"
    item = write_one(server, org.owner, "".join(parts), chunks=chunks)

    def positions(**request: Any) -> list[int]:
        answer = server.call("get_chunks", org.owner, {"id": item, **request})
        assert answer["next_cursor"] is None
        return [chunk["position"] for chunk in answer["chunks"]]

    assert positions(around=4) == [3, 4, 5]
    assert positions(around=4, reach=0) == [4]
    assert positions(around=4, reach=5) == list(range(10))
    assert positions(around=0) == [0, 1]
    assert positions(around=0, reach=3) == [0, 1, 2, 3]
    assert positions(around=11, reach=2) == [9, 10, 11]
    whole = server.call("get_chunks", org.owner, {"id": item})["chunks"]
    around = server.call("get_chunks", org.owner, {"id": item, "around": 4, "reach": 2})["chunks"]
    assert around == whole[2:7]
    assert [chunk["heading_path"] for chunk in around] == [None, None, "One > Two", None, None]
    for position in (12, 2**31 - 1):
        with pytest.raises(Refused) as refused:
            positions(around=position)
        assert (refused.value.status, refused.value.code) == (404, "not_found")


def beside(server: Server, caller: Caller, item: str, **request: Any) -> tuple[list[str], list[str]]:
    """Contents before and after an item."""
    answer = server.call("get_neighbours", caller, {"id": item, **request})
    before, after = ([message["content"] for message in answer[side]] for side in ("before", "after"))
    return before, after


def test_a_message_comes_with_those_around_it(server: Server, org: Org) -> None:
    places = [10, 20, 30, 40, 50, 60]
    items = [
        write_one(server, org.owner, f"turn {place}", conversation={"id": "talk", "position": place})
        for place in places
    ]
    write_one(server, org.owner, "elsewhere", conversation={"id": "other talk", "position": 35})
    alone = write_one(server, org.owner, "alone")

    assert beside(server, org.owner, items[2]) == (["turn 10", "turn 20"], ["turn 40", "turn 50"])
    assert beside(server, org.owner, items[2], reach=1) == (["turn 20"], ["turn 40"])
    assert beside(server, org.owner, items[2], reach=0) == ([], [])
    assert beside(server, org.owner, items[0], reach=5) == ([], [f"turn {place}" for place in places[1:]])
    assert beside(server, org.owner, items[5], reach=5)[1] == []
    assert beside(server, org.owner, alone) == ([], [])
    server.call("archive_item", org.owner, {"id": items[3], "idempotency": unique_key()})
    server.call("erase_item", org.owner, {"id": items[1], "idempotency": unique_key()})
    assert beside(server, org.owner, items[2]) == (["turn 10"], ["turn 50", "turn 60"])
    assert beside(server, org.owner, items[3]) == ([], [])
    [message] = server.call("get_neighbours", org.owner, {"id": items[2], "reach": 1})["after"]
    assert message["conversation"] == {"id": "talk", "position": 50}


def test_messages_of_one_position_come_in_the_order_in_which_they_were_written(server: Server, org: Org) -> None:
    """As in search; their ids are random."""
    turns = [f"turn {number}" for number in range(8)]
    items = [write_one(server, org.owner, turn, conversation={"id": "talk", "position": 5}) for turn in turns]
    for place, item in enumerate(items):
        assert beside(server, org.owner, item, reach=3) == (
            turns[max(0, place - 3) : place],
            turns[place + 1 : place + 4],
        )


def test_only_messages_of_the_same_scope_are_around(server: Server, org: Org) -> None:
    """As in search: a private turn lies in a sequence of its own, also for the one whom it belongs to."""
    org.client("north")
    member = org.member(clients=["north"])
    talk = {"conversation": {"id": "talk", "position": 1}}
    shared, private, client = [
        [
            write_one(server, member, f"{name} {place}", conversation={"id": "talk", "position": place}, **fields)
            for place in (1, 2, 3)
        ]
        for name, fields in (("shared", {}), ("private", {"private": True}), ("client", {"client": "north"}))
    ]
    other = Org(server, "other")
    write_one(server, other.owner, "of another org", **talk)
    for name, items in (("shared", shared), ("private", private), ("client", client)):
        assert beside(server, member, items[1]) == ([f"{name} 1"], [f"{name} 3"])
    assert beside(server, org.owner, shared[1]) == (["shared 1"], ["shared 3"])
    for caller, item in ((org.owner, private[1]), (org.member(), client[1]), (other.owner, shared[1])):
        with pytest.raises(Refused) as refused:
            beside(server, caller, item)
        assert refused.value.code == "not_found"


def test_an_edited_message_has_its_neighbours_once(server: Server, org: Org) -> None:
    items = [write_one(server, org.owner, f"turn {n}", conversation={"id": "talk", "position": n}) for n in range(3)]
    request = {"content": "turn one", "content_hash": "1" * 64, "chunks": chunks_of(["turn one"], [None])}
    server.call(
        "update_item", org.owner,
        {"id": items[1], "version": 1, "changes": {"content": "turn one"}, **request, "idempotency": unique_key()},
    )  # fmt: skip
    assert beside(server, org.owner, items[0]) == ([], ["turn one", "turn 2"])


def test_a_cursor_is_of_a_search(server: Server, org: Org, answers: list[str]) -> None:
    """A context for a start is no answer that has pages, though its trace has candidates as well."""
    context = server.call("bootstrap", org.owner, {"query": "zebra", "k": 5})
    assert len(server.value("select trace -> 'candidates' from almagest.retrievals where purpose = 'bootstrap'")) > 5
    with pytest.raises(Refused, match="422 invalid_cursor"):
        page(server, org.owner, cursor_of(context["trace_id"], 5))


def test_a_redacted_trace_goes_on_with_no_query(server: Server, org: Org, answers: list[str]) -> None:
    """What cannot be compared is not taken for the same."""
    first = search(server, org.owner, "zebra", one_hot(1), k=5)
    server.call("erase_item", org.owner, {"id": ids(first)[0], "idempotency": unique_key()})
    for query in ("zebra", "lion", ""):
        with pytest.raises(Refused, match="422 invalid_cursor"):
            page(server, org.owner, first["next_cursor"], query=query)
    for query in ({}, {"query": None}):
        assert ids(page(server, org.owner, first["next_cursor"], k=30, **query)) == answers[5:]


@pytest.mark.parametrize("function", ["search", "list_hub"])
def test_a_bad_cursor_is_named_as_the_field(server: Server, org: Org, function: str) -> None:
    with pytest.raises(Refused, match="422 invalid_cursor") as refused:
        server.call(function, org.owner, {"cursor": "x"})
    [error] = refused.value.members["errors"]
    assert (error["field"], error["message"][:7]) == ("cursor", "must be")
