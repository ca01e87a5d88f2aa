"""How Postgres goes about a search: which indexes it uses, and what a small org loses beside a large one."""

import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from infra.local.postgres import Postgres
from tests.database.support import MODEL, Org, Server, ids, literal, one_hot, search, serve, write_one
from tests.support import Database, clone

LARGE = 20_000
COMMON = [f"common{number}x" for number in range(40)]
RNG = random.Random(7)  # noqa: S311

# Rows as api.write_memories makes them, in one statement: %s are the org and the texts.
BULK = """
with written as (
    insert into almagest.items (org_id, kind, type, content, content_hash, origin, index_status)
    select %s, 'memory', 'note', content, md5(content), 'agent', 'search_ready' from unnest(%s::text[]) as content
    returning *
),
signals as (
    insert into almagest.strength_signals (item_id, org_id, starting_strength) select id, org_id, 0.5 from written
),
cut as (
    insert into almagest.chunks (item_id, org_id, position, start_offset, end_offset, text)
    select id, org_id, 0, 0, length(content), content from written
    returning *
),
terms as (
    insert into almagest.lexical (
        chunk_id, item_id, org_id, state, kind, sequence, place, tokeniser, length, terms, text_hash
    )
    select
        id, item_id, org_id, 'active', 'memory', item_id, 0, engine.tokeniser_version(), engine.term_count(own),
        setweight(own, 'A'), hashtextextended(text, 0)
    from cut cross join lateral (select engine.tokenise(cut.text) as own offset 0) as t
)
insert into almagest.embeddings (chunk_id, model_id, item_id, org_id, state, vector)
select cut.id, engine.model_id(%s), cut.item_id, cut.org_id, 'active', made.vector
from cut
cross join lateral (
    select array_agg(random() - 0.5)::extensions.vector::extensions.halfvec as vector
    from generate_series(cut.id + 1, cut.id + 384) -- of the row, so that each has its own
) as made
"""


class Crowd:
    """A large org and a small one in one database."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.large, self.small = Org(server, "large"), Org(server, "small")
        # The first model to write has number 1, and the index.
        write_one(server, self.small.owner, "the first zebra", one_hot(1))
        index = server.value("select indexdef from pg_indexes where indexname = 'embeddings_vector_1'")
        server.rows("drop index almagest.embeddings_vector_1")
        for org, count in ((self.large, LARGE), (self.small, 40)):
            texts = [f"{' '.join(RNG.choices(COMMON, k=12))} rare{number}x {org.slug}" for number in range(count)]
            server.rows(BULK, org.id, texts, MODEL)
        server.rows("set maintenance_work_mem = '256MB'")
        server.rows(index)
        server.rows("vacuum analyze")

    def plans(self, org: Org, request: dict[str, Any]) -> list[str]:
        """Every plan that a search runs, the ones inside its functions included."""
        said: list[str] = []
        with self.server.database.connect("supabase_admin") as connection:
            connection.add_notice_handler(lambda diagnostic: said.append(diagnostic.message_primary or ""))
            connection.execute("load 'auto_explain'")
            for name, value in (
                ("auto_explain.log_min_duration", "0"),
                ("auto_explain.log_nested_statements", "on"),
                ("auto_explain.log_level", "notice"),
                ("client_min_messages", "notice"),
            ):
                connection.execute("select set_config(%s, %s, false)", [name, value])
            connection.execute(
                "select api.search(%s, %s)", [Jsonb(org.owner), Jsonb({"model": MODEL, "k": 10, **request})]
            )
        return [plan for plan in said if "plan:" in plan]


@pytest.fixture(scope="module")
def crowd(cluster: Postgres, template_database: Database) -> Iterator[Crowd]:
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        yield Crowd(server)


def _vector() -> list[float]:
    return [RNG.random() - 0.5 for _ in range(384)]


def test_the_nearest_neighbours_come_from_the_vector_index(crowd: Crowd) -> None:
    """S7, S8: and in its order, with no join in between."""
    plans = crowd.plans(crowd.large, {"query": "common1x rare17x", "embedding": literal(_vector())})
    [plan] = [plan for plan in plans if "limit candidates" in plan]
    tree = plan[plan.index("\nSort") if "\nSort" in plan else plan.index("\nIncremental Sort") :]
    assert "Index Scan using embeddings_vector_1 on embeddings" in tree
    assert "Order By: (vector" in tree
    assert "Seq Scan" not in tree
    assert "Join" not in tree
    assert "Nested Loop" not in tree


def test_terms_come_from_the_word_index(crowd: Crowd) -> None:
    """S7: also a term that nearly every document has."""
    for query in ("rare17x", "common1x common2x rare17x rare18x"):
        plans = crowd.plans(crowd.large, {"query": query})
        best = [plan for plan in plans if "as first_of_item" in plan]
        counts = [plan for plan in plans if "limit most" in plan and "@@" in plan]
        assert best
        assert counts
        for plan in best + counts:
            assert "Bitmap Index Scan on lexical_terms" in plan
            assert "Seq Scan on lexical" not in plan


def test_neighbours_come_from_the_sequence_index(crowd: Crowd) -> None:
    plans = crowd.plans(crowd.large, {"query": "common1x rare17x", "embedding": literal(_vector())})
    [plan] = [plan for plan in plans if "from engine.around(" in plan]
    assert "lexical_sequence" in plan
    assert "Seq Scan on lexical" not in plan


def test_candidates_are_read_by_their_keys(crowd: Crowd) -> None:
    """However large the org, the ranking reads no more than its candidates."""
    plans = crowd.plans(crowd.large, {"query": "common1x rare17x", "embedding": literal(_vector())})
    ranking = [plan for plan in plans if "with windows as materialized" in plan or "with counted as" in plan]
    assert len(ranking) >= 2
    for plan in ranking:
        assert not re.findall(r"Seq Scan on (?:lexical|embeddings|items|chunks|strength_signals)\b", plan)


def test_visibility_is_in_the_scans_and_calls_no_function(crowd: Crowd) -> None:
    """The predicate is inlined, and the caller's parts are constants in it."""
    plans = crowd.plans(crowd.large, {"query": "rare17x", "embedding": literal(_vector())})
    assert not [plan for plan in plans if re.search(r"(Filter|Cond): .*engine\.(visible|readable)", plan)]
    [nearest] = [plan for plan in plans if "limit candidates" in plan]
    assert f"org_id = '{crowd.large.id}'::uuid" in nearest


def test_a_small_org_is_compared_exactly(crowd: Crowd) -> None:
    """S5: nothing of it is missed, whatever the large one beside it holds."""
    server, small = crowd.server, crowd.small
    server.rows(
        "insert into almagest.search_profiles (org_id, name, knobs) values (%s, 'user_search', %s)",
        *(small.id, Jsonb({"vector_threshold": 0, "mmr_lambda": 1})),
    )
    for _ in range(5):
        vector = _vector()
        nearest = server.rows(
            "select item_id::text from almagest.embeddings"
            " where org_id = %s and vector operator(extensions.<=>) %s::extensions.halfvec < 1"
            " order by vector operator(extensions.<=>) %s::extensions.halfvec",
            *(small.id, literal(vector), literal(vector)),
        )
        assert len(nearest) > 10
        assert ids(search(server, small.owner, None, vector, k=100)) == nearest
    assert len(search(server, small.owner, "small", k=100)["results"]) == 40
    plans = crowd.plans(small, {"query": "rare5x", "embedding": literal(_vector())})
    assert not [plan for plan in plans if "embeddings_vector_1" in plan]


def test_the_full_k_comes_from_a_large_org(crowd: Crowd) -> None:
    """S5: more than an index scan gives by itself."""
    answer = search(crowd.server, crowd.large.owner, " ".join(COMMON[:3]), k=100)
    assert len(set(ids(answer))) == 100
    target = crowd.server.value(
        "select vector::text from almagest.embeddings where org_id = %s order by chunk_id limit 1", crowd.large.id
    )
    close = search(crowd.server, crowd.large.owner, None, None, k=100, embedding=target, model=MODEL)
    assert close["results"][0]["scores"]["vector"] == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("query", ["rare17x rare400x", "common1x", " ".join(COMMON), "common1x rare5x"])
def test_a_search_takes_bounded_time(crowd: Crowd, query: str) -> None:
    """S9: words that nearly all of 20,000 documents have, forty of them at once. A wide bound: machines are slow."""
    times = []
    for vector in (None, _vector()):
        for _ in range(3):
            start = time.perf_counter()
            search(crowd.server, crowd.large.owner, query, vector)
            times.append(time.perf_counter() - start)
    assert min(times) < 3


def test_a_small_org_does_not_pay_for_a_large_one(crowd: Crowd) -> None:
    times = []
    for _ in range(20):
        start = time.perf_counter()
        search(crowd.server, crowd.small.owner, "common1x small rare5x", _vector())
        times.append(time.perf_counter() - start)
    assert sorted(times)[5] < 0.2
