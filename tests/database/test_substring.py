"""The substring leg: what it finds where no other leg can answer, what it never shows, and how much it reads."""

import time
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database.support import Caller, Org, Server, chunks_of, digest, ids, one_hot, search, unique_key, write_one


def leg(
    server: Server,
    caller: Caller,
    asked: str,
    *,
    states: tuple[str, ...] = ("active",),
    within: list[int] | None = None,
    pool: int = 10,
) -> dict[str, float]:
    """Texts of the chunks found, best first, with their scores."""
    found = server.rows(
        "select k.text, l.score from engine.resolve_caller(%s) as c"
        " cross join lateral engine.substring_leg(c, %s, %s, %s, %s) with ordinality as l (chunk_id, score, place)"
        " join almagest.chunks as k on k.id = l.chunk_id order by l.place",
        *(Jsonb(caller), asked, list(states), within, pool),
    )
    return dict(found)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("To be, or not to be", "to be, or not to be"),
        ("What?! No.", "?!"),
        ("shipped 🙂 today", "🙂"),
        ("costs 100% of it", "100%"),
        ("a_b", "_"),
        ("C:\\temp", "\\"),
        ("it's 'quoted'", "'quoted'"),
        ("Café Crème", "cafe creme"),
        ("cafe creme", "CAFÉ CRÈME"),
        ("ＦＵＬＬ width", "full"),
        ("Łódź", "lodz"),
        ("我们决定使用数据库", "决定"),
        ("데이터베이스", "데이터"),
        ("ガソリン", "ｶﾞｿﾘﾝ"),
        ("two  words", "  two\n\twords "),
        ("in (brackets).", "brackets,"),
        ("a.*b", ".*"),
    ],
)
def test_what_is_contained_is_found(server: Server, org: Org, text: str, asked: str) -> None:
    org.item(text)
    org.item("something else altogether")
    assert list(leg(server, org.owner, asked)) == [text]


@pytest.mark.parametrize("asked", ["", "  \n", "%", "_", "\\", "o%e", "e_s", "%%%", ".*", "^", "$", "[a-z]+"])
def test_signs_that_mean_something_elsewhere_are_only_signs(server: Server, org: Org, asked: str) -> None:
    org.item("one else")
    assert leg(server, org.owner, asked) == {}


def test_scores_go_by_the_share_of_the_words_and_by_how_early_they_stand(server: Server, org: Org) -> None:
    texts = [
        "who is it",
        "and then she asked who is it at last",
        "it was said of him who is gone",
        "this is the man for it",
        "none of those here",
    ]
    for text in reversed(texts):
        org.item(text)
    whole = leg(server, org.owner, "who is it")
    assert list(whole)[:2] == texts[:2]
    assert whole[texts[0]] == 1.0
    assert 0.9 < whole[texts[1]] < 1.0
    assert 0.8 < whole[texts[2]] <= 0.9
    assert whole[texts[3]] == pytest.approx(2 / 3 * 0.9, abs=0.05)
    assert texts[4] not in whole
    assert all(0 < score <= 1 for score in whole.values())


def test_less_than_half_of_the_words_is_nothing(server: Server, org: Org) -> None:
    org.item("the zebra")
    assert leg(server, org.owner, "zebra quagga okapi") == {}
    assert list(leg(server, org.owner, "zebra quagga")) == ["the zebra"]


def test_a_title_counts_and_comes_first(server: Server, org: Org) -> None:
    org.item("text", title="The Who")
    org.item("a record of the who")
    found = leg(server, org.owner, "the who")
    assert list(found) == ["text", "a record of the who"]
    assert found["text"] == 1.0


def test_an_item_is_found_once_by_its_best_chunk(server: Server, org: Org) -> None:
    parts = ["long before the who ", "the who ", "and more "]
    write_one(server, org.owner, "".join(parts), chunks=chunks_of(parts, [None] * 3))
    assert list(leg(server, org.owner, "the who")) == ["the who "]


def test_it_needs_no_lexical_rows_and_no_vectors(server: Server, org: Org) -> None:
    org.item("the who")
    server.rows("delete from almagest.lexical")
    server.rows("delete from almagest.embeddings")
    assert list(leg(server, org.owner, "the who")) == ["the who"]


def test_only_what_the_caller_may_see_and_the_states_asked_for(server: Server, org: Org) -> None:
    """P5: privacy in the last mode too."""
    ann, ben = org.member(), org.member(clients=[])
    org.client("globex")
    client = org.client("initech")
    cleo = org.member(clients=["initech"])
    scout, other_agent = org.agent("scout"), org.agent("other")
    deal = org.deal("big", "initech")
    dana = org.member(deals=["big"])
    stranger = Org(server, "stranger")

    org.item("who shared")
    org.item("who private", user_id=ann["user"])
    org.item("who client", client_id=client)
    org.item("who deal", client_id=client, deal_id=deal)
    org.item("who agent", agents=[scout["agent"]])
    org.item("who archived", state="archived")
    org.item("who provisional", state="provisional")
    erased = org.item("who erased")
    server.call("erase_item", org.owner, {"id": erased, "idempotency": unique_key()})
    stranger.item("who stranger")

    everything = server.rows("select id from almagest.chunks")
    expected = {
        "owner": (org.owner, {"who shared", "who client", "who deal", "who agent"}),
        "ann": (ann, {"who shared", "who private"}),
        "ben": (ben, {"who shared"}),
        "cleo": (cleo, {"who shared", "who client", "who deal"}),
        "dana": (dana, {"who shared", "who client", "who deal"}),
        "scout": (scout, {"who shared", "who agent"}),
        "other": (other_agent, {"who shared"}),
        "stranger": (stranger.owner, {"who stranger"}),
    }
    for name, (caller, texts) in expected.items():
        assert set(leg(server, caller, "who")) == texts, name
        assert set(leg(server, caller, "who", within=everything)) == texts, name
        for text in ("private", "erased", "archived", "stranger", "provisional"):
            assert set(leg(server, caller, f"who {text}")) <= texts, name
    assert "who archived" in leg(server, org.owner, "who", states=("active", "archived"))


def test_only_the_chunks_that_may_answer(server: Server, org: Org) -> None:
    wanted = org.item("who one")
    org.item("who two")
    within = server.rows("select id from almagest.chunks where item_id = %s", wanted)
    assert list(leg(server, org.owner, "who", within=within)) == ["who one"]
    assert leg(server, org.owner, "who", within=[]) == {}
    assert len(leg(server, org.owner, "who", pool=1)) == 1


# A query of signs alone


@pytest.mark.parametrize("query", ["<->", "=>", " => ", "🙂", "?!"])
def test_signs_alone_are_looked_for_as_they_stand_although_vectors_answer(server: Server, org: Org, query: str) -> None:
    item = write_one(server, org.owner, f"Distance is a {query.strip()} b in pgvector.", one_hot(2))
    write_one(server, org.owner, "Something near in meaning.", one_hot(1))
    hidden = write_one(server, org.member(), f"mine: {query.strip()}", one_hot(1), private=True)
    for filters in ({}, {"kind": "memory"}):
        answer = search(server, org.owner, query, one_hot(1), explain=True, filters=filters)
        assert ids(answer) == [item]
        assert (answer["mode"], answer["degraded_reason"]) == ("substring", "no_terms_in_query")
        assert answer["explain"]["legs"] == {"substring": 1}
        assert "substring" in answer["explain"]["stages_ms"]
        assert hidden not in str(answer)
    assert search(server, org.owner, query, one_hot(1), filters={"kind": "page"})["results"] == []


def test_where_no_text_holds_the_signs_their_vector_answers(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "Something near in meaning.", one_hot(1))
    answer = search(server, org.owner, "<->", one_hot(1), explain=True)
    assert (ids(answer), answer["mode"], answer["degraded_reason"]) == ([item], "vector", "no_terms_in_query")
    assert answer["explain"]["legs"] == {"substring": 0, "vector": 1}


def test_who_asks_for_vectors_alone_has_them(server: Server, org: Org) -> None:
    write_one(server, org.owner, "a <-> b", one_hot(2))
    item = write_one(server, org.owner, "Something near in meaning.", one_hot(1))
    answer = search(server, org.owner, "<->", one_hot(1), legs=["vector"])
    assert (ids(answer), answer["mode"], answer["degraded_reason"]) == ([item], "vector", None)
    answer = search(server, org.owner, "<->", one_hot(1), legs=["keyword"])
    assert (answer["mode"], answer["degraded_reason"]) == ("substring", "no_terms_in_query")


@pytest.mark.parametrize(
    ("query", "signs"),
    [
        ("<->", True), ("=>", True), ("🙂 ?!", True), ("…", True), ("\u0301", False), ("", False), (" \n", False),
        (None, False), ("the", False), ("漢", False), ("7", False), ("a => b", False), ("½", False),
    ],
)  # fmt: skip
def test_what_counts_as_signs_alone(server: Server, query: str | None, signs: bool) -> None:
    assert server.value("select engine.only_signs(%s)", query) is signs


@pytest.mark.parametrize(
    "asked", ["x" * 100_000, "漢字" * 50_000, " ".join(f"w{n}" for n in range(20_000)), " " * 100_000]
)
def test_a_long_query_takes_bounded_time(server: Server, org: Org, asked: str) -> None:
    for number in range(20):
        org.item(f"a text that has nothing of it {number} " * 30)
    begun = time.perf_counter()
    assert leg(server, org.owner, asked) == {}
    assert time.perf_counter() - begun < 1


BULK = """
with written as (
    insert into almagest.items (org_id, kind, type, content, content_hash, origin, index_status, updated_at)
    select %s, 'memory', 'note', repeat('a text with n' || n || 'x in it ', 20), n, 'agent', 'search_ready',
        now() - make_interval(secs => n)
    from generate_series(1, %s) as n
    returning *
)
insert into almagest.chunks (item_id, org_id, position, start_offset, end_offset, text)
select id, org_id, 0, 0, length(content), content from written
"""


def test_of_a_large_org_the_newest_are_looked_through(server: Server, org: Org) -> None:
    server.rows(BULK, org.id, 30_000)
    server.rows("analyze almagest.items, almagest.chunks")
    most: Any = server.value("select engine.substring_rows()")

    begun = time.perf_counter()
    assert leg(server, org.owner, "?!") == {}
    assert time.perf_counter() - begun < 2
    assert len(leg(server, org.owner, f"n{most}x")) == 1
    assert len(leg(server, org.owner, f"n{most + 1}x")) == 0
    everything = server.rows("select id from almagest.chunks")
    assert len(leg(server, org.owner, f"n{most}x", within=everything)) == 1
    assert len(leg(server, org.owner, f"n{most + 1}x", within=everything)) == 0
    plan = "\n".join(
        server.rows(
            "explain select it.id from almagest.items as it, engine.resolve_caller(%s) as c where it.org_id = %s"
            " order by it.updated_at desc limit 10000",
            *(Jsonb(org.owner), org.id),
        )
    )
    assert "items_recent" in plan


def test_what_an_edit_replaced_is_not_looked_through(server: Server, org: Org) -> None:
    """Neither for an answer nor for a place in it; with as_of it is."""

    def edit(item: str, content: str) -> None:
        changes = {"content": content, "content_hash": digest(content), "chunks": chunks_of([content], [None])}
        request = {"id": item, "version": 1, "changes": {"content": content}, **changes, "idempotency": unique_key()}
        server.call("update_item", org.owner, request)

    moved = write_one(server, org.owner, "=> at the start of it")
    before = server.value("select clock_timestamp()::text")
    edit(moved, "in the middle => of it")
    gone = write_one(server, org.owner, "an arrow => and more")
    edit(gone, "no arrow any more")
    others = [write_one(server, org.owner, f"number {number} => there") for number in range(3)]
    answer = search(server, org.owner, "=>", k=10, explain=True)
    assert (answer["mode"], set(ids(answer))) == ("substring", {moved, *others})
    assert answer["explain"]["found"] == 4
    for number in range(1, 5):
        assert len(ids(search(server, org.owner, "=>", k=number))) == number
    assert ids(search(server, org.owner, "=>", as_of=before)) == [moved]
