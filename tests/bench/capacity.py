"""How many bytes a chunk takes, by table and index: what a database has to have room for."""

from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from tests.bench import speed
from tests.bench.cluster import Connection, cluster
from tests.bench.corpus import SEED, read_base
from tests.bench.places import CACHE, leave

# Each table with the rows that it has for a chunk here; each of its indexes by itself, and the two kinds of the heap.
_SIZES = """
select
    c.relname, 'table',
    pg_relation_size(c.oid, 'main') + pg_relation_size(c.oid, 'fsm') + pg_relation_size(c.oid, 'vm'),
    greatest(c.reltuples, 0)::bigint
from pg_class as c
where c.relnamespace = 'almagest'::regnamespace and c.relkind = 'r'
union all
select c.relname || ' (long values)', 'table', pg_total_relation_size(c.reltoastrelid), null
from pg_class as c
where c.relnamespace = 'almagest'::regnamespace and c.relkind = 'r' and c.reltoastrelid <> 0
union all
select x.relname, 'index', pg_relation_size(x.oid), null
from pg_index as i
join pg_class as x on x.oid = i.indexrelid
join pg_class as c on c.oid = i.indrelid
where c.relnamespace = 'almagest'::regnamespace and c.relkind = 'r'
"""
TRACES = 2_000


def run(console: Console, reports: Path, scale: int) -> None:
    """Measure a corpus and the traces of searches in it, print a table, and leave the figures as JSON."""
    with cluster(CACHE / "cluster", console, speed.buffers(scale)) as postgres:
        name = speed.corpus(postgres, f"corpus_{scale}", speed.tenants_of(scale), read_base(), console)
        with psycopg.connect(postgres.url(database=name), autocommit=True) as connection:
            report = _measure(connection)
            report["traces"] = _measure_traces(connection)
    report |= {"seed": SEED, "asked_for": scale}
    console.print(_table(report))
    console.print(f"Left in {leave(reports, 'capacity', report)}.")


def _measure(connection: Connection) -> dict[str, Any]:
    [(chunks, items, characters)] = connection.execute(
        "select count(*), count(distinct item_id), avg(length(text))::float8 from almagest.chunks"
    ).fetchall()
    parts = {
        relation: {"kind": kind, "bytes": size, "rows": rows, "bytes_a_chunk": round(size / chunks, 1)}
        for relation, kind, size, rows in connection.execute(_SIZES).fetchall()
        if size >= chunks  # less than a byte a chunk is no matter
    }
    return {
        "chunks": chunks,
        "items": items,
        "characters_a_chunk": round(characters),
        "parts": parts,
        "bytes": sum(part["bytes"] for part in parts.values()),
    }


def _measure_traces(connection: Connection) -> dict[str, float]:
    """Bytes that a search of k = 10 leaves, with its indexes; as if they had been done, and then taken away again."""
    size = (
        "select sum(pg_total_relation_size(c))::bigint"
        " from unnest(array['almagest.retrievals_rest', 'almagest.activations_rest']::regclass[]) as c"
    )
    connection.execute("truncate almagest.retrievals, almagest.activations")
    searcher = speed.Searcher(connection, "large")
    queries = speed.read_queries(read_base(), connection)
    before = connection.execute(size.encode()).fetchone()
    for number in range(TRACES):
        searcher.search(queries[number % len(queries)])
    after = connection.execute(size.encode()).fetchone()
    connection.execute("truncate almagest.retrievals, almagest.activations")
    assert before is not None
    assert after is not None
    return {"searches": TRACES, "bytes_a_search": round((after[0] - before[0]) / TRACES)}


def _table(report: dict[str, Any]) -> Table:
    title = f"{report['chunks']:,} chunks of {report['characters_a_chunk']} characters, {report['items']:,} items"
    table = Table("relation", "kind", "MB", "bytes a chunk", title=title)
    for name, part in sorted(report["parts"].items(), key=lambda each: -each[1]["bytes"]):
        table.add_row(name, part["kind"], f"{part['bytes'] / 1e6:.1f}", f"{part['bytes_a_chunk']:.0f}")
    table.add_section()
    table.add_row("all", "", f"{report['bytes'] / 1e6:.0f}", f"{report['bytes'] / report['chunks']:.0f}")
    table.caption = f"{report['traces']['bytes_a_search']:,} bytes a search for its trace"
    return table
