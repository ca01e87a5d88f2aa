"""R16: thousands of orgs in one database share its tables and indexes, and each is searched as if it were alone."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from psycopg.types.json import Jsonb

from infra.local.postgres import Postgres
from tests.database.bulk import Clusters, Rows, Vectors, as_literal, fill, nearest, words
from tests.database.concurrency import at_once
from tests.database.support import MODEL, Caller, Org, Server, ids, search, serve, write_one
from tests.support import Database, clone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TENANTS, ROWS_EACH = 5000, 8
RELATIONS = (
    "select c.relname, c.relkind from pg_class as c"
    " where c.relnamespace = 'almagest'::regnamespace and c.relkind in ('r', 'p', 'i', 'I') order by 1"
)
# What one search holds of the lock table, which all connections share; each table and index that it touches is one.
LOCKS = "select count(*), count(*) filter (where not fastpath) from pg_locks where pid = pg_backend_pid()"


@dataclass
class Republic:
    """Many orgs, each with its rows, and what there was before there were many."""

    server: Server
    orgs: list[Org]
    texts: list[list[str]]
    vectors: Vectors
    relations_of_one: list[Any]
    locks_of_one: tuple[int, int]

    def rows_of(self, place: int) -> Vectors:
        return self.vectors[place * ROWS_EACH : (place + 1) * ROWS_EACH]


def locks(server: Server, caller: Caller, vector: Vectors) -> tuple[int, int]:
    """Locks that a search holds at its end: all, and those in the shared lock table."""
    request = {"query": "everywhere", "embedding": as_literal(vector), "model": MODEL, "k": 10}
    with server.database.connect("supabase_admin", autocommit=False) as connection:
        connection.execute("select api.search(%s, %s)", [Jsonb(caller), Jsonb(request)])
        row = connection.execute(LOCKS).fetchone()
        connection.rollback()
    assert row is not None
    return int(row[0]), int(row[1])


def _made_at_once(server: Server, count: int) -> list[Org]:
    """Orgs with an owner each, without a call for each."""
    made = server.rows(
        "with orgs as (insert into almagest.orgs (slug, name)"
        "  select 'tenant-' || n, 'Tenant' from generate_series(1, %s) as n returning id, slug)"
        ", owners as (insert into almagest.members (org_id, user_id, role, email)"
        "  select id, gen_random_uuid(), 'owner', 'owner@' || slug from orgs returning org_id, user_id)"
        " select o.id::text, o.slug, w.user_id::text from orgs as o join owners as w on w.org_id = o.id order by 2",
        count,
    )
    orgs = []
    for org_id, slug, user in made:
        org = object.__new__(Org)
        org.server, org.slug, org.id = server, slug, org_id
        org.owner = {"org": org_id, "user": user, "role": "owner"}
        orgs.append(org)
    return orgs


class Everyone(Rows):
    """Rows of all orgs in turn."""

    def __init__(self, orgs: list[Org], texts: list[list[str]], vectors: Vectors) -> None:
        super().__init__(orgs[0], [text for each in texts for text in each], vectors)
        self.orgs = orgs

    def org_of(self, place: int) -> Org:
        return self.orgs[place // ROWS_EACH]


@pytest.fixture(scope="module")
def republic(cluster: Postgres, template_database: Database) -> Iterator[Republic]:
    rng = np.random.default_rng(5)
    space = Clusters(rng, 100)
    vocabulary = words(300)
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        first = Org(server, "first")
        for number in range(ROWS_EACH):
            write_one(server, first.owner, f"everywhere {number}x", [float(v) for v in space.draw(1)[0]])
        relations, held = server.rows(RELATIONS), locks(server, first.owner, space.draw(1)[0])
        orgs = _made_at_once(server, TENANTS)
        texts = [
            [f"everywhere {' '.join(rng.choice(vocabulary, 6))} n{number}x {org.slug}" for number in range(ROWS_EACH)]
            for org in orgs
        ]
        vectors = space.draw(TENANTS * ROWS_EACH)
        fill(server, Everyone(orgs, texts, vectors))
        server.rows("vacuum analyze")
        yield Republic(server, orgs, texts, vectors, relations, held)


def test_there_is_no_table_index_or_partition_per_tenant(republic: Republic) -> None:
    assert republic.server.rows(RELATIONS) == republic.relations_of_one
    assert republic.server.value("select count(*) from almagest.orgs") == TENANTS + 1


def test_indexes_take_what_their_rows_need(republic: Republic) -> None:
    """About as much a row as in one org of the size, and not a page for each tenant in each index."""
    rows = TENANTS * ROWS_EACH
    sizes = dict(
        republic.server.rows(
            "select indexrelname, pg_relation_size(indexrelid) from pg_stat_user_indexes"
            " where schemaname = 'almagest' and relname in ('lexical', 'embeddings', 'chunks', 'items')"
        )
    )
    bounds = {name: 3000 if "vector" in name else 400 for name in sizes}
    assert {name: size // rows for name, size in sizes.items() if size / rows > bounds[name]} == {}


def test_any_tenant_finds_its_own_and_nothing_else(republic: Republic) -> None:
    rng = np.random.default_rng(6)
    for place in [0, TENANTS - 1, *map(int, rng.integers(TENANTS, size=60))]:
        org, texts, vectors = republic.orgs[place], republic.texts[place], republic.rows_of(place)
        by_words = search(republic.server, org.owner, "everywhere", k=100)
        assert {result["snippet"] for result in by_words["results"]} == set(texts)
        target = int(rng.integers(ROWS_EACH))
        by_meaning = search(republic.server, org.owner, None, list(vectors[target]), k=100)
        snippets = [result["snippet"] for result in by_meaning["results"]]
        assert snippets[0] == texts[target]
        assert set(snippets) <= set(texts)
        expected = [texts[n] for n in nearest(vectors, vectors[target], 10) if vectors[n] @ vectors[target] > 0.25]
        assert set(expected) <= set(snippets)
        both = search(republic.server, org.owner, f"n{target}x", list(vectors[target]))
        assert both["mode"] == "hybrid"
        assert both["results"][0]["snippet"] == texts[target]


def test_any_tenant_is_answered_quickly(republic: Republic) -> None:
    """A wide bound: it takes some milliseconds."""
    times = []
    for place in range(0, TENANTS, 50):
        vector = list(republic.rows_of(place)[0])
        start = time.perf_counter()
        answer = search(republic.server, republic.orgs[place].owner, "everywhere n3x", vector)
        times.append(time.perf_counter() - start)
        assert answer["results"]
    assert statistics.median(times) < 0.1
    assert sorted(times)[int(len(times) * 0.95)] < 0.3


def test_a_search_locks_as_little_as_with_one_tenant(republic: Republic) -> None:
    """The lock table has 64 places a connection by default."""
    for place in (0, TENANTS // 2, TENANTS - 1):
        held, shared = locks(republic.server, republic.orgs[place].owner, republic.rows_of(place)[0])
        assert held <= republic.locks_of_one[0] + 2
        assert shared <= 64


def test_many_tenants_at_once_exhaust_nothing(republic: Republic) -> None:
    def work(start: int) -> Any:
        def run(server: Server) -> int:
            done = 0
            with server.api.transaction():  # so that what is locked stays locked
                for place in range(start, TENANTS, 80):
                    vector = list(republic.rows_of(place)[1])
                    found = search(server, republic.orgs[place].owner, "everywhere", vector)
                    assert len(ids(found)) == ROWS_EACH
                    done += 1
            return done

        return run

    done = at_once(republic.server, *(work(start) for start in range(8)))
    assert not [result for result in done if isinstance(result, Exception)], done
