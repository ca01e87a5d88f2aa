"""What a search costs as the corpus grows, as table and plot, and what the pruned keyword leg misses, if anything."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from infra.local.postgres import Postgres
from tests.bench import speed, vectors
from tests.bench.baselines import Baselines
from tests.bench.cluster import Connection, cluster
from tests.bench.corpus import SEED, Base, read_base
from tests.bench.door import Knobs
from tests.bench.places import CACHE, leave
from tests.bench.quality import KEYWORD, VECTOR
from tests.bench.queries import Query, read_queries
from tests.quality.metrics import mean, recall_at

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
# Whatever index there is, an expression of the distance is none of its.
_EXACT = """
select e.item_id from almagest.embeddings as e where e.org_id = %(org)s and e.state = 'active'
order by (e.vector operator(extensions.<=>) %(vector)s::extensions.halfvec) + 0 limit 50
"""
SIDES = {"search": "the search", "recipe": "the usual recipe", "bare": "bare index scans"}
# Beyond, the recipe takes seconds a query, and nothing beside it would be measured more than once (see speed.PATIENCE).
RECIPE_UP_TO = 300_000


def run(console: Console, reports: Path, scale: int) -> None:
    """Measure every size up to `scale`, print a table, and leave figures and plot."""
    base = read_base()
    found: dict[int, dict[str, Any]] = {}
    for size in [size for size in SIZES if size <= scale]:
        with cluster(CACHE / "cluster", console, speed.buffers(size)) as postgres:
            found[size] = _measure(postgres, size, base, console)
    console.print(_times_table(found), _recall_table(found), _vector_table(found))
    plot = reports / "growth.png"
    left = leave(reports, "growth", {"seed": SEED, "sizes": found})
    _plot(found, plot)
    console.print(f"Left in {left} and {plot}.")


def _measure(postgres: Postgres, size: int, base: Base, console: Console) -> dict[str, Any]:
    name = speed.corpus(postgres, f"corpus_{size}", speed.tenants_of(size), base, console)
    speed.warm(postgres, name)
    with speed.connected(postgres, name) as connection, speed.connected(postgres, name) as beside:
        queries = read_queries(base, connection)
        searcher = speed.Searcher(connection, "large")
        baselines = Baselines.over(beside, vectors.embedder().model, searcher.caller["org"])
        actions = {"search": searcher.search, "words": baselines.words, "nearest": baselines.nearest}
        if size <= RECIPE_UP_TO:
            actions["recipe"] = baselines.recipe
        times = speed.side_by_side(track(queries, f"{size:,} chunks", console=console, transient=True), actions)
        times["bare"] = [words + nearest for words, nearest in zip(times["words"], times["nearest"], strict=True)]
        return {
            "times": speed.by_kind(queries, times),
            "recall": _recall(searcher, queries),
            "vector_recall": {
                tenant.slug: _vector_recall(speed.Searcher(connection, tenant.slug), beside, queries)
                for tenant in speed.tenants_of(size)
            },
        }


def _recall(searcher: speed.Searcher, queries: Sequence[Query]) -> dict[str, float] | None:
    """By class: the share of the exhaustive keyword leg's first ten that the pruned one has among its own.

    None where the engine does not prune.
    """
    known = searcher.search(queries[0], explain=True)["explain"]["knobs"]
    if "exhaustive" not in known:
        return None
    pruned, exhaustive = (_first_ten(searcher, queries, KEYWORD | {"exhaustive": all_of}) for all_of in (False, True))
    shares: dict[str, list[float]] = {}
    for query, found, wanted in zip(queries, pruned, exhaustive, strict=True):
        if wanted:
            shares.setdefault(query.kind, []).append(recall_at(10, found, wanted))
    return {kind: mean(values) for kind, values in shares.items()}


def _first_ten(searcher: speed.Searcher, queries: Sequence[Query], knobs: Knobs) -> list[list[str]]:
    searcher.set_profile("bench", knobs)
    answers = [searcher.search(query, profile="bench") for query in queries]
    return [[result["id"] for result in answer["results"]] for answer in answers]


def _vector_recall(searcher: speed.Searcher, beside: Connection, queries: Sequence[Query]) -> float:
    """The share of an org's ten nearest chunks by an exact scan that the vector leg's items have among theirs."""
    searcher.set_profile("bench", VECTOR | {"vector_threshold": 0.0})
    shares = []
    for query in queries[::4]:
        nearest = beside.execute(_EXACT.encode(), {"org": searcher.caller["org"], "vector": query.vector}).fetchall()
        answer = searcher.search(query, profile="bench", legs=["vector"])
        found = {result["id"] for result in answer["results"]}
        wanted = list(dict.fromkeys(str(item) for (item,) in nearest))[:10]
        shares.append(sum(item in found for item in wanted) / len(wanted))
    return mean(shares)


def _times_table(found: dict[int, dict[str, Any]]) -> Table:
    columns = [(side, percentile) for side in SIDES for percentile in ("p50", "p95")]
    table = Table("chunks", *(f"{side}\n{percentile}" for side, percentile in columns), title="Growth, ms, all queries")
    for size, each in found.items():
        times = each["times"]["all"]
        table.add_row(f"{size:,}", *(_cell(times, side, percentile) for side, percentile in columns))
    return table


def _cell(times: dict[str, dict[str, float]], side: str, percentile: str) -> str:
    return f"{times[side][percentile]:.1f}" if side in times else ""


def _recall_table(found: dict[int, dict[str, Any]]) -> Table:
    kinds: dict[str, float] = next((each["recall"] for each in found.values() if each["recall"]), {})
    table = Table("chunks", *kinds, title="Recall@10 of the pruned keyword leg")
    for size, each in found.items():
        if each["recall"]:
            table.add_row(f"{size:,}", *(f"{each['recall'][kind]:.3f}" for kind in kinds))
    return table


def _vector_table(found: dict[int, dict[str, Any]]) -> Table:
    orgs = list(max((each["vector_recall"] for each in found.values()), key=len))
    table = Table(
        "chunks", *(f"{slug} org" for slug in orgs), title="Recall@10 of the vector leg, against an exact scan"
    )
    for size, each in found.items():
        shares = each["vector_recall"]
        table.add_row(f"{size:,}", *(f"{shares[slug]:.3f}" if slug in shares else "" for slug in orgs))
    return table


def _plot(found: dict[int, dict[str, Any]], path: Path) -> None:
    """Left, all queries by what is compared; right, the search by class. Both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    sizes = list(found)
    for number, (side, label) in enumerate(SIDES.items()):
        for percentile, style in (("p50", "-"), ("p95", "--")):
            values = [each["times"]["all"][side][percentile] for each in found.values() if side in each["times"]["all"]]
            left.plot(
                sizes[: len(values)], values, style, color=f"C{number}", marker=".", label=f"{label}, {percentile}"
            )
    for kind in [kind for kind in found[sizes[0]]["times"] if kind != "all"]:
        right.plot(sizes, [each["times"][kind]["search"]["p95"] for each in found.values()], marker=".", label=kind)
    for axes, title in ((left, "All queries"), (right, "The search by class of query, p95")):
        axes.set(title=title, xlabel="chunks", xscale="log", yscale="log")
        axes.grid(visible=True, which="both", alpha=0.2)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, frameon=False)
    left.set_ylabel("database time, ms")
    figure.savefig(path)
