"""Choosing the thresholds of the relevance classes: ``python -m tests.bench.calibrate [classes|drift|all]``.

*classes* looks at every result of the default profile on LoCoMo and Cranfield, and prints which share of them is truly
relevant in each class as it is, and above each threshold of whatever could decide the class. *drift* asks the same
questions of orgs that grow around what answers them, and prints how far scores and classes move.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tests.bench import drift
from tests.bench.datasets import read_cranfield, read_locomo
from tests.bench.door import Loaded, open_door
from tests.bench.places import REPORTS, leave, missing
from tests.bench.results import CLASSES, SIGNALS, Result, results_of

K = 10
THRESHOLDS = tuple(round(0.1 + 0.05 * step, 2) for step in range(17))
# What does not drift, and so may: of these a sum is fitted.
STEADY = ("matched", "vector")


class Part(StrEnum):
    """What is printed."""

    CLASSES = "classes"
    DRIFT = "drift"
    ALL = "all"


def main(
    part: Annotated[Part, typer.Argument(help="What is printed.")] = Part.ALL,
    scale: Annotated[int, typer.Option(min=10_000, help="Size of the largest org of the drift.")] = 10_000,
    json: Annotated[Path, typer.Option(help="Folder of the results.")] = REPORTS,
) -> None:
    """Print what the thresholds are chosen from, and leave it as JSON."""
    console = Console()
    if sentence := missing():
        console.print(sentence)
        return
    report: dict[str, Any] = {}
    if part in (Part.CLASSES, Part.ALL):
        with open_door([read_locomo(), read_cranfield()], console) as loaded:
            report |= {each.collection.name: _classes(each, console) for each in loaded}
    if part in (Part.DRIFT, Part.ALL):
        report["drift"] = drift.run(console, scale)
    console.print(f"Left in {leave(json, 'calibrate', report)}.")


def _classes(loaded: Loaded, console: Console) -> dict[str, Any]:
    """Tables of one collection."""
    found = [result for results in results_of(loaded, K) for result in results]
    name = loaded.collection.name
    classes = {each: [result.relevant for result in found if result.relevance == each] for each in CLASSES}
    table = Table("class", "results", "truly relevant", title=f"{name}: the classes as they are")
    for each, relevant in classes.items():
        table.add_row(each, str(len(relevant)), f"{np.mean(relevant):.3f}" if relevant else "")
    console.print(table)

    signals = [signal for signal in SIGNALS if all(signal in result.scores for result in found)]
    thresholds = {signal: _above([r.scores[signal] for r in found], [r.relevant for r in found]) for signal in signals}
    console.print(_thresholds_table(name, thresholds))
    fitted = _fit(found) if set(STEADY) <= set(signals) else None
    if fitted:
        told = " + ".join(f"{weight:.2f} {signal}" for signal, weight in zip(STEADY, fitted["weights"], strict=True))
        console.print(f"{name}: what tells relevant from irrelevant best: {told}", highlight=False)
        console.print(_thresholds_table(name, {"the fitted sum": fitted["thresholds"]}))
    return {
        "classes": {
            each: {"results": len(r), "relevant": float(np.mean(r)) if r else None} for each, r in classes.items()
        },
        "thresholds": thresholds,
        "fitted": fitted,
    }


def _above(scores: Sequence[float], relevant: Sequence[bool]) -> dict[str, dict[str, float]]:
    """For each threshold: results at or above it, the share of them that is relevant, and of the relevant the share."""
    values, truly = np.array(scores), np.array(relevant)
    found = {}
    for threshold in THRESHOLDS:
        above = values >= threshold
        if above.any():
            share, kept = truly[above].mean(), truly[above].sum() / truly.sum()
            found[str(threshold)] = {"results": int(above.sum()), "relevant": float(share), "of_relevant": float(kept)}
    return found


def _fit(found: Sequence[Result]) -> dict[str, Any]:
    """Logistic regression of relevance on what does not drift; the weights are scaled to a sum of 1."""
    inputs = np.array([[1.0, *(result.scores[signal] for signal in STEADY)] for result in found])
    relevant = np.array([result.relevant for result in found], float)
    weights = np.zeros(inputs.shape[1])
    for _ in range(25):  # Newton's steps; a handful are enough
        chance = 1 / (1 + np.exp(-inputs @ weights))
        curvature = inputs.T @ (inputs * (chance * (1 - chance))[:, None])
        weights += np.linalg.solve(curvature, inputs.T @ (relevant - chance))
    shares: NDArray[np.float64] = weights[1:] / weights[1:].sum()
    scores = inputs[:, 1:] @ shares
    return {"weights": shares.tolist(), "thresholds": _above(scores.tolist(), relevant.astype(bool).tolist())}


def _thresholds_table(name: str, thresholds: dict[str, dict[str, dict[str, float]]]) -> Table:
    """Share of the results above a threshold that is relevant, and in brackets of the relevant that is above it."""
    table = Table("at least", *thresholds, title=f"{name}: truly relevant (and of all relevant)")
    for threshold in THRESHOLDS:
        cells = []
        for found in thresholds.values():
            each = found.get(str(threshold))
            cells.append(f"{each['relevant']:.2f} ({each['of_relevant']:.2f})" if each else "")
        if any(cells):
            table.add_row(f"{threshold:.2f}", *cells)
    return table


if __name__ == "__main__":
    typer.run(main)
