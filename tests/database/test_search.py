"""Search: two legs, one score, filters, profiles, strength, and the account of it."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database.concurrency import at_once
from tests.database.support import (
    DIMENSION,
    MODEL,
    Caller,
    Org,
    Refused,
    Server,
    chunks_of,
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
from tests.support import Database


def tilted(axis: int, cosine: float, other: int = DIMENSION - 1) -> list[float]:
    """A unit vector at a given cosine to an axis."""
    vector = [0.0] * DIMENSION
    vector[axis], vector[other] = cosine, math.sqrt(1 - cosine * cosine)
    return vector


def scores(answer: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Scores by item."""
    return {result["id"]: result["scores"] for result in answer["results"]}


def profile(server: Server, org: str | None, name: str, **knobs: Any) -> None:
    """Give an org its own knobs of a profile."""
    server.rows(
        "insert into almagest.search_profiles (org_id, name, knobs) values (%s, %s, %s)"
        " on conflict (org_id, name) do update set knobs = excluded.knobs",
        *(org, name, Jsonb(knobs)),
    )


# Modes

# The scores that a result has.
LEGS = {"hybrid": {"keyword", "vector"}, "vector": {"vector"}, "lexical": {"keyword"}, "substring": {"keyword"}}


@pytest.mark.parametrize(
    ("query", "fields", "mode", "reason"),
    [
        ("zebra", {"embedding": literal(one_hot(1)), "model": MODEL}, "hybrid", None),
        ("the of", {"embedding": literal(one_hot(1)), "model": MODEL}, "vector", "no_terms_in_query"),
        (None, {"embedding": literal(one_hot(1)), "model": MODEL}, "vector", "no_terms_in_query"),
        ("zebra", {"degraded_reason": "model_missing"}, "lexical", "model_missing"),
        ("zebra", {}, "lexical", "no_embedding"),
        ("zebra", {"embedding": literal(one_hot(1)), "model": "other"}, "lexical", "no_vectors_of_this_model"),
        ("zebra", {"embedding": literal(one_hot(1))}, "lexical", "no_vectors_of_this_model"),
        ("the of", {"degraded_reason": "embedder_failed"}, "substring", "embedder_failed"),
        ("", {}, "substring", "no_embedding"),
        (None, {}, "substring", "no_embedding"),
    ],
)
def test_an_answer_says_how_it_was_found(
    server: Server, org: Org, query: str | None, fields: dict[str, Any], mode: str, reason: str | None
) -> None:
    item = write_one(server, org.owner, "zebra", one_hot(1))
    answer = server.call("search", org.owner, {"query": query, "k": 10, **fields})

    assert (answer["mode"], answer["degraded_reason"]) == (mode, reason)
    assert ids(answer) == ([item] if query == "zebra" or mode == "vector" else [])
    for result in answer["results"]:
        assert {leg for leg in ("keyword", "vector") if result["scores"][leg] is not None} == LEGS[mode]


@pytest.mark.parametrize(
    ("legs", "query", "vector", "mode", "reason"),
    [
        (["keyword", "vector"], "zebra", True, "hybrid", None),
        (None, "zebra", True, "hybrid", None),
        ([], "zebra", True, "hybrid", None),
        (["keyword"], "zebra", True, "lexical", None),
        (["vector"], "zebra", True, "vector", None),
        # one that was not asked for stands in for one that is gone
        (["vector"], "zebra", False, "lexical", "no_embedding"),
        (["keyword"], "the of", True, "vector", "no_terms_in_query"),
        (["keyword"], "zebra", False, "lexical", None),
        (["vector"], "the of", True, "vector", None),
        (["keyword"], "the of", False, "substring", "no_terms_in_query"),
        (["vector"], "the of", False, "substring", "no_embedding"),
    ],
)
def test_legs_answer_as_asked(
    server: Server, org: Org, legs: list[str] | None, query: str, vector: bool, mode: str, reason: str | None
) -> None:
    item = write_one(server, org.owner, "zebra, the of", one_hot(1))
    answer = search(server, org.owner, query, one_hot(1) if vector else None, legs=legs, explain=True)
    assert (answer["mode"], answer["degraded_reason"], ids(answer)) == (mode, reason, [item])
    [result] = answer["results"]
    assert {leg for leg in ("keyword", "vector") if result["scores"][leg] is not None} == LEGS[mode]
    fired = {"hybrid": {"keyword": 1, "vector": 1}, "vector": {"vector": 1}, "lexical": {"keyword": 1}}
    assert answer["explain"]["legs"] == fired.get(mode, {"substring": 1})
    assert answer["explain"]["exact"] == (True if mode in ("hybrid", "lexical") else None)


def test_what_one_leg_alone_finds_is_found_though_the_other_finds_nothing(server: Server, org: Org) -> None:
    """A well-worded query does not come back empty because of one leg."""
    by_words = write_one(server, org.owner, "zebra", one_hot(50))
    assert ids(search(server, org.owner, "zebra", one_hot(1))) == [by_words]
    by_meaning = write_one(server, org.owner, "striped horse", one_hot(1))
    assert ids(search(server, org.owner, "quagga", one_hot(1))) == [by_meaning]


class Broken:
    """A search in a database of its own, with something taken away from it."""

    def __init__(self, server: Server) -> None:
        self.server, self.org = server, Org(server, "acme")
        self.item = write_one(server, self.org.owner, "zebra", one_hot(1))
        write_one(server, self.org.owner, "coffee", one_hot(2))

    def without(self, name: str) -> None:
        """Let a function of the engine raise an error that quotes content."""
        definition = self.server.value("select pg_get_functiondef(%s::regproc)", f"engine.{name}")
        head = definition[: definition.index("AS $function$")]
        self.server.rows(f"{head} AS $function$ begin raise exception 'zebra'; end $function$")

    def grow(self) -> None:
        """Make the org one of more than 25,000 chunks, as far as its statistics say."""
        self.server.rows(
            "insert into almagest.partition_statistics (org_id, documents, total_length) values (%s, 30000, 300000)",
            self.org.id,
        )

    def answers(self, mode: str, reason: str | None, vector: Any = None, **fields: Any) -> None:
        """Assert how the item is found, what is said of it in the trace, and that no content is in a warning."""
        warnings: list[str] = []
        self.server.api.add_notice_handler(lambda diagnostic: warnings.append(diagnostic.message_primary or ""))
        answer = search(self.server, self.org.owner, "zebra", vector, **fields)
        assert (answer["mode"], answer["degraded_reason"], ids(answer)) == (mode, reason, [self.item])
        [result] = answer["results"]
        assert {leg for leg in ("keyword", "vector") if result["scores"][leg] is not None} == LEGS[mode]
        [stored] = self.server.rows(
            "select mode, degraded_reason, trace -> 'legs' from almagest.retrievals where id = %s", answer["trace_id"]
        )
        fired = LEGS[mode] if mode != "substring" else {"substring"}
        assert (stored[0], stored[1], set(stored[2])) == (mode, reason, fired)
        listed = self.server.rows(
            "select mode, degraded_reason from dashboard.degraded_retrievals where trace_id = %s", answer["trace_id"]
        )
        assert listed == ([(mode, reason)] if reason else [])
        assert not [warning for warning in warnings if "zebra" in warning]


@pytest.fixture
def broken(database: Database) -> Iterator[Broken]:
    with serve(database) as server:
        yield Broken(server)


def test_without_the_word_index_the_vector_answers(broken: Broken) -> None:
    broken.answers("hybrid", None, one_hot(1))
    broken.answers("lexical", "no_embedding")
    broken.server.rows("drop index almagest.lexical_terms")
    broken.answers("vector", "keyword_index_missing", one_hot(1))
    broken.answers("vector", "keyword_index_missing", one_hot(1), legs=["keyword"])
    broken.answers("vector", None, one_hot(1), legs=["vector"])
    broken.answers("substring", "no_embedding")
    broken.answers("substring", "keyword_index_missing", legs=["keyword"])


def test_a_word_index_that_was_not_finished_is_none(broken: Broken) -> None:
    """As one that a `create index concurrently` left behind."""
    broken.server.database.rows(
        "update pg_index set indisvalid = false where indexrelid = 'almagest.lexical_terms'::regclass",
        role="supabase_admin",
    )
    broken.answers("vector", "keyword_index_missing", one_hot(1))


def test_without_the_vector_index_a_large_org_is_answered_by_words(broken: Broken) -> None:
    broken.server.rows("drop index almagest.embeddings_vector_1")
    broken.answers("hybrid", None, one_hot(1))  # few are compared one by one
    broken.grow()
    broken.answers("lexical", "vector_index_missing", one_hot(1))
    broken.answers("lexical", "vector_index_missing", one_hot(1), legs=["vector"])
    broken.answers("lexical", None, one_hot(1), legs=["keyword"])
    broken.server.rows("drop index almagest.lexical_terms")
    broken.answers("substring", "vector_index_missing", one_hot(1))


def test_a_large_org_with_its_indexes_is_answered_by_both(broken: Broken) -> None:
    broken.grow()
    broken.answers("hybrid", None, one_hot(1))


def test_a_keyword_leg_that_fails_leaves_the_answer_to_the_vector(broken: Broken) -> None:
    broken.without("keyword_leg")
    broken.answers("vector", "keyword_leg_failed", one_hot(1))
    broken.answers("vector", "keyword_leg_failed", one_hot(1), legs=["keyword"])
    broken.answers("vector", None, one_hot(1), legs=["vector"])
    broken.answers("substring", "no_embedding")


def test_a_vector_leg_that_fails_leaves_the_answer_to_the_words(broken: Broken) -> None:
    broken.without("vector_leg")
    broken.answers("lexical", "vector_leg_failed", one_hot(1))
    broken.answers("lexical", "vector_leg_failed", one_hot(1), legs=["vector"])
    broken.answers("lexical", None, one_hot(1), legs=["keyword"])


def test_where_both_legs_fail_the_text_itself_is_looked_through(broken: Broken) -> None:
    broken.without("keyword_leg")
    broken.without("vector_leg")
    broken.answers("substring", "vector_leg_failed", one_hot(1))
    broken.answers("substring", "keyword_leg_failed", one_hot(1), legs=["keyword"])
    broken.answers("substring", "vector_leg_failed", one_hot(1), legs=["vector"])


def test_an_org_whose_words_are_not_indexed_is_answered_by_vectors(broken: Broken) -> None:
    broken.server.rows("delete from almagest.lexical")
    broken.answers("vector", "no_words_indexed", one_hot(1))
    broken.answers("substring", "no_embedding")


@pytest.mark.parametrize("mode", ["hybrid", "vector", "lexical", "substring"])
def test_each_mode_has_knobs_of_its_own(broken: Broken, mode: str) -> None:
    knobs = {"modes": {mode: {"strength_low": 0.0}}}
    profile(broken.server, broken.org.id, "user_search", **knobs)
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "hybrid": (one_hot(1), {}),
        "vector": (one_hot(1), {"legs": ["vector"]}),
        "lexical": (None, {}),
    }
    for name, (vector, fields) in ways.items():
        _lowest(broken, name, mode, vector, **fields)
    broken.server.rows("drop index almagest.lexical_terms")
    _lowest(broken, "substring", mode, None)


def _lowest(broken: Broken, name: str, mode: str, vector: Any, **fields: Any) -> None:
    answer = search(broken.server, broken.org.owner, "zebra", vector, **fields)
    assert answer["mode"] == name
    [result] = answer["results"]
    share = 0.5 if name == mode else 0.8
    assert result["scores"]["final"] == pytest.approx(result["scores"]["hybrid"] * share, abs=2e-4)


def test_an_org_without_vectors_of_the_model_is_answered_by_words(server: Server, org: Org) -> None:
    """W12: vectors of two models are never compared."""
    item = write_one(server, org.owner, "zebra", one_hot(1))
    write(server, org.owner, memory("lion", one_hot(1)), model="another")

    assert ids(search(server, org.owner, None, one_hot(1))) == [item]
    other = server.call("search", org.owner, {"query": None, "embedding": literal(one_hot(1)), "model": "another"})
    assert [result["snippet"] for result in other["results"]] == ["lion"]


# Two legs


def test_hits_of_both_legs_compete(server: Server, org: Org) -> None:
    """S2: what only the words find, and what only the vector finds, are in one ranking."""
    by_both = write_one(server, org.owner, "zebra crossing", one_hot(1))
    by_words = write_one(server, org.owner, "zebra herd", one_hot(50))
    by_vector = write_one(server, org.owner, "striped horse", tilted(1, 0.9))
    neither = write_one(server, org.owner, "coffee", one_hot(60))
    answer = search(server, org.owner, "zebra", one_hot(1))

    assert ids(answer)[0] == by_both
    assert set(ids(answer)) == {by_both, by_words, by_vector}
    assert neither not in ids(answer)
    found = scores(answer)
    assert found[by_vector]["keyword"] == 0
    assert found[by_vector]["vector"] == pytest.approx(0.9, abs=1e-3)
    assert found[by_words]["vector"] == 0
    assert found[by_words]["keyword"] > 0


def test_any_word_of_a_question_finds_and_all_of_them_rank(server: Server, org: Org) -> None:
    """S1."""
    items = [
        write_one(server, org.owner, text)
        for text in (
            "we roll a failed deployment back with one command",
            "deployment happens on Tuesdays",
            "lunch is at noon",
        )
    ]
    answer = search(server, org.owner, "How do we roll back a deployment that has failed in production?")
    assert ids(answer) == items[:2]


def test_higher_is_better_in_every_score(server: Server, org: Org) -> None:
    """S4."""
    cosines = (0.3, 0.95, 0.6, 0.8, 0.45)
    items = {
        write_one(server, org.owner, "zebra " * number, tilted(1, cosine)): cosine
        for number, cosine in enumerate(cosines, start=1)
    }
    answer = search(server, org.owner, None, one_hot(1))

    assert [items[item] for item in ids(answer)] == sorted(cosines, reverse=True)
    for item, cosine in items.items():
        assert scores(answer)[item]["vector"] == pytest.approx(cosine, abs=2e-3)
    for leg in (search(server, org.owner, "zebra"), search(server, org.owner, "zebra", one_hot(1))):
        final = [result["scores"]["final"] for result in leg["results"]]
        assert final == sorted(final, reverse=True)


def test_the_length_of_a_query_vector_does_not_matter(server: Server, org: Org) -> None:
    for number, cosine in enumerate((0.9, 0.5)):
        write_one(server, org.owner, f"text {number}", tilted(1, cosine))
    short, long = ([value * factor for value in one_hot(1)] for factor in (0.01, 100))
    answers = [scores(search(server, org.owner, None, vector)) for vector in (one_hot(1), short, long)]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("vector", [None, one_hot(1)])
def test_when_nothing_is_relevant_the_answer_is_empty(server: Server, org: Org, vector: Any) -> None:
    """S3."""
    for number in range(20):
        write_one(server, org.owner, f"notes about coffee {number}", one_hot(number + 20))
    answer = search(server, org.owner, "zebra", vector)
    assert answer["results"] == []
    assert answer["trace_id"]


def test_an_empty_org_answers(server: Server, org: Org) -> None:
    for vector in (None, one_hot(1)):
        assert search(server, org.owner, "zebra", vector)["results"] == []


def test_weak_similarities_never_enter(server: Server, org: Org) -> None:
    strong = write_one(server, org.owner, "one", tilted(1, 0.4))
    write_one(server, org.owner, "two", tilted(1, 0.24))
    write_one(server, org.owner, "three", tilted(1, -0.9))
    assert ids(search(server, org.owner, None, one_hot(1))) == [strong]


def test_what_a_word_finds_is_scored_by_its_vector_however_weak(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra", tilted(1, 0.1))
    opposite = write_one(server, org.owner, "zebra too", tilted(1, -0.5))
    found = scores(search(server, org.owner, "zebra", one_hot(1)))
    assert found[item]["vector"] == pytest.approx(0.1, abs=1e-3)
    assert found[opposite]["vector"] == 0


def test_rows_without_a_vector_are_found_by_words(server: Server, org: Org) -> None:
    """S14: they neither drop out nor shift with the plan."""
    with_vector = write_one(server, org.owner, "zebra one", one_hot(1))
    without = write_one(server, org.owner, "zebra two")
    write_one(server, org.owner, "coffee")
    answer = search(server, org.owner, "zebra", one_hot(1))

    assert ids(answer) == [with_vector, without]
    assert scores(answer)[without]["vector"] is None
    assert server.call("index_status", org.owner)["pending"] == 2
    assert ids(search(server, org.owner, None, one_hot(1))) == [with_vector]


def test_what_waits_for_its_vector_is_first_by_its_own_words(server: Server, org: Org) -> None:
    for number in range(20):
        write_one(server, org.owner, f"The zebra {number} crossed the river at noon.", tilted(1, 0.9))
    fresh = write_one(server, org.owner, "The zebra 77 crossed the river at noon.")
    answer = search(server, org.owner, "The zebra 77 crossed the river at noon.", one_hot(1), k=3)
    assert ids(answer)[0] == fresh


@pytest.mark.parametrize("off", ["hashjoin", "nestloop", "mergejoin", "bitmapscan", "indexscan", "seqscan", "hashagg"])
def test_the_order_does_not_depend_on_the_plan(server: Server, org: Org, off: str) -> None:
    for number in range(30):
        vector = tilted(1, 0.5) if number % 3 else None
        write_one(server, org.owner, f"zebra {number % 4} {'herd ' * (number % 5)} n{number}", vector)

    def answers() -> Any:
        found = []
        for query, vector in (("zebra herd", one_hot(1)), ("zebra herd", None), (None, one_hot(1))):
            found.append([(r["id"], r["scores"]) for r in search(server, org.owner, query, vector, k=30)["results"]])
        return found

    before = answers()
    server.api.execute(f"set enable_{off} = off".encode())
    assert answers() == before


def test_the_only_item_of_an_org_is_found_by_its_word(server: Server, org: Org) -> None:
    """Where every document has the word, it tells documents apart no more, but it still matches."""
    items = []
    for number in range(6):
        items.append(write_one(server, org.owner, f"zebra {number}x"))
        assert set(ids(search(server, org.owner, "zebra"))) == set(items)


# One result an item


def test_an_item_is_found_once_by_its_best_chunk(server: Server, org: Org) -> None:
    parts = [f"part {number} about coffee. " for number in range(8)]
    parts[5] = "part 5 about the zebra. "
    item = write_one(server, org.owner, "".join(parts), chunks=chunks_of(parts, [one_hot(n + 10) for n in range(8)]))
    other = write_one(server, org.owner, "another zebra at coffee", one_hot(1))

    for query, vector in (("coffee zebra", None), ("coffee zebra", one_hot(15))):
        answer = search(server, org.owner, query, vector)
        assert sorted(ids(answer)) == sorted([item, other])
        assert {r["id"]: r["snippet"] for r in answer["results"]}[item] == parts[5]
    assert [r["snippet"] for r in search(server, org.owner, None, one_hot(12))["results"]] == [parts[2]]


@pytest.mark.parametrize("vector", [None, one_hot(10, 11, 12)])
def test_an_item_comes_by_each_of_its_chunks_when_chunks_are_asked_for(server: Server, org: Org, vector: Any) -> None:
    texts = ["the zebra herd. ", "a zebra crossing. ", "coffee. ", "one zebra. "]
    item = write_one(server, org.owner, "".join(texts), chunks=chunks_of(texts, [one_hot(10 + n) for n in range(4)]))
    other = write_one(server, org.owner, "another zebra", one_hot(10))

    def found(**fields: Any) -> list[tuple[str, int]]:
        answer = search(server, org.owner, "zebra", vector, explain=True, **fields)
        assert answer["explain"]["level"] == (fields["level"] or "item")
        assert answer["explain"]["found"] == len(answer["explain"]["candidates"])
        return [(result["id"], result["chunk"]["position"]) for result in answer["results"]]

    chunks = found(level="chunk")
    # by its vector, the coffee as well
    assert sorted(chunks) == sorted([(item, 0), (item, 1), (item, 3), (other, 0)] + ([(item, 2)] if vector else []))
    assert found(level="chunk", k=2) == chunks[:2]
    for level in ("item", None):
        assert sorted(place for place, _ in found(level=level)) == sorted([item, other])


def test_a_long_document_does_not_fill_the_answer(server: Server, org: Org) -> None:
    """S5: the full k, though one item's chunks are better than all others."""
    parts = [f"zebra zebra zebra {number}" for number in range(200)]
    long = write_one(server, org.owner, "".join(parts), chunks=chunks_of(parts, [None] * 200))
    others = [write_one(server, org.owner, f"one zebra in a longer text about coffee {n}") for n in range(15)]
    answer = search(server, org.owner, "zebra", k=10)

    assert len(answer["results"]) == 10
    assert long in ids(answer)
    assert set(ids(answer)) <= {long, *others}


def test_a_snippet_has_at_most_400_characters(server: Server, org: Org) -> None:
    text = "zebra " * 180
    write_one(server, org.owner, text)
    assert [r["snippet"] for r in search(server, org.owner, "zebra")["results"]] == [text[:400].rpartition(" ")[0]]


def test_title_and_tags_are_searched_with_the_text(server: Server, org: Org) -> None:
    parts = ["first part", "second part"]
    item = write_one(
        server, org.owner, "".join(parts), title="Zebra", tags=["savanna"], chunks=chunks_of(parts, [None, None])
    )
    write_one(server, org.owner, "something else")
    for query in ("zebra", "savanna", "zebra second"):
        assert ids(search(server, org.owner, query)) == [item]
    assert search(server, org.owner, "zebra second")["results"][0]["snippet"] == "second part"


# k


@pytest.mark.parametrize("vector", [None, one_hot(1)])
def test_k_limits_the_answer(server: Server, org: Org, vector: Any) -> None:
    memories = (memory("zebra " + f"n{n} " * n, tilted(1, 0.9 - n / 500)) for n in range(130))
    write(server, org.owner, *memories)
    full = ids(search(server, org.owner, "zebra", vector, k=100))
    assert len(set(full)) == 100
    for k in (1, 2, 10, 50, 99):
        assert ids(search(server, org.owner, "zebra", vector, k=k)) == full[:k]
    answer = server.call("search", org.owner, {"query": "zebra"})
    assert len(answer["results"]) == 10


# The scores


def test_the_fused_score_is_seventy_thirty(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra", tilted(1, 0.8))
    write_one(server, org.owner, "coffee")
    write_one(server, org.owner, "tea and milk")
    row = server.value(
        "select (engine.keyword_leg(c, engine.weigh_terms(c, 'zebra', '{zebra}', '{active}'), '{active}', null, false,"
        " engine.default_knobs(), 30, 10)).scores[1] from engine.resolve_caller(%s) as c",
        Jsonb(org.owner),
    )
    keyword = row / (row + 10)
    hybrid = 0.7 * keyword + 0.3 * 0.8
    found = scores(search(server, org.owner, "zebra", one_hot(1)))[item]

    assert found == {
        "keyword": pytest.approx(keyword, abs=1e-4),
        "vector": pytest.approx(0.8, abs=1e-3),
        "metadata": 0.0,
        "hybrid": pytest.approx(hybrid, abs=1e-3),
        "strength": 0.5,
        "final": pytest.approx(hybrid * (0.6 + 0.4 * 0.5), abs=1e-3),
    }
    # In one leg alone, its weight is all there is.
    assert scores(search(server, org.owner, "zebra"))[item]["hybrid"] == pytest.approx(keyword, abs=1e-4)
    assert scores(search(server, org.owner, None, one_hot(1)))[item]["hybrid"] == pytest.approx(0.8, abs=1e-3)


def test_the_metadata_score_is_the_share_of_terms_that_attributes_have(server: Server, org: Org) -> None:
    item = write_one(
        server, org.owner, "zebra text", one_hot(1), title="SID-48", tags=["savanna", "herd"], origin="chat"
    )
    bare = write_one(server, org.owner, "zebra plain", one_hot(1))
    for query, expected in (
        ("zebra", 0.0),
        ("zebra savanna", 1 / 2),
        ("zebra savanna herds chat", 3 / 4),
        ("zebra SID-48", 3 / 4),
    ):
        found = scores(search(server, org.owner, query, one_hot(1)))
        assert found[item]["metadata"] == pytest.approx(expected, abs=1e-4), query
        assert found[bare]["metadata"] == 0


def test_the_metadata_score(server: Server, org: Org) -> None:
    """Of the query's terms, those in title, tags, headings and origin; a date; times 0.75 + priority / 2."""
    parts = [{**chunk, "heading_path": "Guide > Stripes"} for chunk in chunks_of(["the zebra"], [one_hot(1)])]
    fields: dict[str, Any] = {"title": "Handbook", "tags": ["savanna"], "origin": "chat", "chunks": parts}
    item = write_one(server, org.owner, "the zebra", **fields, occurred_at="2023-05-08T10:00:00Z")
    undated = write_one(server, org.owner, "a zebra of today", one_hot(1))
    made_at = server.value("select to_char(created_at at time zone 'utc', 'FMMonth YYYY') from almagest.items limit 1")

    def score(query: str, wanted: str = item) -> float:
        return scores(search(server, org.owner, query, one_hot(1)))[wanted]["metadata"]

    def near(value: float) -> Any:
        return pytest.approx(value, abs=1e-4)

    for query, expected in (
        ("zebra", 0),
        ("handbook stripes savanna chat", 1),
        ("handbook stripe unicorn savannas", 3 / 4),
        ("guide", 1),
        # its month, one of three terms and a date; its day, which is another term
        ("zebra May 2023", 0.5 / 4),
        ("zebra 8 May 2023", 1 / 5),
        ("zebra June 2023", 0),
        ("handbook May 2023", 1.5 / 4),
    ):
        assert score(query) == near(expected), query
        if "zebra" in query:
            assert score(query, undated) == 0
    # what has no time of its own was when it was written
    assert score(f"zebra {made_at}", undated) == near(0.5 / 4)
    for priority, share in ((0.0, 0.75), (0.4, 0.95), (1.0, 1.25)):
        server.rows("update almagest.items set priority = %s where id = %s", *(priority, item))
        assert score("handbook unicorn") == near(share / 2)
        assert score("handbook") == near(min(1, share))


def test_an_identifier_that_was_asked_for_counts_more(server: Server, org: Org) -> None:
    """By the share of the query's idf that it is, and where the item itself holds it."""
    holding = write_one(server, org.owner, "SID-48 was closed", one_hot(1), conversation={"id": "chat", "position": 1})
    beside = write_one(server, org.owner, "so it was", one_hot(1), conversation={"id": "chat", "position": 2})
    for number in range(5):
        write_one(server, org.owner, f"SID-{number} and 48 tickets were closed, closed at last", one_hot(1))

    def found(query: str, boost: float) -> dict[str, Any]:
        profile(server, org.id, "user_search", identifier_boost=boost, conversation_boost=0)
        answer = search(server, org.owner, query, one_hot(1), explain=True)
        if "SID-48" in query:
            assert ids(answer)[0] == holding
        return {candidate["item"]: candidate for candidate in answer["explain"]["candidates"]}

    terms = ["sid-48", "sid", "48", "close"]
    documents = {"sid-48": 1, "sid": 6, "48": 6, "close": 6}
    idfs = {term: math.log(1 + (7 - documents[term] + 0.5) / (documents[term] + 0.5)) for term in terms}
    share = idfs["sid-48"] / sum(idfs.values())
    with_boost, without = found("closed SID-48", 0.3), found("closed SID-48", 0)
    assert with_boost[holding]["boosts"] == {"identifier": pytest.approx(0.3 * share)}
    assert with_boost[holding]["hybrid"] == pytest.approx(without[holding]["hybrid"] + 0.3 * share, abs=2e-4)
    assert {item for item, told in with_boost.items() if told.get("boosts")} == {holding}
    assert beside in with_boost
    assert not any(told.get("boosts") for told in [*without.values(), *found("closed tickets", 0.3).values()])


def test_words_alone_are_capped_unless_one_is_an_identifier_that_was_asked_for(server: Server, org: Org) -> None:
    """Below the vector threshold."""
    profile(server, org.id, "user_search", keyword_only_cap=0.01, identifier_boost=0)
    holding = write_one(server, org.owner, "SID-48 herd", one_hot(50))
    beside = write_one(server, org.owner, "sid herd 48", one_hot(50))
    alike = write_one(server, org.owner, "herd", tilted(1, 0.9))
    found = scores(search(server, org.owner, "SID-48 herd", one_hot(1)))
    assert found[holding]["hybrid"] == pytest.approx(0.7 * found[holding]["keyword"], abs=1e-3)
    assert found[beside]["keyword"] > 0.01
    assert found[beside]["hybrid"] == pytest.approx(0.7 * 0.01, abs=1e-3)
    assert found[alike]["hybrid"] == pytest.approx(0.7 * found[alike]["keyword"] + 0.3 * 0.9, abs=1e-3)


def test_capped_hits_come_in_the_order_of_their_words(server: Server, org: Org) -> None:
    """Their scores are equal, and newer ones do not come before better ones for that."""
    profile(server, org.id, "user_search", keyword_only_cap=0.01, fused_floor=0)
    herd = [
        write_one(server, org.owner, f"{'zebra herd river ' * 4}{'coffee ' * filler}", one_hot(50 + filler))
        for filler in range(5)
    ]
    answer = search(server, org.owner, "zebra herd river", one_hot(1))
    assert len({result["final"] for result in scores(answer).values()}) == 1
    assert ids(answer) == herd


def test_weights_are_the_profiles(server: Server, org: Org) -> None:
    by_words = write_one(server, org.owner, "zebra zebra", one_hot(50), tags=["one"])
    by_vector = write_one(server, org.owner, "horse", one_hot(1), tags=["two"])
    write_one(server, org.owner, "coffee", one_hot(60))

    for weights, first in (((1.0, 0.0), by_words), ((0.01, 0.99), by_vector)):
        profile(server, org.id, "user_search", keyword_weight=weights[0], vector_weight=weights[1])
        assert ids(search(server, org.owner, "zebra", one_hot(1)))[0] == first
    profile(server, org.id, "user_search", keyword_weight=0.1, vector_weight=0.1, metadata_weight=0.8)
    answer = search(server, org.owner, "zebra two", one_hot(1))
    assert ids(answer)[0] == by_vector
    found = scores(answer)[by_vector]
    expected = 0.1 * found["keyword"] + 0.1 * 1 + 0.8 * 0.5
    assert found["hybrid"] == pytest.approx(expected, abs=1e-3)
    # What the legs that ran weigh adds up to one.
    lexical = scores(search(server, org.owner, "zebra two"))[by_vector]
    assert lexical["hybrid"] == pytest.approx((0.1 * lexical["keyword"] + 0.8 * 0.5) / 0.9, abs=1e-3)


def test_floors_and_thresholds_are_the_profiles(server: Server, org: Org) -> None:
    items = {cosine: write_one(server, org.owner, f"text {cosine}", tilted(1, cosine)) for cosine in (0.9, 0.6, 0.3)}

    def found(**knobs: Any) -> list[float]:
        profile(server, org.id, "user_search", **knobs)
        answer = ids(search(server, org.owner, None, one_hot(1)))
        return [cosine for cosine, item in items.items() if item in answer]

    assert found() == [0.9, 0.6, 0.3]
    assert found(vector_threshold=0.5) == [0.9, 0.6]
    assert found(fused_floor=0.7) == [0.9]
    assert found(fused_floor=1) == []
    # The leg that answers alone counts, whatever its weight.
    assert found(keyword_weight=0, vector_weight=0) == [0.9, 0.6, 0.3]


def test_an_orgs_profile_lies_over_the_built_in_one_at_once(server: Server, org: Org) -> None:
    other = Org(server, "other")
    for each in (org, other):
        write_one(server, each.owner, "zebra", one_hot(1))
    before = scores(search(server, other.owner, "zebra", one_hot(1)))
    profile(server, None, "user_search", high=0.9)
    profile(server, org.id, "user_search", strength_low=0.0)

    knobs = search(server, org.owner, "zebra", one_hot(1), explain=True)["explain"]["knobs"]
    assert (knobs["strength_low"], knobs["high"], knobs["keyword_weight"]) == (0.0, 0.9, 0.7)
    [found] = scores(search(server, org.owner, "zebra", one_hot(1))).values()
    assert found["final"] == pytest.approx(found["hybrid"] * 0.5, abs=1e-3)
    assert scores(search(server, other.owner, "zebra", one_hot(1))) == before


def test_profiles_are_named(server: Server, org: Org) -> None:
    write_one(server, org.owner, "zebra", one_hot(1))
    profile(server, org.id, "mine", candidates=5)
    for name in ("user_search", "injection", "middleware", "mine", None):
        assert search(server, org.owner, "zebra", profile=name)["results"]
    other = Org(server, "other")
    for caller, name in ((org.owner, "nobodys"), (other.owner, "mine"), (org.owner, "")):
        with pytest.raises(Refused, match="422 unknown_profile"):
            search(server, caller, "zebra", profile=name)


@pytest.mark.parametrize(
    ("cosine", "relevance"), [(0.9, "high"), (0.61, "high"), (0.59, "standard"), (0.41, "standard"), (0.39, "low")]
)
def test_the_relevance_class_is_of_the_fused_score(server: Server, org: Org, cosine: float, relevance: str) -> None:
    """Before strength has its say."""
    write_one(server, org.owner, "text", tilted(1, cosine))
    server.rows("update almagest.strength_signals set starting_strength = 0.05")
    assert [r["relevance"] for r in search(server, org.owner, None, one_hot(1))["results"]] == [relevance]


# Strength


def test_strength_weighs_within_its_range(server: Server, org: Org) -> None:
    items = {
        strength: org.item(f"zebra n{number}x", one_hot(1))
        for number, strength in enumerate((0.05, 0.2, 0.5, 0.8, 1.0))
    }
    for strength, item in items.items():
        server.rows("update almagest.strength_signals set starting_strength = %s where item_id = %s", *(strength, item))
    answer = search(server, org.owner, None, one_hot(1))

    assert ids(answer) == list(reversed(items.values()))
    for strength, item in items.items():
        found = scores(answer)[item]
        assert found["strength"] == pytest.approx(strength, abs=1e-3)
        assert found["final"] == pytest.approx(0.6 + 0.4 * strength, abs=1e-3)


def test_the_range_of_strength_has_two_ends(server: Server, org: Org) -> None:
    profile(server, org.id, "user_search", strength_low=0.2, strength_high=0.7)
    items = {strength: org.item(f"zebra n{strength}x", one_hot(1)) for strength in (0.05, 0.5, 1.0)}
    for strength, item in items.items():
        server.rows("update almagest.strength_signals set starting_strength = %s where item_id = %s", *(strength, item))
    found = scores(search(server, org.owner, None, one_hot(1)))
    for strength, item in items.items():
        assert found[item]["final"] == pytest.approx(0.2 + 0.5 * strength, abs=1e-3)


def test_strength_has_floors(server: Server, org: Org) -> None:
    server.rows("insert into almagest.item_types (org_id, name, strength_floor) values (%s, 'law', 0.9)", org.id)
    items = {
        "note": org.item("text one", one_hot(1)),
        "architecture": org.item("text two", one_hot(1), type="architecture"),
        "law": org.item("text three", one_hot(1), type="law"),
        "evergreen": org.item("text four", one_hot(1), evergreen=True),
        "gone": org.item("text five", one_hot(1), type="never_known"),
    }
    server.rows("update almagest.strength_signals set starting_strength = 0.05")
    found = scores(search(server, org.owner, None, one_hot(1)))

    expected = {"note": 0.05, "architecture": 0.5, "law": 0.9, "evergreen": 0.5, "gone": 0.05}
    assert {name: found[item]["strength"] for name, item in items.items()} == pytest.approx(expected)


def test_an_item_without_signals_is_found(server: Server, org: Org) -> None:
    item = org.item("zebra", one_hot(1))
    server.rows("delete from almagest.strength_signals")
    assert scores(search(server, org.owner, "zebra"))[item]["strength"] == 0.5


def test_ones_own_comes_before_the_shared(server: Server, org: Org) -> None:
    member = org.member()
    own = write_one(server, member, "zebra herd", one_hot(1), private=True)
    shared = write_one(server, member, "zebra pack", one_hot(1))
    for query, vector in (("zebra", None), ("zebra", one_hot(1)), (None, one_hot(1))):
        assert ids(search(server, member, query, vector)) == [own, shared]


def test_the_same_text_is_given_once_and_ones_own_first(server: Server, org: Org) -> None:
    member = org.member()
    own = write_one(server, member, "zebra herd", one_hot(1), private=True)
    shared = write_one(server, member, "zebra herd", one_hot(1))
    for query, vector in (("zebra", None), ("zebra", one_hot(1)), (None, one_hot(1))):
        assert ids(search(server, member, query, vector)) == [own]
        assert ids(search(server, org.owner, query, vector)) == [shared]


def test_then_the_newest_comes_first(server: Server, org: Org) -> None:
    items = [write_one(server, org.owner, f"zebra herd n{number}x", one_hot(1)) for number in range(5)]
    assert ids(search(server, org.owner, "zebra", one_hot(1))) == items[::-1]


# Filters


@pytest.fixture
def filtered(server: Server, org: Org) -> list[dict[str, Any]]:
    """Items that differ in all that filters ask for."""
    for slug in ("north", "south"):
        org.client(slug)
        org.deal(f"{slug}-one", slug)
        org.project(f"{slug}-project")
    variants: list[dict[str, Any]] = [
        {},
        {"type": "decision", "tags": ["red"], "title": "Zebra Decision", "importance": 0.9},
        {"type": "decision", "tags": ["red", "blue"], "origin": "chat", "agent_name": "scribe"},
        {"type": "playbook", "tags": ["blue"], "project": "north-project", "source_ref": "mail-1"},
        {"client": "north", "tags": ["red", "blue", "green"], "importance": 0.2},
        {"client": "north", "deal": "north-one", "origin": "upload", "agent_name": "clerk"},
        {"client": "south", "deal": "south-one", "project": "south-project", "title": "A decision on stripes"},
        {"conversation": {"id": "standup", "position": 1}, "origin": "chat", "occurred_at": "2026-01-01T00:00:00Z"},
        {
            "conversation": {"id": "standup", "position": 2},
            "origin": "chat",
            "occurred_at": "2026-02-01T00:00:00+05:00",
        },
        {"conversation": {"id": "retro", "position": 1}, "agent_name": "scribe", "occurred_at": "2026-03-01T00:00:00Z"},
        {"project": "north-project", "type": "decision", "tags": ["green"], "private": True},
    ]
    items = []
    for number, fields in enumerate(variants):
        item = write_one(server, org.owner, f"zebra text n{number}", tilted(1, 0.9), **fields)
        server.rows(
            "update almagest.items set created_at = '2026-06-01'::timestamptz + make_interval(days => %s)"
            " where id = %s",
            *(number, item),
        )
        items.append({"id": item, "kind": "memory", "created_at": f"2026-06-{number + 1:02}T00:00:00Z", **fields})
    page = org.item("zebra page", tilted(1, 0.9), kind="page", title="Page", created_at="2026-07-01T00:00:00Z")
    items.append({"id": page, "kind": "page", "title": "Page", "created_at": "2026-07-01T00:00:00Z"})
    return items


def _any(field: str, default: str | None = None) -> Callable[[dict[str, Any], Any], bool]:
    return lambda item, wanted: item.get(field, default) in (wanted if isinstance(wanted, list) else [wanted])


def _deal_client(item: dict[str, Any], wanted: Any) -> bool:
    return _any("client")(item, wanted)


MATCHES: dict[str, Callable[[dict[str, Any], Any], bool]] = {
    "kind": _any("kind"),
    "type": _any("type", "note"),
    "origin": _any("origin", "agent"),
    "project": _any("project"),
    "client": _deal_client,
    "deal": _any("deal"),
    "agent_name": _any("agent_name"),
    "source_ref": _any("source_ref"),
    "conversation": lambda item, wanted: item.get("conversation", {}).get("id") == wanted,
    "title": lambda item, wanted: wanted.lower() in item.get("title", "").lower() and "title" in item,
    "tags": lambda item, wanted: bool(wanted) and set(wanted) <= set(item.get("tags", [])),
    "tags_any": lambda item, wanted: bool(set(wanted) & set(item.get("tags", []))),
    "priority_min": lambda item, wanted: item.get("importance", 0.5) >= wanted,
    "created_after": lambda item, wanted: item["created_at"] >= wanted,
    "created_before": lambda item, wanted: item["created_at"] < wanted,
    "occurred_after": lambda item, wanted: _utc(item) is not None and str(_utc(item)) >= wanted,
    "occurred_before": lambda item, wanted: _utc(item) is not None and str(_utc(item)) < wanted,
}

FILTERS: list[dict[str, Any]] = [
    {"kind": "memory"},
    {"kind": ["page", "skill"]},
    {"type": "decision"},
    {"type": ["decision", "playbook"]},
    {"type": []},
    {"origin": "chat"},
    {"origin": ["chat", "upload"]},
    {"project": "north-project"},
    {"project": ["north-project", "south-project"]},
    {"client": "north"},
    {"client": ["south", "nobody"]},
    {"deal": "north-one"},
    {"agent_name": "scribe"},
    {"agent_name": ["scribe", "clerk"]},
    {"source_ref": "mail-1"},
    {"conversation": "standup"},
    {"title": "decision"},
    {"title": "%"},
    {"tags": ["red"]},
    {"tags": ["red", "blue"]},
    {"tags": ["red", "never"]},
    {"tags": []},
    {"tags_any": ["red", "green"]},
    {"tags_any": []},
    {"priority_min": 0.5},
    {"priority_min": 0.9},
    {"created_after": "2026-06-05T00:00:00Z"},
    {"created_before": "2026-06-03T00:00:00Z"},
    {"occurred_after": "2026-01-31T19:00:00Z"},
    {"occurred_before": "2026-01-31T19:00:00Z"},
]


def _utc(item: dict[str, Any]) -> str | None:
    moments = {"2026-02-01T00:00:00+05:00": "2026-01-31T19:00:00Z"}
    moment = item.get("occurred_at")
    return moments.get(moment, moment) if moment else None


def _expected(items: Sequence[dict[str, Any]], filters: dict[str, Any]) -> set[str]:
    return {item["id"] for item in items if all(MATCHES[name](item, wanted) for name, wanted in filters.items())}


def test_each_filter_lets_through_what_matches(server: Server, org: Org, filtered: list[dict[str, Any]]) -> None:
    for filters in FILTERS:
        for query, vector in (("zebra", None), ("zebra", one_hot(1)), (None, one_hot(1))):
            answer = search(server, org.owner, query, vector, k=100, filters=filters)
            assert set(ids(answer)) == _expected(filtered, filters), (filters, answer["mode"])


def test_filters_combine(server: Server, org: Org, filtered: list[dict[str, Any]]) -> None:
    """S15: every two of different names, in both legs."""
    for one, two in itertools.combinations(FILTERS, 2):
        filters = {**one, **two}
        if len(filters) < 2:
            continue
        answer = search(server, org.owner, "zebra", one_hot(1), k=100, filters=filters)
        assert set(ids(answer)) == _expected(filtered, filters), filters


def test_filters_that_are_null_are_none(server: Server, org: Org, filtered: list[dict[str, Any]]) -> None:
    for filters in (None, {}, dict.fromkeys(MATCHES)):
        assert len(search(server, org.owner, "zebra", k=100, filters=filters)["results"]) == len(filtered)


def test_filters_do_not_change_scores(server: Server, org: Org, filtered: list[dict[str, Any]]) -> None:
    everything = scores(search(server, org.owner, "zebra", one_hot(1), k=100))
    some = scores(search(server, org.owner, "zebra", one_hot(1), k=100, filters={"type": "decision"}))
    assert some == {item: everything[item] for item in some}


def test_a_selective_filter_still_fills_the_answer(server: Server, org: Org) -> None:
    """S5, S6: filtered first, and then the nearest."""
    write(server, org.owner, *(memory(f"zebra zebra n{number}", one_hot(1)) for number in range(200)))
    rare = write(
        server,
        org.owner,
        *(memory(f"a single zebra r{n} among coffee", tilted(1, 0.3), tags=["rare"]) for n in range(8)),
    )
    for query, vector in (("zebra", None), ("zebra", one_hot(1)), (None, one_hot(1))):
        answer = search(server, org.owner, query, vector, k=8, filters={"tags": ["rare"]})
        assert set(ids(answer)) == {result["id"] for result in rare}, answer["mode"]


def test_archived_items_take_part_when_they_are_asked_for(server: Server, org: Org) -> None:
    active, archived = (write_one(server, org.owner, f"zebra n{number}", one_hot(1)) for number in range(2))
    server.call("archive_item", org.owner, {"id": archived, "idempotency": unique_key()})
    for query, vector in (("zebra", None), ("zebra", one_hot(1)), (None, one_hot(1))):
        assert ids(search(server, org.owner, query, vector)) == [active]
        assert ids(search(server, org.owner, query, vector, include_archived=False)) == [active]
        assert ids(search(server, org.owner, query, vector, include_archived=None)) == [active]
        assert set(ids(search(server, org.owner, query, vector, include_archived=True))) == {active, archived}


# The account of a search


def test_a_search_leaves_a_trace(server: Server, org: Org) -> None:
    agent = org.agent("scribe")
    caller = {**org.owner, "agent": agent["agent"]}
    items = [write_one(server, org.owner, f"zebra n{number}", tilted(1, 0.9 - number / 10)) for number in range(3)]
    start = time.perf_counter()
    answer = search(
        server, caller, "zebra", one_hot(1), k=2, request_id="req-1", filters={"type": "note"}, profile="middleware"
    )
    took = 1000 * (time.perf_counter() - start)
    assert ids(answer) == items[:2]

    [trace] = server.rows(
        "select id::text, org_id::text, user_id::text, agent_id::text, request_id, purpose, profile, mode,"
        " degraded_reason, query, candidates, trace from almagest.retrievals"
    )
    told = trace[-1]
    knobs = told.pop("knobs")
    stages, candidates = told.pop("stages_ms"), told.pop("candidates")
    assert trace == (
        answer["trace_id"],
        org.id,
        org.owner["user"],
        agent["agent"],
        "req-1",
        "search",
        "middleware",
        "hybrid",
        None,
        "zebra",
        3,
        {
            "terms": ["zebra"],
            "counted": "live",
            "filters": {"type": "note"},
            "legs": {"keyword": 3, "vector": 3},
            "level": "item",
            "exact": True,
            "found": 3,
            "mmr": [
                {"item": items[0], "rank": 1, "similarity": 0},
                {"item": items[1], "rank": 2, "similarity": pytest.approx(0.9 * 0.8 + 0.6 * math.sqrt(0.19), abs=1e-3)},
            ],
            "results": items[:2],
        },
    )
    # each by its own time, in milliseconds
    assert set(stages) == {"filter", "terms", "keyword", "vector", "rank", "diversify", "read"}
    assert min(stages.values()) >= 0
    assert sum(stages.values()) <= took
    assert [candidate["item"] for candidate in candidates] == items
    chunks = dict(server.rows("select item_id::text, id from almagest.chunks"))
    assert [candidate["chunk"] for candidate in candidates] == [chunks[item] for item in items]
    assert knobs["keyword_weight"] == 0.7
    assert server.value("select query_vector::text from almagest.retrievals") == literal(one_hot(1))
    activations = server.rows(
        "select item_id::text, use, rank, profile, retrieval_id::text from almagest.activations order by rank"
    )
    assert activations == [(items[n], "surfaced", n + 1, "middleware", answer["trace_id"]) for n in range(2)]


def test_a_trace_has_candidates_in_their_final_order(server: Server, org: Org) -> None:
    """What was picked, in turn; the others by score; then what was cut, and why."""
    profile(server, org.id, "user_search", mmr_lambda=0.3, fused_floor=0.1, strength_low=1)
    first = write_one(server, org.owner, "zebra zebra", one_hot(1))
    like_it = write_one(server, org.owner, "zebra zebra n1", tilted(1, 0.99))
    unlike_it = write_one(server, org.owner, "zebra herd n2", tilted(1, 0.5))
    weak = write_one(server, org.owner, "a zebra in so many other words that it hardly counts as one", one_hot(70))
    answer = search(server, org.owner, "zebra", one_hot(1), k=2, explain=True)
    told = answer["explain"]

    assert ids(answer) == [first, unlike_it]
    assert [pick["item"] for pick in told["mmr"]] == [first, unlike_it]
    assert [pick["rank"] for pick in told["mmr"]] == [1, 3]
    assert told["mmr"][1]["similarity"] == pytest.approx(0.5, abs=1e-3)
    order = [(candidate["item"], candidate.get("cut")) for candidate in told["candidates"]]
    assert order == [(first, None), (unlike_it, None), (like_it, None), (weak, "floor")]


def test_a_copy_that_one_leg_sends_and_another_does_not_is_cut_as_a_duplicate(server: Server, org: Org) -> None:
    """S19: a leg sends a text once, and the neighbour of a hit may say it again."""
    shown, copy = (
        write_one(server, org.owner, "the zebra herd", conversation={"id": "chat", "position": position})
        for position in (1, 2)
    )
    answer = search(server, org.owner, "zebra", explain=True)
    assert len(ids(answer)) == 1
    cuts = {candidate["item"]: candidate.get("cut") for candidate in answer["explain"]["candidates"]}
    assert sorted(cuts.values(), key=str) == [None, "duplicate"]
    assert set(cuts) == {shown, copy}


@pytest.mark.parametrize("vector", [None, one_hot(1)])
def test_an_item_whose_best_text_another_has_too_is_told_by_its_next(
    server: Server, org: Org, vector: list[float] | None
) -> None:
    """Of documents with the same notice, each that says more about it is found by that."""
    notice = "Handle every zebra with care, zebra by zebra."
    bodies = [f"Part {name} of the zebra handbook." for name in ("alpha", "beta", "gamma")]
    write(
        server,
        org.owner,
        *(
            memory(f"{notice}{body}", chunks=chunks_of([notice, body], [one_hot(1), tilted(1, 0.8, other=2 + place)]))
            for place, body in enumerate(bodies)
        ),
    )
    answer = search(server, org.owner, "zebra" if vector is None else None, vector)
    snippets = [result["snippet"] for result in answer["results"]]
    assert snippets[0] == notice
    assert len(snippets) == 3
    assert set(snippets[1:]) < set(bodies)


def test_a_long_query_is_cut_in_the_trace(server: Server, org: Org) -> None:
    search(server, org.owner, "zebra " * 10_000)
    assert server.value("select length(query) from almagest.retrievals") == 1000


def test_opening_an_item_is_noted(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra")
    server.call("get_item", org.owner, {"id": item})
    server.call("get_item", org.owner, {"id": item, "record": False})
    assert server.rows("select item_id::text, use, rank from almagest.activations") == [(item, "opened", None)]


def test_an_explanation_is_given_when_asked_for(server: Server, org: Org) -> None:
    write_one(server, org.owner, "zebra crossing")
    answer = search(server, org.owner, "the zebra crossings", explain=True)
    assert set(answer["explain"]["terms"]) == {"zebra", "cross"}
    assert len(answer["explain"]["candidates"]) == answer["explain"]["found"] == 1
    for no in (False, None):
        assert "explain" not in search(server, org.owner, "zebra", explain=no)


FAILING_TRIGGER = """
create function almagest.fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
create trigger fail before insert on almagest.{table} for each row execute function almagest.fail();
"""
BREAKAGES = {
    "no right to insert": "revoke insert on almagest.retrievals, almagest.activations from postgres",
    "a failing trigger on traces": FAILING_TRIGGER.format(table="retrievals"),
    "a failing trigger on activations": FAILING_TRIGGER.format(table="activations"),
    "no partition": "drop table almagest.retrievals_rest, almagest.activations_rest",
    "no table": "drop table almagest.activations cascade",
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_search_never_fails_for_its_log(database: Database, name: str) -> None:
    """S17."""
    with serve(database) as server:
        owner = Org(server, "acme").owner
        item = write_one(server, owner, "zebra", one_hot(1))
        server.rows(BREAKAGES[name])

        answer = search(server, owner, "zebra", one_hot(1))
        assert ids(answer) == [item]
        assert answer["trace_id"] is None
        bootstrap = server.call("bootstrap", owner, {"query": "zebra"})
        assert (ids(bootstrap["search"]), bootstrap["trace_id"]) == ([item], None)
        assert server.call("bootstrap", owner, {})["contents"]["items"][0]["id"] == item
        assert server.call("get_item", owner, {"id": item})["content"] == "zebra"


def test_reading_works_where_nothing_can_be_written(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra", one_hot(1))
    server.api.execute("set default_transaction_read_only = on")
    assert ids(search(server, org.owner, "zebra", one_hot(1))) == [item]
    assert server.call("get_item", org.owner, {"id": item})["id"] == item
    assert server.call("bootstrap", org.owner, {"query": "zebra"})["search"]["results"]


def test_searches_at_once_do_not_disturb_one_another(server: Server, org: Org) -> None:
    """S17: append only, so no row that two of them want."""
    for number in range(10):
        write_one(server, org.owner, f"zebra n{number}", one_hot(number))

    def work(server: Server) -> list[Any]:
        return [ids(search(server, org.owner, "zebra", one_hot(n % 10))) for n in range(30)]

    answers = at_once(server, *[work] * 4)
    assert all(answer == answers[0] for answer in answers)
    assert server.value("select count(*) from almagest.retrievals") == 120
    assert server.value("select count(*) from almagest.activations") == 1200


def test_a_search_works_on_a_connection_that_has_just_been_opened(server: Server, org: Org) -> None:
    """R4: whatever has or has not loaded the extension before."""
    item = write_one(server, org.owner, "zebra", one_hot(1))
    for vector in (None, one_hot(1)):
        with server.another() as other:
            assert ids(search(other, org.owner, "zebra", vector)) == [item]


# Chunks, contents and canon


def test_chunks_come_by_pages(server: Server, org: Org) -> None:
    """S16."""
    parts = [f"part {number} " for number in range(25)]
    item = write_one(server, org.owner, "".join(parts), chunks=chunks_of(parts, [None] * 25))

    def page(cursor: str | None, limit: int | None) -> Any:
        return server.call("get_chunks", org.owner, {"id": item, "cursor": cursor, "limit": limit})

    read, cursor, sizes = [], None, []
    while True:
        answer = page(cursor, 10)
        read += answer["chunks"]
        sizes.append(len(answer["chunks"]))
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert sizes == [10, 10, 5]
    assert [part["text"] for part in read] == parts
    assert page(None, 25)["next_cursor"] is None
    assert page(None, 24)["next_cursor"] == "23"
    assert page(None, None)["chunks"] == read
    assert page("1000", 10) == {"chunks": [], "next_cursor": None}


def test_contents_count_by_type_and_name_the_newest(server: Server, org: Org) -> None:
    for number in range(5):
        write_one(server, org.owner, f"note {number}", title=f"Title {number}")
    untitled = write_one(server, org.owner, "a decision\n  without   a title " * 10, type="decision")
    contents = server.call("bootstrap", org.owner, {"titles": 3})["contents"]

    assert contents["types"] == [{"type": "note", "count": 5}, {"type": "decision", "count": 1}]
    assert [entry["title"] for entry in contents["items"][1:]] == ["Title 4", "Title 3"]
    assert contents["items"][0] == {
        "id": untitled,
        "kind": "memory",
        "type": "decision",
        "scope": "library",
        "title": ("a decision without a title " * 10)[:80],
    }


def test_contents_begin_with_what_was_assigned(server: Server, org: Org) -> None:
    agent = org.agent("scribe")
    assigned = org.item("for the scribe", agents=[agent["agent"]])
    newest = write_one(server, org.owner, "newer")
    entries = server.call("bootstrap", agent, {})["contents"]["items"]
    assert [entry["id"] for entry in entries] == [assigned, newest]
    assert [entry["id"] for entry in server.call("bootstrap", agent, {"titles": 1})["contents"]["items"]] == [assigned]


def test_a_bootstrap_without_a_query_leaves_a_trace(server: Server, org: Org) -> None:
    answer = server.call("bootstrap", org.owner, {"request_id": "req-2"})
    assert answer["search"] is None
    assert server.rows("select id::text, purpose, request_id, query from almagest.retrievals") == [
        (answer["trace_id"], "bootstrap", "req-2", None)
    ]


def test_a_bootstrap_searches_with_its_own_profile(server: Server, org: Org) -> None:
    write_one(server, org.owner, "zebra", one_hot(1))
    answer = server.call("bootstrap", org.owner, {"query": "zebra", "k": 5})
    assert answer["trace_id"] == answer["search"]["trace_id"]
    assert server.rows("select purpose, profile from almagest.retrievals") == [("bootstrap", "injection")]


def test_what_an_agent_reads_of_a_person(server: Server, org: Org) -> None:
    """An agent that works for somebody is answered with that person's private items too."""
    member = org.member()
    agent: Caller = {**member, "agent": org.agent("scribe")["agent"], "role": "agent"}
    item = write_one(server, agent, "zebra", private=True)
    assert ids(search(server, member, "zebra")) == ids(search(server, agent, "zebra")) == [item]


def test_vectors_that_are_hidden_decide_no_mode(server: Server, org: Org) -> None:
    """P6: whether others' items have vectors shows in no answer."""
    ben = org.member()
    shared = [write_one(server, org.owner, text, one_hot(1)) for text in ("zebra who", "the who of zebras")]
    hidden = write_one(server, org.owner, "a private zebra", one_hot(2), private=True)
    org.client("north")
    clients = write_one(server, org.owner, "a client's zebra", one_hot(2), client="north")
    reviewed = org.item("a zebra to be reviewed", one_hot(2), state="provisional")
    server.rows("delete from almagest.embeddings where item_id = any(%s::uuid[])", shared)

    def answers() -> list[Any]:
        return [
            [answer["mode"], answer["degraded_reason"], answer["results"]]
            for answer in (search(server, ben, query, one_hot(2)) for query in ("zebra", "the who"))
        ]

    before = answers()
    assert [mode for mode, *_ in before] == ["lexical", "substring"]
    assert search(server, org.owner, "zebra", one_hot(2))["mode"] == "hybrid"
    server.rows("delete from almagest.embeddings where item_id = any(%s::uuid[])", [hidden, clients, reviewed])
    assert answers() == before
    write_one(server, ben, "my own zebra", one_hot(2), private=True)
    assert search(server, ben, "zebra", one_hot(2))["mode"] == "hybrid"
    assert search(server, org.owner, "zebra", one_hot(2))["mode"] == "lexical"
