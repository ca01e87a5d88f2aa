"""How well the engine ranks: each leg alone, their reciprocal rank fusion, the default profile, the best weights."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.bench.datasets import Question, read_all, session_of
from tests.bench.door import Knobs, Loaded, open_door
from tests.bench.places import leave
from tests.quality.metrics import mean, ndcg_at, recall_at, reciprocal_rank

K = 20
CUTS = (1, 5, 10, 20)
RRF_DEPTH, RRF_CONSTANT = 100, 60
KEYWORD_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

# One leg decides alone: what only the other one found gets nothing and falls below the floor, and nothing is added.
ALONE: Knobs = {
    "fused_floor": 1e-6,
    "metadata_weight": 0.0,
    "author_boost": 0.0,
    "date_boost": 0.0,
    "conversation_boost": 0.0,
    "when_boost": 0.0,
    "question_turn_share": 1.0,
    "strength_low": 1.0,
    "mmr_lambda": 1.0,
}
KEYWORD: Knobs = ALONE | {"keyword_weight": 1.0, "vector_weight": 0.0}
VECTOR: Knobs = ALONE | {"keyword_weight": 0.0, "vector_weight": 1.0}

# The measure that decides which weights are the best, for each collection.
OBJECTIVE = {"locomo": "turn recall@10", "cranfield": "nDCG@10", "judged": "nDCG@10"}

Ranking = list[str]
Measures = dict[str, float]


def run(console: Console, reports: Path) -> None:
    """Measure all collections, print a table for each, and leave it all as JSON."""
    report: dict[str, Any] = {}
    with open_door(read_all(), console) as loaded:
        for each in loaded:
            name = each.collection.name
            variants = measure_variants(each, console)
            report[name] = variants
            console.print(_table(each, variants))
            if name == "judged":
                report["identifiers"] = _identifiers(each, console)
    console.print(f"Left in {leave(reports, 'quality', report)}.")


def measure_variants(loaded: Loaded, console: Console) -> dict[str, Measures]:
    """Measures of every way to rank, by its name."""
    questions = loaded.collection.questions
    keyword, vector = (loaded.rankings(RRF_DEPTH, knobs) for knobs in (KEYWORD, VECTOR))
    fused = [reciprocal_rank_fusion(pair) for pair in zip(keyword, vector, strict=True)]
    variants = {
        "keyword": measures(loaded, keyword),
        "vector": measures(loaded, vector),
        "RRF": measures(loaded, fused),
        "default": measures(loaded, loaded.rankings(K)),
    }
    objective = OBJECTIVE[loaded.collection.name]
    swept = {
        f"best ({weight:.1f} : {1 - weight:.1f})": measures(
            loaded, loaded.rankings(K, {"keyword_weight": weight, "vector_weight": round(1 - weight, 2)})
        )
        for weight in track(KEYWORD_WEIGHTS, f"Weights, {len(questions)} questions", console=console, transient=True)
    }
    best = max(swept, key=lambda name: swept[name][objective])
    return variants | {best: swept[best]}


def measures(loaded: Loaded, rankings: Sequence[Ranking]) -> Measures:
    """What is reported of a collection, by name; each is a mean over its questions, 0..1."""
    pairs = list(zip(loaded.collection.questions, rankings, strict=True))

    def average(measure: Callable[[Question, Ranking], float]) -> float:
        return mean([measure(question, ranking) for question, ranking in pairs])

    if loaded.collection.name == "locomo":
        return {
            **{f"turn recall@{k}": average(lambda q, r, k=k: recall_at(k, r, q.grades)) for k in CUTS},  # type: ignore[misc]
            **{f"session recall@{k}": average(lambda q, r, k=k: session_recall(k, r, q)) for k in CUTS},  # type: ignore[misc]
            "MRR": average(lambda q, r: reciprocal_rank(r, q.grades)),
        }
    found = {
        "nDCG@10": average(lambda q, r: ndcg_at(10, r, q.grades)),
        "recall@10": average(lambda q, r: recall_at(10, r, q.grades)),
        "MRR": average(lambda q, r: reciprocal_rank(r, q.grades)),
    }
    kinds: dict[str, list[float]] = defaultdict(list)
    for question, ranking in pairs:
        kinds[question.kind].append(ndcg_at(10, ranking, question.grades))
    return found | ({kind: mean(values) for kind, values in kinds.items()} if len(kinds) > 1 else {})


def session_recall(k: int, ranking: Ranking, question: Question) -> float:
    """Share of the evidence's sessions that a turn among the first k belongs to."""
    return recall_at(k, [session_of(turn) for turn in ranking], [session_of(turn) for turn in question.grades])


def reciprocal_rank_fusion(rankings: Sequence[Ranking]) -> Ranking:
    """Several rankings as one: the sum of 1 / (60 + rank), the highest first; ties as they first came."""
    scores: dict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, identifier in enumerate(ranking, 1):
            scores[identifier] += 1 / (RRF_CONSTANT + rank)
    return sorted(scores, key=lambda identifier: -scores[identifier])


def _identifiers(loaded: Loaded, console: Console) -> dict[str, Any]:
    """How many identifiers bring an item that answers first, how many the best one, and which do not."""
    pairs = [
        (question, ranking)
        for question, ranking in zip(loaded.collection.questions, loaded.rankings(K), strict=True)
        if question.kind == "identifier"
    ]
    grades = [question.grades.get(next(iter(ranking), ""), 0) for question, ranking in pairs]
    best = [grade == max(question.grades.values()) for grade, (question, _) in zip(grades, pairs, strict=True)]
    misses = [
        {"question": question.text, "answers": question.grades, "ranking": ranking[:3]}
        for (question, ranking), is_best in zip(pairs, best, strict=True)
        if not is_best
    ]
    answered = sum(grade > 0 for grade in grades)
    console.print(f"Identifiers: of {len(pairs)}, {answered} bring an answer first, {sum(best)} the best answer.")
    for miss in misses:
        console.print(f"  {miss['question']}: wanted {miss['answers']}, got {miss['ranking']}", highlight=False)
    return {"asked": len(pairs), "answer_first": answered, "best_first": sum(best), "misses": misses}


def _table(loaded: Loaded, variants: dict[str, Measures]) -> Table:
    collection = loaded.collection
    title = f"{collection.name}: {len(collection.questions)} questions, {len(collection.memories)} memories"
    table = Table("", *variants, title=title, title_justify="left")
    for measure in next(iter(variants.values())):
        table.add_row(measure, *(f"{found[measure]:.3f}" for found in variants.values()))
    return table
