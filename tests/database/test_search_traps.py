"""What users of systems like this one ran into, seen from outside: each trap with the answer that is right.

The rows are those of the project's list of traps: S1 to S20 of searching, R4, R15 and R17 of running. What has a test
elsewhere is not repeated: rows of large orgs are in test_recall, of many orgs in test_tenants, of privacy in
test_search_leaks, and query text as an attack in test_search_fuzz.
"""

import itertools
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from infra.local.postgres import Postgres
from tests.database.bulk import Clusters, Rows, Vectors, as_literal, fill, nearest, plans, rows_handled, words
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
from tests.support import Database, clone

# How a query reaches both legs, or each alone.
LEGS = ("hybrid", "lexical", "vector")
SHIPPED = ("user_search", "injection", "middleware")


@pytest.fixture(scope="module")
def server(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """One database for all tests here: each has an org of its own, and the others' rows must not matter."""
    with clone(cluster, template_database.name) as copy, serve(copy) as connections:
        yield connections


@pytest.fixture
def org(server: Server) -> Org:
    return Org(server, f"org-{uuid4()}")


def tilted(axis: int, cosine: float, other: int = DIMENSION - 1) -> list[float]:
    """A unit vector at a given cosine to an axis."""
    vector = [0.0] * DIMENSION
    vector[axis], vector[other] = cosine, math.sqrt(1 - cosine * cosine)
    return vector


def ask(server: Server, caller: Caller, query: str, vector: Any, legs: str, **fields: Any) -> dict[str, Any]:
    """Search by both legs or by one, and make sure that it was these that answered."""
    answer = search(
        server, caller, None if legs == "vector" else query, None if legs == "lexical" else vector, **fields
    )
    assert answer["mode"] == legs
    return answer


def set_knobs(server: Server, org: Org, name: str = "user_search", **knobs: Any) -> None:
    server.call("put_profile", org.owner, {"name": name, "knobs": knobs})


def say(server: Server, org: Org, *texts: str) -> list[str]:
    """Write texts without vectors, and return their ids."""
    return [result["id"] for result in write(server, org.owner, *(memory(text) for text in texts))]


# S1: a whole question

NOTES = [
    "Invoices are sent on the first working day of the month.",
    "The office in Lisbon closes at six.",
    "Backups of the customer database are kept for ninety days, then they are deleted.",
    "We use Terraform for everything in the cloud.",
    "The customer survey went out to four hundred people.",
    "Wash the cups after lunch.",
]


@pytest.mark.parametrize("vector", [None, one_hot(1)])
@pytest.mark.parametrize(
    "question",
    [
        "For how long do we keep the backups of our customers' database before somebody deletes them?",
        "could anyone please tell me what our retention period is when it comes to database backups",
        "backups??? database!!! how long, exactly...",
        "BACKUPS OF THE DATABASE: HOW LONG",
    ],
)
def test_s1_a_whole_question_finds_what_holds_some_of_its_words(
    server: Server, org: Org, question: str, vector: Any
) -> None:
    """No note holds all the words of the question, so that an AND would find nothing."""
    items = [write_one(server, org.owner, text, one_hot(20 + number)) for number, text in enumerate(NOTES)]
    answer = search(server, org.owner, question, vector)
    assert ids(answer)[0] == items[2]
    assert "lunch" not in str(answer)


# S2: both legs' hits compete


@pytest.mark.parametrize("profile", SHIPPED)
def test_s2_the_best_of_each_leg_stand_before_the_weak_of_the_other(server: Server, org: Org, profile: str) -> None:
    fill_in = [f"something about {word} and nothing else" for word in words(30)]
    say(server, org, *fill_in)
    words_alone = write_one(server, org.owner, "zebra crossing zebra", one_hot(40))
    meaning_alone = write_one(server, org.owner, "a striped horse on the road", tilted(1, 0.95))
    weak_word = write_one(server, org.owner, "one zebra " + "and much other matter beside it " * 20, one_hot(41))
    weak_meaning = write_one(server, org.owner, "donkey", tilted(1, 0.3))
    found = ids(search(server, org.owner, "zebra crossing", one_hot(1), k=10, profile=profile))

    assert {words_alone, meaning_alone} <= set(found)
    assert found.index(words_alone) < found.index(weak_word)
    assert found.index(meaning_alone) < found.index(weak_meaning)
    assert found.index(words_alone) < found.index(weak_meaning)


# S3: nothing relevant is stored


@pytest.mark.parametrize("legs", LEGS)
@pytest.mark.parametrize("profile", SHIPPED)
def test_s3_with_nothing_relevant_the_answer_is_empty(server: Server, org: Org, profile: str, legs: str) -> None:
    for number in range(30):
        write_one(server, org.owner, f"notes about coffee and tea {number}x", tilted(1, 0.1, other=50 + number))
    answer = ask(server, org.owner, "zebra habitat", one_hot(1), legs, profile=profile)
    assert answer["results"] == []
    assert answer["trace_id"]


@pytest.mark.parametrize("legs", LEGS)
def test_s3_a_floor_leaves_nothing_of_what_matches_by_chance(server: Server, org: Org, legs: str) -> None:
    """One common word of many, and a similarity as unrelated texts have it."""
    set_knobs(server, org, fused_floor=0.4, vector_threshold=0.45)
    for number in range(30):
        write_one(server, org.owner, f"notes about coffee and tea {number}x", tilted(1, 0.35, other=50 + number))
    right = write_one(server, org.owner, "the habitat of the zebra is the savanna", tilted(1, 0.8))
    query = "notes of the habitat where a zebra lives"
    assert set(ids(ask(server, org.owner, query, one_hot(1), legs))) <= {right}
    server.call("erase_item", org.owner, {"id": right, "idempotency": unique_key()})
    assert ask(server, org.owner, query, one_hot(1), legs)["results"] == []


@pytest.mark.parametrize("legs", ["hybrid", "lexical"])
def test_s3_one_word_of_seven_is_not_highly_relevant(server: Server, org: Org, legs: str) -> None:
    """Though it is the only one of the seven that any text of the org has."""
    for number, text in enumerate([*NOTES, "Please wait for the other side to answer."]):
        write_one(server, org.owner, text, tilted(1, 0.19, other=50 + number))
    answer = ask(server, org.owner, "four wheel drive cars with great mileage", one_hot(1), legs)
    assert [result["snippet"] for result in answer["results"] if result["relevance"] != "low"] == []


# A well-worded query doesn't come back empty just because one leg found nothing


@pytest.mark.parametrize("profile", SHIPPED)
class TestOneLegFoundNothing:
    QUERY = "How do we undo a bad release?"

    def test_no_word_in_common(self, server: Server, org: Org, profile: str) -> None:
        item = write_one(server, org.owner, "Rolling back: deploy the previous tag.", tilted(1, 0.7))
        say(server, org, *NOTES)
        answer = ask(server, org.owner, self.QUERY, one_hot(1), "hybrid", profile=profile)
        assert ids(answer) == [item]
        assert answer["results"][0]["scores"]["keyword"] == 0

    def test_no_similarity(self, server: Server, org: Org, profile: str) -> None:
        item = write_one(server, org.owner, "To undo a bad release, redeploy the tag before it.", one_hot(2))
        for number, text in enumerate(NOTES):
            write_one(server, org.owner, text, one_hot(20 + number))
        answer = ask(server, org.owner, self.QUERY, one_hot(1), "hybrid", profile=profile)
        assert ids(answer) == [item]
        assert answer["results"][0]["scores"]["vector"] == 0

    def test_no_vectors(self, server: Server, org: Org, profile: str) -> None:
        """Those of another org make the model known."""
        write_one(server, Org(server, f"other-{uuid4()}").owner, "a vector of somebody else's", one_hot(1))
        item = write_one(server, org.owner, "To undo a bad release, redeploy the tag before it.")
        say(server, org, *NOTES)
        assert ids(search(server, org.owner, self.QUERY, one_hot(1), profile=profile)) == [item]

    def test_no_words_stored(self, server: Server, org: Org, profile: str) -> None:
        """A text of nothing but signs has no terms, and its vector is all there is."""
        item = write_one(server, org.owner, "→ ✓ ✗", tilted(1, 0.7))
        assert ids(search(server, org.owner, self.QUERY, one_hot(1), profile=profile)) == [item]

    def test_no_embedder(self, server: Server, org: Org, profile: str) -> None:
        item = write_one(server, org.owner, "To undo a bad release, redeploy the tag before it.", one_hot(2))
        say(server, org, *NOTES)
        assert ids(ask(server, org.owner, self.QUERY, None, "lexical", profile=profile)) == [item]

    def test_no_words_asked(self, server: Server, org: Org, profile: str) -> None:
        item = write_one(server, org.owner, "To undo a bad release, redeploy the tag before it.", tilted(1, 0.7))
        assert ids(search(server, org.owner, "how does it do that?", one_hot(1), profile=profile)) == [item]


def test_the_profile_of_meaning_and_attributes_is_not_empty_for_want_of_similarity(server: Server, org: Org) -> None:
    """It has no weight for words, but attributes hold what was asked."""
    item = write_one(server, org.owner, "as agreed", one_hot(2), title="Release notes", tags=["release"])
    answer = search(server, org.owner, "release notes", one_hot(1), profile="vector_metadata")
    assert (answer["mode"], ids(answer)) == ("hybrid", [item])


# S4: higher is better in every score


def test_s4_every_score_rises_with_what_it_measures(server: Server, org: Org) -> None:
    set_knobs(server, org, metadata_weight=0.2, mmr_lambda=1)
    say(server, org, *NOTES)

    def scores_of(measure: str, variants: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
        """Of items that differ in one thing, from the worst to the best."""
        made = []
        for number, variant in enumerate(variants):
            fields = {"content": "the zebra", "vector": tilted(1, 0.6), **variant}
            text, vector = fields.pop("content"), fields.pop("vector")
            made.append(write_one(server, org.owner, f"{text} {measure}{number}x", vector, **fields))
        answer = search(server, org.owner, "zebra river", one_hot(1), k=30)
        by_id = {result["id"]: result for result in answer["results"]}
        found = [by_id[item]["scores"] for item in made]
        order = [item for item in ids(answer) if item in made]
        assert order == made[::-1], measure
        for item in made:
            server.call("erase_item", org.owner, {"id": item, "idempotency": unique_key()})
        return found

    cases: dict[str, list[dict[str, Any]]] = {
        "vector": [{"vector": tilted(1, cosine)} for cosine in (-0.5, 0.3, 0.6, 0.95)],
        "keyword": [
            {"content": "zebra " + "and other matter beside it " * 10},
            {"content": "zebra"},
            {"content": "zebra zebra"},
            {"content": "zebra river"},
        ],
        "metadata": [{}, {"title": "zebra"}, {"title": "zebra river"}],
    }
    for measure, variants in cases.items():
        found = scores_of(measure, variants)
        for name in (measure, "hybrid", "final"):
            values = [scores[name] for scores in found]
            assert values == sorted(values), (measure, name)
            assert len(set(values)) == len(values), (measure, name)
        for scores in found:
            assert all(0 <= value <= 1 for value in scores.values()), measure


def test_s4_relevance_classes_follow_the_scores(server: Server, org: Org) -> None:
    for number, cosine in enumerate(np.linspace(0.2, 0.99, 20)):
        write_one(server, org.owner, f"text {number}x", tilted(1, float(cosine), other=50 + number))
    results = search(server, org.owner, None, one_hot(1), k=20)["results"]
    order = {"high": 2, "standard": 1, "low": 0}
    classes = [order[result["relevance"]] for result in results]
    assert classes == sorted(classes, reverse=True)
    assert set(classes) == {0, 1, 2}


def test_the_same_query_keeps_its_class_as_its_org_grows(server: Server, org: Org) -> None:
    """Whether what comes makes its words frequent, or its own words rare."""
    said = {"zebra lion": 0.5, "zebra hawk otter": 0.7, "gnu": 0.2}
    mine = [write_one(server, org.owner, text, tilted(1, cosine, other=60)) for text, cosine in said.items()]
    queries = (
        "zebra",
        "zebra lion absent",
        "where did the zebra see a hawk and an otter, a lion and a gnu, on its way home",
    )

    def classes() -> list[dict[str, tuple[Any, ...]]]:
        answers = [search(server, org.owner, query, one_hot(1), k=100, explain=True) for query in queries]
        return [
            {
                each["item"]: (each["relevance"], each["matched"], each["vector"])
                for each in answer["explain"]["candidates"]
                if each["item"] in mine
            }
            for answer in answers
        ]

    first = classes()
    assert {told[0] for found in first for told in found.values()} == {"high", "standard", "low"}
    for text in ("zebra hawk", "tapir yak", "otter lion gnu"):
        for number in range(20):
            write_one(server, org.owner, f"{text} n{number}x", one_hot(100 + number))
        assert classes() == first


# Rows of a larger org, and of a small one beside it (S5 to S9, S16, R15)

SIZE, SMALL = 6000, 30
WORDS = words(400)


@dataclass
class Town:
    """A large org and a small one that lies among its meanings, with tags on every second, twentieth, 200th row."""

    server: Server
    large: Rows
    small: Rows
    queries: Vectors
    early_plans: list[str]

    def texts(self, answer: dict[str, Any]) -> list[str]:
        return [result["snippet"] for result in answer["results"]]

    def exact(self, rows: Rows, query: Vectors, k: int, tag: str | None = None) -> list[str]:
        """Texts of the nearest rows by an exact scan."""
        assert rows.vectors is not None
        places = [n for n in range(len(rows)) if tag is None or tag in rows.tags[n]]
        return [rows.texts[places[n]] for n in nearest(rows.vectors[places], query, min(k, len(places)))]


def _rows(org: Org, count: int, rng: np.random.Generator, space: Clusters) -> Rows:
    weights = 1 / np.arange(1, len(WORDS) + 1)
    drawn = rng.choice(WORDS, size=(count, 8), p=weights / weights.sum())
    texts = [f"everywhere {' '.join(row)} n{number}x {org.slug}" for number, row in enumerate(drawn)]
    tags = [[f"every{step}" for step in (2, 20, 200) if number % step == 0] for number in range(count)]
    return Rows(org, texts, space.draw(count), tags=tags)


@pytest.fixture(scope="module")
def town(cluster: Postgres, template_database: Database) -> Iterator[Town]:
    rng = np.random.default_rng(3)
    space = Clusters(rng, 40)
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        # large, without the time that 25,000 vectors would take to index
        server.rows(
            "create or replace function engine.few_chunks() returns int language sql immutable as 'select 5000'"
        )
        for table in ("items", "chunks", "lexical", "embeddings", "item_tags"):
            server.rows(f"alter table almagest.{table} set (autovacuum_enabled = off)")
        large, small = (_rows(Org(server, slug), n, rng, space) for slug, n in (("large", SIZE), ("small", SMALL)))
        fill(server, large, small)
        queries = space.draw(8)
        request = {"query": f"{WORDS[150]} {WORDS[3]}", "embedding": as_literal(queries[0])}
        early = plans(server, large.org.owner, request)
        server.rows("analyze")
        for org in (large.org, small.org):
            set_knobs(server, org, "by_meaning", vector_threshold=0, mmr_lambda=1, strength_low=1)
        yield Town(server, large, small, queries, early)


@pytest.mark.parametrize("k", [10, 50])
def test_s5_a_small_org_beside_a_large_one_misses_nothing(town: Town, k: int) -> None:
    for query in town.queries:
        answer = search(town.server, town.small.org.owner, None, list(query), k, profile="by_meaning")
        expected = town.exact(town.small, query, k)
        # those with hardly any similarity may follow
        assert town.texts(answer)[: len(expected)] == expected
        assert len(expected) >= 5
    assert len(search(town.server, town.small.org.owner, "everywhere", k=100)["results"]) == SMALL


@pytest.mark.parametrize("tag", ["every2", "every20", "every200"])
def test_s6_a_filter_comes_before_the_nearest(town: Town, tag: str) -> None:
    """The full k, and the right ones, down to one row of two hundred."""
    found = wanted = 0
    for query in town.queries:
        answer = search(
            town.server, town.large.org.owner, None, list(query), profile="by_meaning", filters={"tags": [tag]}
        )
        expected = town.exact(town.large, query, 10, tag)
        assert len(answer["results"]) == 10
        found += len(set(town.texts(answer)) & set(expected))
        wanted += 10
    assert found / wanted >= 0.95


@pytest.mark.parametrize("legs", LEGS)
@pytest.mark.parametrize(("tag", "expected"), [("every2", 100), ("every20", 100), ("every200", 30)])
def test_s5_a_selective_filter_leaves_the_full_k(town: Town, legs: str, tag: str, expected: int) -> None:
    """Far more than the 40 at which an index scan ends by itself."""
    set_knobs(town.server, town.large.org, "wide", vector_threshold=0, fused_floor=0)
    vector = [float(value) for value in np.full(384, 1.0)]  # of no cluster, so that all are about as near
    answer = ask(
        town.server, town.large.org.owner, "everywhere", vector, legs, k=100, profile="wide", filters={"tags": [tag]}
    )
    # by meaning alone, those with no similarity at all are none
    enough = expected if legs != "vector" else expected // 3
    assert len(set(ids(answer))) >= enough
    assert all(tag in result["tags"] for result in answer["results"])


def _read_whole(found: Sequence[str]) -> list[str]:
    """Tables read whole for their words or vectors. (To count what is nearly all of a table is to read it.)"""
    return [
        line.strip()
        for plan in found
        if "<=>" in plan or "@@" in plan
        for line in plan.splitlines()
        if re.search(r"Seq Scan on (?:lexical|embeddings|chunks)\b", line)
    ]


@pytest.mark.parametrize("fields", [{}, {"filters": {"tags": ["every200"]}}])
def test_s7_s8_no_table_is_read_whole(town: Town, fields: dict[str, Any]) -> None:
    request = {"query": f"{WORDS[150]} {WORDS[3]}", "embedding": as_literal(town.queries[1]), **fields}
    found = plans(town.server, town.large.org.owner, request)
    assert found
    if not fields:
        [nearest_plan] = [plan for plan in found if "Index Scan using embeddings_vector_1" in plan]
        assert "Order By: (vector" in nearest_plan
        # nothing is joined inside, and no window is computed over the distances
        for node in ("Join", "Nested Loop", "WindowAgg"):
            assert node not in nearest_plan
    assert _read_whole(found) == []


def test_s7_a_small_org_is_found_by_its_own_index(town: Town) -> None:
    request = {"query": "everywhere", "embedding": as_literal(town.queries[1])}
    found = plans(town.server, town.small.org.owner, request)
    assert not [plan for plan in found if "embeddings_vector_1" in plan]
    assert [plan for plan in found if re.search(r"using embeddings_(org|pkey|item)|on embeddings_(org|item)", plan)]
    assert _read_whole(found) == []


@pytest.mark.parametrize("vector", [False, True])
def test_s9_a_word_that_every_row_has_is_bounded_work(town: Town, vector: bool) -> None:
    owner, query = town.large.org.owner, list(town.queries[0]) if vector else None
    times = []
    for _ in range(3):
        start = time.perf_counter()
        answer = search(town.server, owner, "everywhere", query, explain=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 1
    assert len(answer["results"]) == 10
    trace = town.server.call("get_trace", owner, {"id": answer["trace_id"]})
    assert trace["mode"] == answer["mode"] == ("hybrid" if vector else "lexical")
    assert isinstance(trace["exact"], bool)
    assert trace["legs"]["keyword"] <= 100
    assert trace["found"] <= 200


def test_s16_a_large_answer_is_whole(town: Town) -> None:
    """More rows match than the 1000 at which PostgREST cuts, and k of them come."""
    answer = search(town.server, town.large.org.owner, "everywhere", list(town.queries[0]), k=100)
    assert len(set(ids(answer))) == 100
    trace = town.server.call("get_trace", town.large.org.owner, {"id": answer["trace_id"]})
    assert [result["item"] for result in trace["results"]] == ids(answer)


@pytest.mark.parametrize("org", ["large", "small"])
def test_r15_plans_stay_as_good_after_many_searches_of_a_session(town: Town, org: str) -> None:
    """From the sixth execution on, Postgres may take a generic plan."""
    rows = town.large if org == "large" else town.small
    request = {"query": f"{WORDS[150]} {WORDS[3]}", "embedding": as_literal(town.queries[2])}
    late = plans(town.server, rows.org.owner, request, repeat=12)
    assert _read_whole(late) == []
    assert rows_handled(late) <= 3 * SIZE
    used = [plan for plan in late if "Index Scan using embeddings_vector_1" in plan]
    assert len(used) == (1 if org == "large" else 0)


def test_r15_a_load_without_statistics_is_no_more_work(town: Town) -> None:
    """Right after a load, before anything has counted the new rows."""
    assert _read_whole(town.early_plans) == []
    assert rows_handled(town.early_plans) <= 3 * SIZE


def test_r15_one_session_serves_large_and_small_orgs_in_turn(town: Town) -> None:
    """A plan that was made for one of them would be wrong, or slow, for the other."""
    with town.server.another() as server:
        for _ in range(4):
            for rows in (town.large, town.small, town.small, town.large):
                start = time.perf_counter()
                answer = search(server, rows.org.owner, "everywhere", list(town.queries[0]))
                assert time.perf_counter() - start < 1
                assert len(answer["results"]) == 10
                assert all(text.endswith(rows.org.slug) for text in town.texts(answer))


# S10: odd queries

ODD: dict[str, tuple[str, bool]] = {
    "two characters": ("ab", True),
    "one character": ("x", True),
    "only stop words": ("to be or not to be", False),
    "only punctuation": ("?!… ;) ---", False),
    "emoji": ("😀👩‍👩‍👧‍👦", False),
    "only spaces": (" \t\n ", False),
    "nothing": ("", False),
    "one long word": ("a" * 100_000, False),
    "many words": ("word " * 20_000, True),
    "many different words": (" ".join(f"w{n}x" for n in range(14_000)), False),
    "100,000 characters of Chinese": ("漢字" * 50_000, False),
    "combining marks": ("e" + "\u0301" * 50_000, True),
    "right to left": ("\u202eabc\u202c שלום مرحبا", False),
    "private use": ("\ue000\uf8ff\U0010fffd", False),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("vector", [None, one_hot(1)])
def test_s10_odd_queries_have_a_defined_answer_in_bounded_time(
    server: Server, org: Org, name: str, vector: Any
) -> None:
    query, has_words = ODD[name]
    by_words = [write_one(server, org.owner, text, one_hot(9)) for text in ("ab", "x", "a word", "é")]
    by_meaning = write_one(server, org.owner, "something else", tilted(1, 0.9))
    start = time.perf_counter()
    answer = search(server, org.owner, query, vector)
    assert time.perf_counter() - start < 2
    found = set(ids(answer))

    assert (by_meaning in found) == (vector is not None)
    assert len(found & set(by_words)) == (1 if has_words else 0)
    assert answer["mode"] in ({"hybrid", "vector"} if vector else {"lexical", "substring"})


# S11, S12: other scripts, accents, case, width

FOLDED: dict[str, tuple[str, str]] = {
    "Chinese": ("我们决定把数据库迁移到新的服务器上", "数据库迁移"),
    "Chinese, two signs": ("我们决定把数据库迁移到新的服务器上", "迁移"),
    "Japanese": ("リリースの前に必ずバックアップを取ってください", "バックアップ"),
    "Japanese, kanji and kana": ("会議は毎週火曜日に行われます", "火曜日に"),
    "Korean": ("배포는 화요일마다 진행됩니다", "화요일"),
    "Korean, decomposed": ("배포는 화요일마다 진행됩니다", "\u1112\u116a\u110b\u116d\u110b\u1175\u11af"),
    "mixed": ("deploy 部署 Kubernetes 集群", "集群 kubernetes"),
    "accents": ("Die Übergabe im Café Zürich", "ubergabe cafe zurich"),
    "accents in the query": ("resume of the meeting", "résumé"),
    "combining accents": ("Zu\u0308rich", "zürich"),
    "case": ("the KAFKA broker", "kafka"),
    "sharp s": ("die lange Straße", "strasse"),
    "sharp s in the query": ("die lange STRASSE", "Straße"),
    "full width": ("Ｋａｆｋａ ｂｒｏｋｅｒ １２３", "kafka 123"),
    "full width in the query": ("kafka broker", "ＫＡＦＫＡ"),
    "half width kana": ("ﾊﾞｯｸｱｯﾌﾟ", "バックアップ"),
    "ligature": ("the ﬁle server", "file"),
    "Nordic": ("Ærø og Søren", "soren"),
    "Cyrillic": ("Развёртывание по вторникам", "РАЗВЁРТЫВАНИЕ"),
}


@pytest.mark.parametrize("name", FOLDED)
def test_s11_s12_scripts_accents_case_and_width_are_found(server: Server, org: Org, name: str) -> None:
    text, query = FOLDED[name]
    say(server, org, "nothing of the kind", "完全不同的内容", "まったく別の話", "전혀 다른 이야기", *NOTES)
    item = write_one(server, org.owner, text)
    assert ids(search(server, org.owner, query))[:1] == [item]


# S13: vectors that are none

BAD_VECTORS: dict[str, Any] = {
    "too short": literal(one_hot(1)[:383]),
    "too long": literal([*one_hot(1), 0.0]),
    "empty": "[]",
    "thousands of dimensions": "[" + ",".join(["1"] * 20_000) + "]",
    "not a number": "[" + ",".join(["NaN", *["1"] * 383]) + "]",
    "infinite": "[" + ",".join(["Infinity", *["1"] * 383]) + "]",
    "minus infinite": "[" + ",".join(["-inf", *["1"] * 383]) + "]",
    "too large for a half": "[" + ",".join(["1e6", *["1"] * 383]) + "]",
    "too large for a double": "[" + ",".join(["1e999", *["1"] * 383]) + "]",
    "all zeros": "[" + ",".join(["0"] * 384) + "]",
    "all zeros once rounded": "[" + ",".join(["1e-12"] * 384) + "]",
    "words": "not a vector",
    "nothing": "",
    "a number": 1,
    "an object": {"vector": one_hot(1)},
    "true": True,
    "nulls": [None] * 384,
    "texts": ["a"] * 384,
}


@pytest.mark.parametrize("name", BAD_VECTORS)
def test_s13_a_vector_that_is_none_is_named_and_leaves_nothing(server: Server, org: Org, name: str) -> None:
    write_one(server, org.owner, "zebra", one_hot(1))
    with pytest.raises(Refused) as refused:
        server.call("search", org.owner, {"query": "zebra", "embedding": BAD_VECTORS[name], "model": MODEL})
    assert (refused.value.status, refused.value.code) == (422, "invalid_vector")
    for table, rows in (("retrievals", 0), ("activations", 0), ("embeddings", 1)):
        assert server.value(f"select count(*) from almagest.{table} where org_id = %s", org.id) == rows


# S14: rows without an embedding


def test_s14_rows_without_a_vector_compete_and_are_reported(server: Server, org: Org) -> None:
    with_vector = [write_one(server, org.owner, f"zebra herd {n}x", tilted(1, 0.8)) for n in range(6)]
    without = say(server, org, *(f"zebra herd {n}y" for n in range(6)))
    answer = search(server, org.owner, "zebra herd", one_hot(1), k=20)

    assert set(ids(answer)) == {*with_vector, *without}
    scores = {result["id"]: result["scores"] for result in answer["results"]}
    assert all(scores[item]["vector"] is None for item in without)
    assert all(scores[item]["vector"] is not None for item in with_vector)
    assert all(scores[item]["keyword"] > 0 for item in scores)
    assert server.call("index_status", org.owner)["pending"] == len(without)
    again = search(server, org.owner, "zebra herd", one_hot(1), k=20)
    assert ids(again) == ids(answer)


# S15: user, agent and private together


def test_s15_user_agent_and_private_filters_combine(server: Server, org: Org) -> None:
    """Each caller, whose agent_name they ask for, and what is private or assigned: never empty by combination."""
    anna, bert = org.member(), org.member()
    scribe, clerk = org.agent("scribe"), org.agent("clerk")
    annas_agent = {**anna, "agent": scribe["agent"], "role": "agent"}
    callers = {"anna": anna, "bert": bert, "scribe": scribe, "annas_agent": annas_agent, "owner": org.owner}
    whose = {"anna": anna["user"], "bert": bert["user"], "annas_agent": anna["user"], "owner": org.owner["user"]}
    works_as = {"scribe": scribe["agent"], "annas_agent": scribe["agent"]}

    stored: list[dict[str, Any]] = []
    for number, (user, name, agent, kind) in enumerate(
        itertools.product(
            (None, anna["user"], bert["user"]), (None, "scribe", "clerk"), (None, scribe, clerk), ("memory", "page")
        )
    ):
        if user and agent:
            continue  # a private item is assigned to nobody
        item = org.item(
            f"zebra n{number}x",
            tilted(1, 0.9),
            agents=[agent["agent"]] if agent else [],
            user_id=user,
            agent_name=name,
            kind=kind,
        )
        assigned = agent and agent["agent"]
        stored.append({"id": item, "user": user, "name": name, "assigned": assigned, "kind": kind})

    def sees(who: str, item: dict[str, Any]) -> bool:
        if item["user"] and item["user"] != whose.get(who):
            return False
        return not item["assigned"] or who == "owner" or item["assigned"] == works_as.get(who)

    names: list[Any] = [None, "scribe", "clerk", ["scribe", "clerk"], ["nobody"], []]
    for who, name, kind in itertools.product(callers, names, (None, "memory")):
        filters = {key: value for key, value in (("agent_name", name), ("kind", kind)) if value is not None}
        expected = {
            item["id"]
            for item in stored
            if sees(who, item)
            and (name is None or item["name"] in (name if isinstance(name, list) else [name]))
            and (kind is None or item["kind"] == kind)
        }
        for legs in LEGS:
            answer = ask(server, callers[who], "zebra", one_hot(1), legs, k=100, filters=filters)
            assert set(ids(answer)) == expected, (who, filters, legs)


# S16: large answers


def test_s16_a_hundred_results_with_long_metadata_come_whole(server: Server, org: Org) -> None:
    blob = {"notes": "x" * 20_000, "list": list(range(500))}
    memories = [memory(f"zebra number{n}x", tilted(1, 0.9, other=50 + n), metadata=blob) for n in range(120)]
    write(server, org.owner, *memories)
    answer = search(server, org.owner, "zebra", one_hot(1), k=100)
    assert len(set(ids(answer))) == 100
    assert all(result["metadata"] == blob for result in answer["results"])


@pytest.mark.parametrize("legs", LEGS)
def test_s16_more_than_a_thousand_candidates_rank_as_a_few_do(server: Server, org: Org, legs: str) -> None:
    best = write_one(server, org.owner, "zebra zebra river", tilted(1, 0.99))
    parts = [f"a zebra in longer text number{n}x" for n in range(1200)]
    for start in range(0, 1200, 400):
        some = parts[start : start + 400]
        vectors = [tilted(1, 0.5, other=2 + n % 300) for n in range(400)]
        write_one(server, org.owner, f"{start} " + "".join(some), chunks=chunks_of(some, vectors))
    last = write_one(server, org.owner, "zebra river", tilted(1, 0.97))
    answer = ask(server, org.owner, "zebra river", one_hot(1), legs)
    assert set(ids(answer)[:2]) == {best, last}
    assert len(set(ids(answer))) == len(answer["results"])


@pytest.mark.parametrize(
    "legs",
    [
        "hybrid",
        "lexical",
        "vector",
    ],
)
def test_s5_a_long_document_leaves_room_for_others(server: Server, org: Org, legs: str) -> None:
    """Its hundred chunks are better than all others, in words and in meaning."""
    parts = [f"zebra river zebra river number{n}x " for n in range(100)]
    vectors = [tilted(1, 0.95, other=50 + n) for n in range(100)]
    long = write_one(server, org.owner, "".join(parts), chunks=chunks_of(parts, vectors))
    others = [
        write_one(server, org.owner, f"a zebra in longer text number{n}y", tilted(1, 0.7, other=2 + n))
        for n in range(9)
    ]
    assert set(ids(ask(server, org.owner, "zebra river", one_hot(1), legs))) == {long, *others}


# S17: searches beside writes and erasures


def test_s17_searches_beside_writes_and_erasures_never_fail(server: Server, org: Org) -> None:
    write(server, org.owner, *(memory(f"zebra start{n}x", one_hot(n % 20)) for n in range(40)))
    end = time.monotonic() + 1.5

    def searching(server: Server) -> int:
        done = 0
        while time.monotonic() < end:
            answer = search(server, org.owner, "zebra start", one_hot(done % 20), explain=done % 2 == 0)
            assert answer["results"]
            assert answer["trace_id"], "the log was given up"
            done += 1
        return done

    def changing(name: str) -> Any:
        def work(server: Server) -> int:
            done = 0
            while time.monotonic() < end:
                item = write_one(server, org.owner, f"zebra {name} start{done}y", one_hot(done % 20))
                search(server, org.owner, f"zebra {name}", one_hot(done % 20))
                server.call(f"{name}_item", org.owner, {"id": item, "idempotency": unique_key()})
                done += 1
            return done

        return work

    def tuning(server: Server) -> int:
        done = 0
        while time.monotonic() < end:
            set_knobs(server, org, candidates=20 + done % 10)
            done += 1
        return done

    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    before = server.value(deadlocks)
    results = at_once(server, searching, searching, searching, changing("erase"), changing("archive"), tuning)
    assert not [result for result in results if isinstance(result, Exception)], results
    assert min(results) > 3
    assert server.value(deadlocks) == before


# S18: the tail of a long text


@pytest.mark.parametrize("legs", LEGS)
def test_s18_the_tail_of_a_long_text_is_found(server: Server, org: Org, legs: str) -> None:
    parts = [f"Part {n} of the handbook is about ordinary matters. " for n in range(300)]
    parts.append("The vault code is quokka. ")
    vectors = [one_hot(100 + n % 200) for n in range(300)] + [tilted(1, 0.9)]
    item = write_one(server, org.owner, "".join(parts), chunks=chunks_of(parts, vectors))
    [first, *_] = ask(server, org.owner, "vault code", one_hot(1), legs)["results"]
    assert (first["id"], first["snippet"].strip()) == (item, "The vault code is quokka.")


# S19: identical chunks


@pytest.mark.parametrize("legs", LEGS)
@pytest.mark.parametrize(
    "copies",
    [
        12,
        60,
    ],
)
def test_s19_identical_chunks_leave_room_for_others(server: Server, org: Org, legs: str, copies: int) -> None:
    """A footer that stands in many documents, and that fits the query best."""
    footer = "Confidential: do not forward this zebra report."
    reports = [
        memory(
            f"Report number{n}x. {footer}",
            chunks=chunks_of([f"Report number{n}x. ", footer], [one_hot(100 + n % 200), one_hot(1)]),
        )
        for n in range(copies)
    ]
    write(server, org.owner, *reports)
    others = [
        write_one(server, org.owner, f"another zebra text number{n}y, about a report", tilted(1, 0.7, other=2 + n))
        for n in range(9)
    ]
    answer = ask(server, org.owner, "confidential zebra report", one_hot(1), legs)
    snippets = [result["snippet"] for result in answer["results"]]
    assert snippets.count(footer) == 1
    assert set(others) <= set(ids(answer))


# S20: time zones


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles", "Asia/Kolkata"])
def test_s20_days_are_those_of_utc_whatever_the_sessions_zone(server: Server, org: Org, zone: str) -> None:
    times = {
        "first": "2026-01-31T23:30:00Z",
        "second": "2026-02-01T05:29:00+05:30",  # 23:59 UTC of the day before
        "third": "2026-01-31T16:30:00-08:00",  # 00:30 UTC of the day after
    }
    items = {
        name: write_one(server, org.owner, f"zebra {name}", occurred_at=moment, created_at=None)
        for name, moment in times.items()
    }
    with server.another() as other:
        other.api.execute(f"set timezone = '{zone}'".encode())

        def found(query: str = "zebra", **filters: Any) -> list[str]:
            answer = search(other, org.owner, query, filters=filters)
            return [name for item in ids(answer) for name, stored in items.items() if stored == item]

        assert set(found(occurred_before="2026-02-01T00:00:00Z")) == {"first", "second"}
        assert set(found(occurred_after="2026-02-01T00:00:00Z")) == {"third"}
        assert set(found(occurred_after="2026-01-31T23:45:00+00:00")) == {"second", "third"}
        assert set(found(occurred_after="2026-02-01T12:45:00+13:00")) == {"second", "third"}
        [seen] = {str(other.call("get_item", org.owner, {"id": items[name]})["occurred_at"]) for name in ("second",)}
        assert seen.startswith("2026-01-31T23:59:00")
        assert seen.endswith(("Z", "+00:00"))
        created = search(other, org.owner, "zebra")["results"][0]["created_at"]
        assert created.endswith(("Z", "+00:00"))
        trace = search(other, org.owner, "zebra")["trace_id"]
        assert other.call("get_trace", org.owner, {"id": trace})["created_at"].endswith(("Z", "+00:00"))


@pytest.mark.parametrize(
    "zone",
    [
        "UTC",
        "Pacific/Auckland",
        "America/Los_Angeles",
    ],
)
def test_s20_a_month_in_the_query_is_that_of_utc(server: Server, org: Org, zone: str) -> None:
    january = write_one(server, org.owner, "a zebra walked by", occurred_at="2026-01-31T23:30:00Z")
    february = write_one(server, org.owner, "a zebra walked in", occurred_at="2026-02-01T00:30:00Z")
    with server.another() as other:
        other.api.execute(f"set timezone = '{zone}'".encode())
        assert ids(search(other, org.owner, "which zebra walked in January 2026")) == [january, february]
        assert ids(search(other, org.owner, "which zebra walked in February 2026")) == [february, january]


# R4, R17: how functions set what they need


def test_r4_parameters_hold_for_the_call_alone(server: Server, org: Org) -> None:
    """Also as the login role that becomes service_role in the transaction, as PostgREST does."""
    item = write_one(server, org.owner, "zebra", one_hot(1))
    with server.database.connect("authenticator") as connection:
        before = connection.execute("select current_setting('hnsw.ef_search', true)").fetchone()
        with connection.transaction():
            connection.execute("set local role service_role")
            answer = search(Server(server.database, connection, server.owner), org.owner, "zebra", one_hot(1))
        assert ids(answer) == [item]
        row = connection.execute(
            "select current_setting('hnsw.ef_search', true), current_setting('almagest.caller', true)"
        ).fetchone()
        assert row is not None
        assert row[1] in (None, "")
        assert row[0] in (*(before or ()), "40")  # the built-in value, once the library is loaded


def test_r17_one_signature_each_and_nothing_that_only_fails_when_it_runs(server: Server, org: Org) -> None:
    functions = server.rows(
        "select p.pronamespace::regnamespace::text || '.' || p.proname, p.provolatile, p.prosrc,"
        " coalesce(p.proargnames, '{}'), p.proconfig::text"
        " from pg_proc as p where p.pronamespace in ('api'::regnamespace, 'engine'::regnamespace)"
    )
    names = [row[0] for row in functions]
    assert len(names) == len(set(names)) > 50
    for name, volatility, source, arguments, config in functions:
        if volatility != "v":
            assert not re.search(r"\bset\s+local\b", source, re.IGNORECASE), name
            assert "set_config(" not in source.lower(), name
        assert all(argument == argument.lower() for argument in arguments), name
        # a function's own SET of an extension's parameter is refused in a session that has not loaded it (R4)
        assert "hnsw." not in (config or ""), name
