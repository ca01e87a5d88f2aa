"""Ranking of the whole system on the judged set; the floors keep it from rotting unseen."""

from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.client import BATCH, Client
from tests.quality.judged import Question, read_notes, read_questions
from tests.quality.metrics import mean, ndcg_at, reciprocal_rank
from tests.stack import Stack

K = 10
# The set's own tag, which every question filters by, so that other tests' items do not compete.
TAG = "larkspur"

# A little below what was measured when each was last raised; raise them when ranking gets better.
FLOOR = 0.68
FLOORS = {"paraphrase": 0.27, "keyword": 0.92, "identifier": 0.93, "who_when": 0.84, "multi": 0.59}


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url, stack.key) as client:
        memories = [as_memory(note) for note in read_notes()]
        for start in range(0, len(memories), BATCH):
            client.write(memories[start : start + BATCH])
        client.wait_for_index()
        yield client


@pytest.fixture(scope="module")
def rankings(client: Client) -> list[tuple[Question, list[str]]]:
    """Every question with the ids of its first ten notes."""
    return [(question, ask(client, question.question)) for question in read_questions()]


def as_memory(note: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in note.items() if name != "id"}
    return fields | {"source_ref": note["id"], "tags": [*note["tags"], TAG]}


def ask(client: Client, question: str) -> list[str]:
    answer = client.search(question, K, filters={"tags": [TAG]})
    assert answer["mode"] == "hybrid", answer["degraded_reason"]
    return [result["source_ref"] for result in answer["results"]]


def test_ndcg(rankings: list[tuple[Question, list[str]]], capsys: pytest.CaptureFixture[str]) -> None:
    scores: dict[str, list[float]] = {kind: [] for kind in FLOORS}
    first: dict[str, list[float]] = {kind: [] for kind in FLOORS}
    for question, ranking in rankings:
        scores[question.kind].append(ndcg_at(K, ranking, question.answers))
        first[question.kind].append(reciprocal_rank(ranking, question.answers))
    overall = mean([score for kind in scores.values() for score in kind])

    table = Table("kind", "questions", f"nDCG@{K}", "MRR", "floor", title="Ranking on the judged set")
    for kind, floor in FLOORS.items():
        values = (f"{mean(scores[kind]):.3f}", f"{mean(first[kind]):.3f}", f"{floor:.2f}")
        table.add_row(kind, str(len(scores[kind])), *values)
    table.add_section()
    table.add_row("all", str(len(rankings)), f"{overall:.3f}", "", f"{FLOOR:.2f}")
    with capsys.disabled():
        Console().print("", table)

    assert overall >= FLOOR
    assert {kind: mean(values) for kind, values in scores.items() if mean(values) < FLOORS[kind]} == {}
