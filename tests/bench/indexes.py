"""Three ways to index words for many orgs: words alone, org and word as two columns, and each word with its org.

Each is built in a transaction that is rolled back, over the same rows, and asked for what the keyword leg asks: the
rows of one org that hold any of a query's words, in an org of 500 chunks, one of 20,000 and the rest.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from tests.bench import speed
from tests.bench.cluster import Connection, cluster
from tests.bench.corpus import read_base
from tests.bench.door import owner_of
from tests.bench.places import CACHE, leave
from tests.bench.queries import Query, read_queries

ORGS = ("small", "middle", "large")
REPEATS = 3


@dataclass(frozen=True)
class Variant:
    """An index of words, and the condition that looks a query's words up in it."""

    name: str
    definition: str
    condition: str
    words: Callable[[str, Sequence[str]], list[str]]


def _alone(org: str, terms: Sequence[str]) -> list[str]:
    return list(terms)


VARIANTS = (
    Variant("words, and a btree of orgs", "using gin (terms)", "l.terms @@ %(words)s::tsquery", _alone),
    Variant(
        "(org, words)", "using gin (org_id, terms)", "l.org_id = %(org)s and l.terms @@ %(words)s::tsquery", _alone
    ),
    Variant(
        "words with their org",
        "using gin (almagest.org_terms(org_id, terms))",
        "almagest.org_terms(l.org_id, l.terms) @@ %(words)s::tsquery",
        lambda org, terms: [f"{org[:8]}:{term}" for term in terms],
    ),
)


def run(console: Console, reports: Path, scale: int) -> None:
    """Build and ask each, print a table, and leave the figures as JSON."""
    base = read_base()
    report: dict[str, Any] = {}
    with cluster(CACHE / "cluster", console, speed.buffers(scale)) as postgres:
        name = speed.corpus(postgres, f"corpus_{scale}", speed.tenants_of(scale), base, console)
        speed.warm(postgres, name)
        with speed.connected(postgres, name) as connection:
            queries = read_queries(base, connection)
        url = postgres.url("supabase_admin", name)
        for variant in VARIANTS:
            with psycopg.connect(url) as connection:
                report[variant.name] = _measure(connection, variant, queries, console)
                connection.rollback()
    console.print(_table(report, scale))
    console.print(f"Left in {leave(reports, 'indexes', {'chunks': scale, 'variants': report})}.")


def _measure(connection: Connection, variant: Variant, queries: Sequence[Query], console: Console) -> dict[str, Any]:
    connection.execute("create extension if not exists btree_gin schema extensions")
    connection.execute("set local search_path = extensions, pg_catalog")
    connection.execute("set local maintenance_work_mem = '1GB'")
    connection.execute("set local max_parallel_workers_per_gather = 0")
    connection.execute("drop index almagest.lexical_terms")
    with console.status(f"Index of {variant.name}"):
        begun = time.perf_counter()
        connection.execute(f"create index tried on almagest.lexical {variant.definition}".encode())
        seconds = time.perf_counter() - begun
    connection.execute("analyze almagest.lexical")
    row = connection.execute("select pg_relation_size('almagest.tried')").fetchone()
    assert row is not None
    found: dict[str, Any] = {"seconds": round(seconds, 1), "megabytes": round(row[0] / 1e6)}
    for slug in ORGS:
        caller = owner_of(connection, slug)
        if caller is not None:
            found[slug] = speed.percentiles([_time(connection, variant, caller["org"], query) for query in queries])
    return found


def _time(connection: Connection, variant: Variant, org: str, query: Query) -> float:
    """Milliseconds to read the rows of an org that hold any of the words, the fastest of some."""
    statement = f"select count(l.length) from almagest.lexical as l where {variant.condition} and l.org_id = %(org)s"
    words = " | ".join("'" + re.sub(r"(['\\])", r"\1\1", word) + "'" for word in variant.words(org, query.terms))
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        connection.execute(statement.encode(), {"words": words, "org": org}).fetchone()
        times.append((time.perf_counter() - begun) * 1000)
    return min(times)


def _table(report: dict[str, Any], scale: int) -> Table:
    table = Table("index", "s to build", "MB", title=f"Any of a query's words, {scale:,} chunks; p50/p95 in ms")
    orgs = [slug for slug in ORGS if slug in next(iter(report.values()))]
    for slug in orgs:
        table.add_column(f"{slug} org")
    for name, found in report.items():
        cells = [f"{found[slug]['p50']:.1f}/{found[slug]['p95']:.1f}" for slug in orgs]
        table.add_row(name, str(found["seconds"]), str(found["megabytes"]), *cells)
    return table
