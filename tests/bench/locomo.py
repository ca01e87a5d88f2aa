"""LoCoMo through the URLs: every turn a memory, every question a search. ``python tests/bench/locomo.py``.

The data are read from ALMAGEST_BENCH_DATA (default ``../shared/data`` beside the repository), never committed.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.bench.stack import client
from tests.client import BATCH, Client
from tests.quality.metrics import mean, recall_at, reciprocal_rank

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("ALMAGEST_BENCH_DATA", ROOT.parent / "shared" / "data")) / "locomo" / "dev.json"
REPORT = ROOT / "build" / "bench" / "locomo.json"

K = 20
CUTS = (1, 5, 10, 20)
QUESTIONS = 759
ADVERSARIAL = 5  # the category of questions whose answer is not in the conversation
INDEX_SECONDS = 900


@dataclass(frozen=True)
class Question:
    """A question within one conversation, and the ids of the turns that answer it."""

    text: str
    tag: str
    category: int
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What the search gave: turn ids, best first, and the seconds of the whole request."""

    question: Question
    ranking: list[str]
    seconds: float


def main() -> int:
    """Write, search, print a table and leave it as JSON."""
    console = Console()
    if not DATA.is_file():
        console.print(f"LoCoMo is not measured: there is no {DATA}; set ALMAGEST_BENCH_DATA to the folder of the data.")
        return 0
    conversations = json.loads(DATA.read_text())
    questions = [question for conversation in conversations for question in questions_of(conversation)]
    if len(questions) != QUESTIONS:
        raise ValueError(f"{len(questions)} questions instead of {QUESTIONS}: figures could not be compared")
    with client() as caller:
        memories = [memory for conversation in conversations for memory in memories_of(conversation)]
        begun = time.perf_counter()
        write(caller, memories, console)
        written = time.perf_counter() - begun
        answers = [ask(caller, question) for question in track(questions, "Searching", console=console)]
    report = summarise(answers) | {"memories": len(memories), "write_seconds": written}
    console.print(table_of(report))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def memories_of(conversation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every turn as a memory."""
    tag, turns = conversation["sample_id"], conversation["conversation"]
    for name, session in turns.items():
        if not isinstance(session, list):
            continue
        said_at = datetime.strptime(turns[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for position, turn in enumerate(session):
            caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            yield {
                "content": f"{turn['speaker']}: {turn['text']}{caption}",
                "agent_name": turn["speaker"],
                "occurred_at": said_at.isoformat(),
                "origin": "chat",
                "source_ref": turn["dia_id"],
                "conversation": {"id": f"{tag}/{name}", "position": position},
                "tags": [tag],
            }


def questions_of(conversation: dict[str, Any]) -> Iterator[Question]:
    """Questions that have evidence and an answer."""
    tag = conversation["sample_id"]
    turns = {memory["source_ref"] for memory in memories_of(conversation)}
    for asked in conversation["qa"]:
        if asked.get("evidence") and asked["category"] != ADVERSARIAL:
            evidence = evidence_of(asked["evidence"], turns)
            yield Question(asked["question"], tag, asked["category"], evidence)


def evidence_of(written: Sequence[str], turns: set[str]) -> tuple[str, ...]:
    """Turn ids out of the hand-written evidence: ``D:11:26`` is meant as D11:26, and two name no turn at all."""
    found = (f"D{session}:{turn}" for entry in written for session, turn in re.findall(r"D:?(\d+):(\d+)", entry))
    return tuple(dict.fromkeys(identifier for identifier in found if identifier in turns))


def write(caller: Client, memories: Sequence[dict[str, Any]], console: Console) -> None:
    """Write everything in batches, and wait until it is indexed."""
    for start in track(range(0, len(memories), BATCH), "Writing", console=console):
        caller.write(memories[start : start + BATCH])
    with console.status("Indexing"):
        caller.wait_for_index(INDEX_SECONDS)


def ask(caller: Client, question: Question) -> Answer:
    """Search within the question's conversation."""
    begun = time.perf_counter()
    found = caller.search(question.text, K, filters={"tags": [question.tag]})
    seconds = time.perf_counter() - begun
    return Answer(question, [result["source_ref"] for result in found["results"]], seconds)


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Means over the questions, and percentiles of the time of a request in milliseconds."""
    centiles = quantiles([answer.seconds * 1000 for answer in answers], n=100)
    categories = sorted({answer.question.category for answer in answers})
    return {
        "questions": len(answers),
        "turn_recall": {k: mean([turn_recall(answer, k) for answer in answers]) for k in CUTS},
        "session_recall": {k: mean([session_recall(answer, k) for answer in answers]) for k in CUTS},
        "mrr": mean([reciprocal_rank(answer.ranking, answer.question.evidence) for answer in answers]),
        "turn_recall_at_10_by_category": {
            category: mean([turn_recall(answer, 10) for answer in answers if answer.question.category == category])
            for category in categories
        },
        "milliseconds": {"p50": centiles[49], "p95": centiles[94]},
    }


def turn_recall(answer: Answer, k: int) -> float:
    """Share of the evidence turns among the first k."""
    return recall_at(k, answer.ranking, answer.question.evidence)


def session_recall(answer: Answer, k: int) -> float:
    """Share of the evidence's sessions that a turn among the first k belongs to."""
    sessions = [turn.partition(":")[0] for turn in answer.question.evidence]
    return recall_at(k, [turn.partition(":")[0] for turn in answer.ranking], sessions)


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


if __name__ == "__main__":
    sys.exit(main())
