"""LoCoMo through the URLs: every turn a memory, every question a search, and the time of the whole request."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.bench.datasets import Memory, Question, read_locomo
from tests.bench.places import leave
from tests.bench.quality import CUTS, K, session_recall
from tests.bench.stack import client
from tests.client import BATCH, Client
from tests.quality.metrics import mean, recall_at, reciprocal_rank

INDEX_SECONDS = 900


@dataclass(frozen=True)
class Answer:
    """What the search gave: turn ids, best first, and the seconds of the whole request."""

    question: Question
    ranking: list[str]
    seconds: float


def run(console: Console, reports: Path) -> None:
    """Write, search, print a table and leave it as JSON."""
    collection = read_locomo()
    with client() as caller:
        begun = time.perf_counter()
        write(caller, collection.memories, console)
        written = time.perf_counter() - begun
        answers = [ask(caller, question) for question in track(collection.questions, "Searching", console=console)]
    report = summarise(answers) | {"memories": len(collection.memories), "write_seconds": written}
    console.print(table_of(report))
    leave(reports, "locomo", report)


def write(caller: Client, memories: Sequence[Memory], console: Console) -> None:
    """Write everything in batches, and wait until it is indexed."""
    for start in track(range(0, len(memories), BATCH), "Writing", console=console):
        caller.write(memories[start : start + BATCH])
    with console.status("Indexing"):
        caller.wait_for_index(INDEX_SECONDS)


def ask(caller: Client, question: Question) -> Answer:
    """Search within the question's conversation."""
    begun = time.perf_counter()
    found = caller.search(question.text, K, filters=question.filters)
    seconds = time.perf_counter() - begun
    return Answer(question, [result["source_ref"] for result in found["results"]], seconds)


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Means over the questions, and percentiles of the time of a request in milliseconds."""
    centiles = quantiles([answer.seconds * 1000 for answer in answers], n=100)
    categories = sorted({answer.question.kind for answer in answers})
    return {
        "questions": len(answers),
        "turn_recall": {k: mean([turn_recall(answer, k) for answer in answers]) for k in CUTS},
        "session_recall": {
            k: mean([session_recall(k, answer.ranking, answer.question) for answer in answers]) for k in CUTS
        },
        "mrr": mean([reciprocal_rank(answer.ranking, answer.question.grades) for answer in answers]),
        "turn_recall_at_10_by_category": {
            category: mean([turn_recall(answer, 10) for answer in answers if answer.question.kind == category])
            for category in categories
        },
        "milliseconds": {"p50": centiles[49], "p95": centiles[94]},
    }


def turn_recall(answer: Answer, k: int) -> float:
    """Share of the evidence turns among the first k."""
    return recall_at(k, answer.ranking, answer.question.grades)


def table_of(report: dict[str, Any]) -> Table:
    """The report for people."""
    title = f"LoCoMo dev: {report['questions']} questions, {report['memories']} memories"
    times = report["milliseconds"]
    table = Table("measure", *(f"@{k}" for k in CUTS), title=title)
    table.add_row("turn recall", *(f"{report['turn_recall'][k]:.3f}" for k in CUTS))
    table.add_row("session recall", *(f"{report['session_recall'][k]:.3f}" for k in CUTS))
    table.caption = (
        f"MRR {report['mrr']:.3f} · request p50 {times['p50']:.1f} ms, p95 {times['p95']:.1f} ms · "
        f"written and indexed in {report['write_seconds']:.1f} s"
    )
    return table
