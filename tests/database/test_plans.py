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
        # large, without the time that 25,000 vectors would take to index
        server.rows(
            "create or replace function engine.few_chunks() returns int language sql immutable as 'select 5000'"
        )
        # The first model to write has number 1, and the index.
        write_one(server, self.small.owner, "the first zebra", one_hot(1))
        index = server.value("select indexdef from pg_indexes where indexname = 'embeddings_vector_1'")
        server.rows("drop index almagest.embeddings_vector_1")
        for org, count in ((self.large, LARGE), (self.small, 40)):
            texts = [f"{' '.join(RNG.choices(COMMON, k=12))} rare{number}x {org.slug}" for number in range(count)]
            server.rows(BULK, org.id, texts, MODEL)
        server.rows(
            "insert into almagest.item_tags (item_id, org_id, tag)"
            " select id, org_id, case when content_hash < '03' then 'odd' else 'even' end from almagest.items"
            " where org_id = any(%s::uuid[])",
            [self.large.id, self.small.id],
        )
        server.rows("set maintenance_work_mem = '256MB'")
        server.rows(index)
        server.rows("vacuum analyze")
        assert server.value("select engine.refresh_statistics()") == 1

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


def _one(plans: list[str], text: str) -> str:
    """The only plan of a statement that has this text."""
    [plan] = [plan for plan in plans if text in plan]
    return plan


# Tables that are small whatever an org holds: who belongs to it, what it may search with.
SMALL = {"members", "member_scopes", "agents", "deals", "embedding_models", "search_profiles", "item_types"}


def _scanned(plans: list[str]) -> set[str]:
    """The tables that are read from end to end."""
    return set(re.findall(r"Seq Scan on (\w+)", "\n".join(plans)))


def _asked(crowd: Crowd, org: Org) -> dict[str, dict[str, Any]]:
    """Searches of each kind."""
    vector, [item] = literal(_vector()), ids(search(crowd.server, org.owner, "rare17x", k=1))
    return {
        "hybrid": {"query": "common1x rare17x", "embedding": vector},
        "lexical": {"query": "common1x common2x rare17x rare18x"},
        "common words alone": {"query": "common1x common2x", "embedding": vector},
        "vector": {"embedding": vector},
        "filtered": {"query": "common1x rare17x", "embedding": vector, "filters": {"tags": ["odd"]}},
        "by chunk": {"query": "common1x rare17x", "embedding": vector, "level": "chunk"},
        "why not": {"query": "common1x rare18x", "embedding": vector, "why_not": item},
    }


def test_the_nearest_neighbours_come_from_the_vector_index(crowd: Crowd) -> None:
    """S7, S8: and in its order, with no join in between."""
    plan = _one(crowd.plans(crowd.large, {"query": "common1x rare17x", "embedding": literal(_vector())}), "as nearest")
    tree = plan[plan.index("\nSort") if "\nSort" in plan else plan.index("\nIncremental Sort") :]
    assert "Index Scan using embeddings_vector_1 on embeddings" in tree
    assert "Order By: (vector" in tree
    assert "Seq Scan" not in tree
    assert "Join" not in tree
    assert "Nested Loop" not in tree


def test_terms_come_from_the_word_index(crowd: Crowd) -> None:
    """S7: also a term that nearly every document has; by this index alone, since an org has far more rows.

    Only rare ones are counted.
    """
    for query, rare in (("rare17x", 1), ("common1x common2x rare17x rare18x", 2), ("common1x common2x", 0)):
        plans = crowd.plans(crowd.large, {"query": query})
        best = [plan for plan in plans if "as first_of_item" in plan]
        counts = [plan for plan in plans if "as holders" in plan and "@@" in plan]
        assert best
        assert len(counts) == rare
        for plan in [*best, *counts]:
            assert set(re.findall(r"Index (?:Only )?Scan (?:on|using) (lexical\w*)", plan)) == {"lexical_terms"}
            assert "BitmapAnd" not in plan
            assert "Seq Scan on lexical" not in plan


def test_words_of_the_org_alone_are_looked_up(crowd: Crowd) -> None:
    """Which all rows of the other org have too."""
    for org in (crowd.large, crowd.small):
        [plan] = [plan for plan in crowd.plans(org, {"query": "common1x"}) if "as first_of_item" in plan]
        assert re.search(rf"Index Cond: \(almagest.org_terms\(.*'{org.id[:8]}:common1x'", plan)


def test_neighbours_come_from_the_sequence_index(crowd: Crowd) -> None:
    plan = _one(
        crowd.plans(crowd.large, {"query": "common1x rare17x", "embedding": literal(_vector())}), "with near as"
    )
    assert "Index Scan Backward using lexical_sequence" in plan
    assert "Index Scan using lexical_sequence" in plan
    assert set(re.findall(r"Scan (?:Backward )?(?:on|using) (lexical\w*)", plan)) == {
        "lexical_sequence",
        "lexical_pkey",
    }


def test_candidates_are_read_by_their_keys(crowd: Crowd) -> None:
    """However large the org, the ranking reads no more than its candidates."""
    plan = _one(
        crowd.plans(crowd.large, {"query": "common1x rare17x", "embedding": literal(_vector())}), "legs as mater"
    )
    for key in ("items_pkey", "embeddings_pkey", "chunks_pkey", "lexical_pkey", "strength_signals_pkey"):
        assert re.search(rf"Index (?:Only )?Scan using {key}", plan), key
    assert _scanned([plan]) <= SMALL
    assert not re.search(r"(Hash|Merge) (Left )?Join.*\n(.*\n)?.*Scan on (items|embeddings|chunks|lexical)", plan)


@pytest.mark.parametrize(
    "name", ["hybrid", "lexical", "common words alone", "vector", "filtered", "by chunk", "why not"]
)
def test_no_search_reads_a_table_from_end_to_end(crowd: Crowd, name: str) -> None:
    """S9: nor starts other processes, or a compiler, for it."""
    plans = crowd.plans(crowd.large, _asked(crowd, crowd.large)[name])
    assert _scanned(plans) <= SMALL
    everything = "\n".join(plans)
    assert "Parallel" not in everything
    assert "Workers Planned" not in everything
    assert "JIT:" not in everything


def test_the_trace_says_that_large_orgs_have_statistics(crowd: Crowd) -> None:
    """And the terms that are frequent in them are not counted."""
    answer = search(crowd.server, crowd.large.owner, "common1x rare17x", explain=True)
    assert answer["explain"]["counted"] == "statistics"
    assert search(crowd.server, crowd.small.owner, "common1x", explain=True)["explain"]["counted"] == "live"
    [documents] = crowd.server.rows(
        "select q.documents from engine.resolve_caller(%s) as c"
        " cross join lateral engine.weigh_terms(c, '', '{common1x,rare17x}', '{active}') as q",
        Jsonb(crowd.large.owner),
    )
    counted = crowd.server.value(
        "select count(*) from almagest.lexical where org_id = %s and terms @@ 'common1x'", crowd.large.id
    )
    assert documents == [1, counted]


@pytest.mark.parametrize("words", [1, 2, 3, 5, 8, 12, 30])
def test_what_pruning_proves_is_what_reading_all_finds(crowd: Crowd, words: int) -> None:
    """Of 20,000 rows, by the leg's own budget."""
    for _ in range(6):
        terms = [f"rare{RNG.randrange(LARGE)}x" for _ in range(RNG.randint(0, 2))] + RNG.sample(COMMON, k=words)
        found = {}
        for exhaustive in (False, True):
            [found[exhaustive]] = crowd.server.rows(
                "select leg.* from engine.resolve_caller(%s) as c"
                " cross join lateral engine.weigh_terms(c, '', %s::text[], '{active}') as q"
                " cross join lateral engine.keyword_leg("
                "  c, q, '{active}', null, false, engine.default_knobs() || %s, 30, 10) as leg",
                *(Jsonb(crowd.large.owner), terms, Jsonb({"exhaustive": exhaustive})),
            )
        chunks, scores, exact = found[False]
        assert found[True][2] is True
        assert len(found[True][0]) == 30
        assert len(chunks) >= 10
        if exact:
            assert chunks[:10] == found[True][0][:10]
            assert scores[:10] == pytest.approx(found[True][1][:10], abs=1e-9)


def test_visibility_is_in_the_scans_and_calls_no_function(crowd: Crowd) -> None:
    """The predicate is inlined, and the caller's parts are constants in it."""
    plans = crowd.plans(crowd.large, {"query": "rare17x", "embedding": literal(_vector())})
    assert not [plan for plan in plans if re.search(r"(Filter|Cond): .*engine\.(visible|readable)", plan)]
    assert f"org_id = '{crowd.large.id}'::uuid" in _one(plans, "as nearest")
    assert f"org_id = '{crowd.large.id}'::uuid" in _one(plans, "as first_of_item")


def test_a_small_org_is_compared_exactly(crowd: Crowd) -> None:
    """S5: nothing of it is missed, whatever the large one beside it holds."""
    server, small = crowd.server, crowd.small
    server.rows(
        "insert into almagest.search_profiles (org_id, name, knobs) values (%s, 'user_search', %s)",
        *(small.id, Jsonb({"vector_threshold": 0, "fused_floor": 0, "mmr_lambda": 1})),
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
