"""Results of questions with everything that the engine tells of them, and whether they were judged relevant."""

from dataclasses import dataclass
from typing import Any

from tests.bench.door import Loaded

CLASSES = ("high", "standard", "low")
# What could decide a class, where the engine tells it.
SIGNALS = ("hybrid", "calibrated", "matched", "vector", "keyword")


@dataclass(frozen=True)
class Result:
    """One result of one question.

    Attributes
    ----------
    source_ref
        Which memory it is.
    scores
        Every figure that the answer and its trace have of it, by name.
    relevance
        Its class.
    relevant
        Whether it was judged to answer.
    """

    source_ref: str
    scores: dict[str, float]
    relevance: str
    relevant: bool


def results_of(loaded: Loaded, k: int) -> list[list[Result]]:
    """For each question the results of the default profile."""
    return [
        read_results(answer, asked.question.grades)
        for asked, answer in zip(loaded.asked, loaded.answers(k, explain=True), strict=True)
    ]


def read_results(answer: dict[str, Any], grades: dict[str, int]) -> list[Result]:
    """Results of an explained answer."""
    candidates = answer["explain"].get("candidates")
    traced = {each["item"]: each for each in candidates} if isinstance(candidates, list) else {}
    return [
        Result(
            found["source_ref"],
            _calibrated(_figures(found["scores"]) | _figures(traced.get(found["id"], {}))),
            found["relevance"],
            found["source_ref"] in grades,
        )
        for found in answer["results"]
    ]


def _figures(fields: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in fields.items() if isinstance(value, (int, float))}


def _calibrated(scores: dict[str, float]) -> dict[str, float]:
    """The scores and what decides the class of a hybrid search, see engine.calibrated."""
    if "matched" not in scores:
        return scores
    return scores | {"calibrated": 0.5 * scores["matched"] + 0.5 * scores.get("vector", 0.0)}
