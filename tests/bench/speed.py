"""How fast a search is, by size of the corpus, beside the bare index scans and the usual recipe on the same rows."""

import hashlib
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import track
from rich.table import Table

from infra.local.postgres import Postgres
from tests.bench import request, vectors
from tests.bench.baselines import Baselines
from tests.bench.bulk import Tenant, filled
from tests.bench.cluster import Connection, cluster
from tests.bench.corpus import SEED, Base, read_base
from tests.bench.door import Knobs, owner_of, search, set_profile
from tests.bench.places import CACHE, SQL, leave
from tests.bench.queries import Query, read_queries

SIZES = (10_000, 100_000)
K = 10
REPEATS = 5  # of each query; the fastest counts, since what else the machine does is not what is measured
PATIENCE = 2.0  # seconds, after which a query is not repeated
CLIENTS, CLIENT_SECONDS = 8, 10.0
# The indexes stay in shared_buffers: a million chunks have 3 GB of them.
BUFFERS = {"shared_buffers": "1GB", "effective_cache_size": "4GB"}
BIG_BUFFERS = {"shared_buffers": "6GB", "effective_cache_size": "10GB"}
BIG = 300_000

# Orgs inside a table of 100,000 chunks or more, each about a few things only: slug -> chunks.
LARGE = 100_000
SMALL_ORGS = {"small": 500, "middle": 20_000}
SMALL_ORG_TOPICS = 20

Times = list[float]  # milliseconds, one a query
Sides = dict[str, Times]


def run(console: Console, reports: Path, scale: int) -> None:
    """Measure every size up to `scale`, print tables, and leave the figures as JSON."""
    report: dict[str, Any] = {"cpus": os.cpu_count(), "seed": SEED, "sizes": {}}
    base = read_base()
    for size in sorted({*(size for size in SIZES if size <= scale), scale}):
        with cluster(CACHE / "cluster", console, buffers(size)) as postgres:
            report["sizes"][size] = _measure(postgres, size, base, console)
        leave(reports, "speed", report)
    console.print(f"Left in {leave(reports, 'speed', report)}.")


def buffers(size: int) -> dict[str, str]:
    """Server settings for a corpus of that size."""
    return BIG_BUFFERS if size > BIG else BUFFERS


def tenants_of(size: int) -> list[Tenant]:
    """The orgs of a corpus: one that has nearly all of it, and in a large one two small ones."""
    if size < LARGE:
        return [Tenant("large", size)]
    return [Tenant("large", size - sum(SMALL_ORGS.values())), *map(small_org, SMALL_ORGS)]


def small_org(slug: str) -> Tenant:
    """One of the small orgs."""
    return Tenant(slug, SMALL_ORGS[slug], stream=list(SMALL_ORGS).index(slug) + 1, topics=SMALL_ORG_TOPICS)


def corpus(postgres: Postgres, name: str, tenants: Sequence[Tenant], base: Base, console: Console) -> str:
    """Have a corpus in a database, and return its name, which changes when rows would be stored in another way."""
    digest = hashlib.sha256()
    for path in [*sorted(SQL.glob("migrations/*.sql")), SQL / "engine" / "tokenise.sql", SQL / "engine" / "chunks.sql"]:
        digest.update(path.read_bytes())
    name = f"{name}_{digest.hexdigest()[:8]}"
    seconds = filled(postgres, name, tenants, base, console)
    rows = sum(tenant.chunks for tenant in tenants)
    rate = rows / seconds["rows"]
    console.print(
        f"{name}: {rows:,} chunks, {sum(seconds.values()):.0f} s to fill, {rate:,.0f} rows a second", highlight=False
    )
    return name


def percentiles(times: Times) -> dict[str, float]:
    """p50 and p95."""
    centiles = quantiles(times, n=100, method="inclusive")
    return {"p50": round(centiles[49], 2), "p95": round(centiles[94], 2)}


def milliseconds(action: Callable[[Query], Any], query: Query) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    action(query)
    return (time.perf_counter() - begun) * 1000


def side_by_side(queries: Iterable[Query], actions: Mapping[str, Callable[[Query], Any]]) -> Sides:
    """Times of each query by everything that is compared, in turns, so that what disturbs one disturbs all."""
    times: Sides = {side: [] for side in actions}
    for query in queries:
        rounds: list[dict[str, float]] = []
        end = time.perf_counter() + PATIENCE
        while not rounds or (len(rounds) < REPEATS and time.perf_counter() < end):
            rounds.append({side: milliseconds(action, query) for side, action in actions.items()})
        for side, fastest in times.items():
            fastest.append(min(taken[side] for taken in rounds))
    return times


class Searcher:
    """`api.search` of one org's owner over one connection, with the query's vector made beforehand."""

    def __init__(self, connection: Connection, slug: str) -> None:
        caller = owner_of(connection, slug)
        assert caller is not None, slug
        self.connection = connection
        self.caller = caller

    def search(self, query: Query, **fields: Any) -> dict[str, Any]:
        """The whole answer; ten results."""
        return search(self.connection, self.caller, query.text, query.vector, k=K, **fields)

    def set_profile(self, name: str, knobs: Knobs) -> None:
        """Give the org a profile of its own."""
        set_profile(self.connection, self.caller["org"], name, knobs)


@contextmanager
def connected(postgres: Postgres, name: str) -> Iterator[Connection]:
    """A connection as a function's: nothing prepared, every statement its own transaction."""
    with psycopg.connect(postgres.url(database=name), autocommit=True, prepare_threshold=None) as connection:
        yield connection


def warm(postgres: Postgres, name: str) -> None:
    """Read the indexes and what search reads into shared_buffers."""
    with psycopg.connect(postgres.url("supabase_admin", name), autocommit=True) as connection:
        connection.execute("create extension if not exists pg_prewarm schema extensions")
        connection.execute(
            "select sum(extensions.pg_prewarm(c.oid)) from pg_class as c where c.relkind in ('r', 'i', 't')"
            " and c.oid in (select i.indexrelid from pg_index as i where i.indrelid = any(%s::text[]::regclass[])"
            " union all select unnest(%s::text[]::regclass[]))",
            (["almagest.lexical", "almagest.embeddings", "almagest.chunks"], ["almagest.lexical"]),
        )


def _measure(postgres: Postgres, size: int, base: Base, console: Console) -> dict[str, Any]:
    name = corpus(postgres, f"corpus_{size}", tenants_of(size), base, console)
    warm(postgres, name)
    with connected(postgres, name) as connection:
        queries = read_queries(base, connection)
        sides = _compare(postgres, name, connection, queries, console)
        stages = _stages(Searcher(connection, "large"), queries)
    report: dict[str, Any] = {"warm": by_kind(queries, sides), "stages": stages}
    postgres.stop()
    postgres.start()
    with connected(postgres, name) as connection:
        searcher = Searcher(connection, "large")
        times = [milliseconds(searcher.search, query) for query in queries]
    report["after a restart"] = by_kind(queries, {"search": times})
    warm(postgres, name)
    report["clients"] = _clients(postgres, name, queries, console)
    console.print(_table(size, report), _stages_table(stages))
    if size >= LARGE:
        report["small orgs"] = _small_orgs(postgres, name, queries, base, console)
    return report


def _compare(
    postgres: Postgres, name: str, connection: Connection, queries: Sequence[Query], console: Console
) -> Sides:
    """Times of the search, of the whole request, and of what they are compared with."""
    with (
        connected(postgres, name) as beside,
        request.served(postgres.url("authenticator", name)) as runtime,
    ):
        searcher = Searcher(connection, "large")
        baselines = Baselines.over(beside, vectors.embedder().model, searcher.caller["org"])
        actions: dict[str, Callable[[Query], Any]] = {
            "search": searcher.search,
            "words": baselines.words,
            "nearest": baselines.nearest,
            "recipe": baselines.recipe,
            "request": lambda query: request.ask(runtime, searcher.caller, query.text, K),
        }
        times = side_by_side(track(queries, "Queries", console=console, transient=True), actions)
    times["bare"] = [words + nearest for words, nearest in zip(times["words"], times["nearest"], strict=True)]
    return times


def by_kind(queries: Sequence[Query], sides: Sides) -> dict[str, Any]:
    """Percentiles of each side, for each class of queries and for all."""
    kinds = list(dict.fromkeys(query.kind for query in queries))
    return {
        kind: {
            side: percentiles([t for query, t in zip(queries, times, strict=True) if kind in (query.kind, "all")])
            for side, times in sides.items()
        }
        for kind in [*kinds, "all"]
    }


def _stages(searcher: Searcher, queries: Sequence[Query]) -> dict[str, dict[str, float]]:
    """By class, the median milliseconds of each stage of the search, as its own trace tells them."""
    taken: dict[str, dict[str, Times]] = {}
    for query in queries:
        for stage, took in searcher.search(query, explain=True)["explain"]["stages_ms"].items():
            taken.setdefault(query.kind, {}).setdefault(stage, []).append(took)
    return {kind: {stage: round(median(times), 2) for stage, times in stages.items()} for kind, stages in taken.items()}


def _clients(postgres: Postgres, name: str, queries: Sequence[Query], console: Console) -> dict[str, Any]:
    """Searches a second by one client and by eight; an error of any ends the run."""

    def client(number: int) -> int:
        order = random.Random(SEED + number).sample(list(queries), len(queries))  # noqa: S311
        done, end = 0, time.perf_counter() + CLIENT_SECONDS
        with connected(postgres, name) as connection:
            searcher = Searcher(connection, "large")
            while time.perf_counter() < end:
                searcher.search(order[done % len(order)])
                done += 1
        return done

    found = {}
    for clients in (1, CLIENTS):
        with console.status(f"{clients} clients"), ThreadPoolExecutor(clients) as pool:
            begun = time.perf_counter()
            done = sum(pool.map(client, range(clients)))
            found[str(clients)] = round(done / (time.perf_counter() - begun), 1)
    return found


def _small_orgs(
    postgres: Postgres, name: str, queries: Sequence[Query], base: Base, console: Console
) -> dict[str, Any]:
    """Times of small orgs inside the large table, beside the same orgs alone in a database."""
    report = {}
    for slug in SMALL_ORGS:
        alone = corpus(postgres, f"alone_{slug}", [small_org(slug)], base, console)
        warm(postgres, alone)
        with connected(postgres, name) as inside, connected(postgres, alone) as outside:
            actions = {"inside": Searcher(inside, slug).search, "alone": Searcher(outside, slug).search}
            times = side_by_side(queries, actions)
        report[slug] = by_kind(queries, times)
    console.print(_small_orgs_table(report))
    return report


def _table(size: int, report: dict[str, Any]) -> Table:
    clients = report["clients"]
    columns = ("search", "bare scans", "recipe", "request", "restarted", "search / bare", "recipe / request")
    table = Table("ms", *columns, title=f"{size:,} chunks")
    for percentile in ("p50", "p95"):
        for kind, sides in report["warm"].items():
            search, bare, recipe, request = (
                sides[side][percentile] for side in ("search", "bare", "recipe", "request")
            )
            restarted = report["after a restart"][kind]["search"][percentile]
            times = (f"{value:.1f}" for value in (search, bare, recipe, request, restarted))
            table.add_row(f"{percentile} {kind}", *times, f"{search / bare:.1f}", f"{recipe / request:.1f}")
        table.add_section()
    one, many = clients["1"], clients[str(CLIENTS)]
    table.caption = f"searches a second: one client {one:.0f}, eight {many:.0f} ({many / one:.2f}x)"
    return table


def _stages_table(stages: dict[str, dict[str, float]]) -> Table:
    names = list(dict.fromkeys(name for each in stages.values() for name in each))
    table = Table("ms, p50", *names, title="Stages of the search")
    for kind, each in stages.items():
        table.add_row(kind, *(f"{each.get(name, 0):.1f}" for name in names))
    return table


def _small_orgs_table(report: dict[str, Any]) -> Table:
    table = Table("ms", title="Small orgs inside the table")
    for chunks in SMALL_ORGS.values():
        for column in (f"{chunks:,} inside", "alone", "ratio"):
            table.add_column(column)
    for percentile in ("p50", "p95"):
        for kind in next(iter(report.values())):
            cells: list[str] = []
            for slug in report:
                inside, alone = (report[slug][kind][side][percentile] for side in ("inside", "alone"))
                cells += [f"{inside:.1f}", f"{alone:.1f}", f"{inside / alone:.1f}"]
            table.add_row(f"{percentile} {kind}", *cells)
        table.add_section()
    return table
