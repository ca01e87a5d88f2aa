"""Whether a score and a class mean the same in a small org and in a large one.

Each question is asked of an org of ten memories, of 200 and of one that all questions share, of 10,000 and more; the
larger ones have all that the smaller ones have, and a corpus beside it. What is followed is the best memory that
answers and the best that does not.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import psycopg
from numpy.random import Generator, default_rng
from rich.console import Console
from rich.progress import track
from rich.table import Table

from infra.local.postgres import Postgres
from tests.bench import speed
from tests.bench.cluster import Connection, cluster, database, storing_hash
from tests.bench.corpus import SEED, read_base
from tests.bench.datasets import Collection, Memory, read_cranfield, read_locomo
from tests.bench.door import Asked, Caller, new_org, owner_of, prepare, search, with_vectors, write
from tests.bench.places import CACHE
from tests.bench.results import CLASSES, SIGNALS, Result, read_results

ASKED = 30  # questions of each collection
OWN_SIZES = (10, 200)
SHARED_SIZES = (10_000, 100_000, 1_000_000)
LONG = 12  # words, and a query counts as long
K = 100


@dataclass(frozen=True)
class Case:
    """A question, and the memories of its own orgs in the order in which they join: what answers it first."""

    kind: str
    asked: Asked
    memories: list[Memory]


def run(console: Console, scale: int) -> dict[str, Any]:
    """Ask everything at every size up to `scale`, print a table, and return the figures."""
    base = read_base()
    collections = [_distinct(read_locomo()), _distinct(read_cranfield())]
    prepared = {collection.name: prepare(collection) for collection in collections}
    everything = [memory for memories in prepared.values() for memory in memories]
    cases = [case for collection in collections for case in _cases(collection, prepared[collection.name])]
    results: dict[int, list[list[Result]]] = {}
    with cluster(CACHE / "cluster", console, speed.buffers(scale)) as postgres:
        url = database(postgres, f"drift_{storing_hash()}")
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            for size in OWN_SIZES:
                asked = track(cases, f"Orgs of {size}", console=console, transient=True)
                results[size] = [_ask(connection, _own_org(connection, case, size), case) for case in asked]
        for size in [size for size in SHARED_SIZES if size <= scale]:
            corpus = speed.corpus(postgres, f"corpus_{size}", speed.tenants_of(size), base, console)
            with console.status("Copying the corpus"):
                name = _copy(postgres, corpus, corpus.replace("corpus", "shared", 1))
            with speed.connected(postgres, name) as connection:
                caller = _shared_org(connection, everything, console)
                results[size] = [_ask(connection, caller, case) for case in cases]
    report = {}
    for kind in ("all", *dict.fromkeys(case.kind for case in cases)):
        places = [place for place, case in enumerate(cases) if kind in (case.kind, "all")]
        some = {size: [asked[place] for place in places] for size, asked in results.items()}
        report[kind] = {"answers": _follow(some, relevant=True), "does not": _follow(some, relevant=False)}
    console.print(_table(report))
    return report


def _copy(postgres: Postgres, corpus: str, name: str) -> str:
    """A copy of a database, made where it is missing, since adding to a corpus would change what others measure."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        if connection.execute("select from pg_database where datname = %s", (name,)).fetchone() is None:
            connection.execute(f"create database {name} template {corpus}".encode())
    database(postgres, name)
    return name


def _distinct(collection: Collection) -> Collection:
    """The collection with source references that are unique in it, since here no question has a filter."""

    def named(within: dict[str, Any], ref: str) -> str:
        return "/".join([collection.name, *within.get("tags", []), ref])

    memories = [{**memory, "source_ref": named(memory, memory["source_ref"])} for memory in collection.memories]
    questions = [
        replace(q, filters={}, grades={named(q.filters, ref): grade for ref, grade in q.grades.items()})
        for q in collection.questions
    ]
    return Collection(collection.name, memories, questions)


def _cases(collection: Collection, prepared: Sequence[Memory]) -> list[Case]:
    """Questions drawn at random, short and long."""
    random = default_rng(SEED)
    asked = with_vectors(collection)
    places = random.choice(len(asked), ASKED, replace=False)
    cases = []
    for place in places:
        length = "long" if len(asked[place].question.text.split()) >= LONG else "short"
        cases.append(Case(f"{collection.name}, {length}", asked[place], _around(asked[place], prepared, random)))
    return cases


def _around(asked: Asked, prepared: Sequence[Memory], random: Generator) -> list[Memory]:
    """As many memories as the largest org of one's own has, those that answer first, never more than half of ten."""
    grades = asked.question.grades
    answering = sorted((m for m in prepared if m["source_ref"] in grades), key=lambda m: -grades[m["source_ref"]])
    order = random.permutation(len(prepared))
    others = [prepared[place] for place in order if prepared[place]["source_ref"] not in grades]
    return [*answering[: OWN_SIZES[0] // 2], *others][: OWN_SIZES[-1]]


def _own_org(connection: Connection, case: Case, size: int) -> Caller:
    digest = hashlib.sha256(case.asked.question.text.encode()).hexdigest()
    slug = f"drift-{digest[:12]}-{size}"
    caller = owner_of(connection, slug)
    if caller is None:
        with connection.transaction():
            caller = new_org(connection, slug)
            write(connection, caller, case.memories[:size])
    return caller


def _shared_org(connection: Connection, memories: Sequence[Memory], console: Console) -> Caller:
    """The owner of the org with a corpus in it, all memories added to it."""
    caller = owner_of(connection, "large")
    assert caller is not None
    [there] = connection.execute(
        "select exists (select from almagest.items where source_ref = %s)", (memories[-1]["source_ref"],)
    ).fetchall()
    if not there[0]:
        with connection.transaction(), console.status("Adding the collections"):
            write(connection, caller, memories)
        connection.execute("vacuum analyze")
    return caller


def _ask(connection: Connection, caller: Caller, case: Case) -> list[Result]:
    question = case.asked.question
    answer = search(connection, caller, question.text, case.asked.vector, k=K, explain=True)
    return read_results(answer, question.grades)


def _follow(results: dict[int, list[list[Result]]], relevant: bool) -> dict[int, dict[str, Any]]:
    """For each size, of the best results that answer, or do not: classes, mean scores, and who keeps a class.

    The last is asked of the same memories in all sizes: those that were the best in the smallest orgs.
    """
    best = {size: [_first(each, relevant) for each in asked] for size, asked in results.items()}
    report = {}
    for size, firsts in best.items():
        there = [first for first in firsts if first is not None]
        again = [
            (first.relevance, now.relevance)
            for first, asked in zip(best[OWN_SIZES[0]], results[size], strict=True)
            for now in asked
            if first is not None and now.source_ref == first.source_ref
        ]
        report[size] = {
            "classes": {each: sum(first.relevance == each for first in there) for each in CLASSES},
            "scores": {
                signal: round(mean(first.scores[signal] for first in there), 3)
                for signal in SIGNALS
                if there and all(signal in first.scores for first in there)
            },
            "found_again": len(again),
            "same_class": round(mean(before == now for before, now in again), 3) if again else None,
        }
    return report


def _first(results: Sequence[Result], relevant: bool) -> Result | None:
    return next((result for result in results if result.relevant == relevant), None)


def _table(report: dict[str, dict[str, dict[int, dict[str, Any]]]]) -> Table:
    """Classes as counts of high, standard and low; the share that keeps its class of the smallest org."""
    table = Table("questions", "best", title="high/standard/low, mean hybrid score, same class of how many")
    for size in next(iter(report.values()))["answers"]:
        table.add_column(f"{size:,}")
    for kind, sides in report.items():
        for side, sizes in sides.items():
            cells = []
            for each in sizes.values():
                counts = "/".join(str(count) for count in each["classes"].values())
                same = "" if each["same_class"] is None else f", {each['same_class']:.2f} of {each['found_again']}"
                cells.append(f"{counts}, {each['scores'].get('hybrid', 0):.2f}{same}")
            table.add_row(kind, side, *cells)
    return table
