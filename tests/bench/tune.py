"""Choosing the ranking constants on the dev data: ``python -m tests.bench.tune``.

A coordinate search: one knob after the other takes each of its values, and keeps the one that gives the best objective,
until a round changes nothing. Every trial is appended to a file that belongs to the engine's code and to the data, so a
run that was stopped goes on where it was.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tests.bench import quality
from tests.bench.datasets import read_all
from tests.bench.door import Knobs, Loaded, open_door
from tests.bench.places import CACHE, SQL, missing

# Knobs in the order in which they are tried; one that the engine does not have is passed over.
SPACE: dict[str, Sequence[Any]] = {
    "keyword_weight": (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9),
    "keyword_scale": (5, 7, 10, 14, 20, 30),
    "message_keyword_scale": (10, 15, 20, 30, 45),
    "length_normalisation": (0.3, 0.5, 0.65, 0.75, 0.85),
    "message_length_normalisation": (0.0, 0.1, 0.2, 0.3, 0.5, 0.75),
    "neighbour_previous": (0.0, 0.4, 0.6, 0.8, 1.0),
    "neighbour_next": (0.0, 0.3, 0.5, 0.65, 0.8),
    "neighbour_two_away": (0.0, 0.2, 0.35, 0.5, 0.65),
    "author_boost": (0.0, 0.04, 0.08, 0.12, 0.16),
    "date_boost": (0.0, 0.08, 0.15, 0.22, 0.3),
    "conversation_boost": (0.0, 0.08, 0.15, 0.22, 0.3),
    "when_boost": (0.0, 0.03, 0.06, 0.09, 0.12),
    "question_turn_share": (0.8, 0.85, 0.9, 0.95, 1.0),
    "vector_threshold": (0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4),
    "keyword_only_cap": (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0),
    "fused_floor": (0.0, 0.05, 0.08, 0.1, 0.12, 0.15),
    "identifier_boost": (0.0, 0.1, 0.2, 0.3, 0.5),
    "candidates": (20, 30, 50),
    "metadata_weight": (0.0, 0.05, 0.1, 0.2),
    "mmr_lambda": (0.9, 0.95, 0.98, 1.0),
    "strength_low": (0.5, 0.6, 0.8, 1.0),
}
# What is shown of a trial: column -> collection and measure.
COLUMNS = {
    "LoCoMo r@1": ("locomo", "turn recall@1"),
    "LoCoMo r@10": ("locomo", "turn recall@10"),
    "Cranfield nDCG@10": ("cranfield", "nDCG@10"),
    "judged nDCG@10": ("judged", "nDCG@10"),
}
SHOWN = 15
# A smaller gain is noise: one question of LoCoMo more or less.
LEAST_GAIN = 0.0003


@dataclass(frozen=True)
class Trial:
    """Knobs laid over the default profile, and what they gave by column."""

    knobs: Knobs
    figures: dict[str, float]

    def objective(self, weights: dict[str, float]) -> float:
        """Weighted mean of the columns."""
        return sum(self.figures[name] * weight for name, weight in weights.items()) / sum(weights.values())


@dataclass
class Trials:
    """Everything that was tried with this engine on these data, in memory and in a file."""

    loaded: Sequence[Loaded]
    path: Path
    done: dict[str, Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            trial = Trial(**json.loads(line))
            self.done[_key(trial.knobs)] = trial

    def of(self, knobs: Knobs) -> Trial:
        """The trial of these knobs, made when it has not been yet."""
        if _key(knobs) not in self.done:
            measured = {
                each.collection.name: quality.measures(each, each.rankings(quality.K, knobs)) for each in self.loaded
            }
            trial = Trial(knobs, {name: measured[of][measure] for name, (of, measure) in COLUMNS.items()})
            with self.path.open("a") as file:
                file.write(json.dumps({"knobs": trial.knobs, "figures": trial.figures}) + "\n")
            self.done[_key(knobs)] = trial
        return self.done[_key(knobs)]


def search(
    trials: Trials,
    start: Knobs,
    space: dict[str, Sequence[Any]],
    weights: dict[str, float],
    rounds: int,
    console: Console,
) -> Trial:
    """Coordinate search from `start`; returns the best trial, and says what it changes on the way."""
    best = trials.of(start)
    console.print(_line("start", best, weights), highlight=False)
    for _ in range(rounds):
        before = best
        for name, values in space.items():
            with console.status(f"{name} …"):
                tried = [trials.of(_with(best.knobs, name, value)) for value in values]
            winner = max(tried, key=lambda trial: trial.objective(weights))
            if winner.objective(weights) > best.objective(weights) + LEAST_GAIN:
                best = winner
                console.print(_line(f"{name} = {best.knobs[name]}", best, weights), highlight=False)
        if best is before:
            break
    return best


def _with(knobs: Knobs, name: str, value: Any) -> Knobs:
    """The knobs with one of them changed; the two legs' weights stay a sum of 1."""
    changed = {**knobs, name: value}
    if name == "keyword_weight":
        changed["vector_weight"] = round(1 - value, 4)
    return changed


def table_of(trials: Iterable[Trial], weights: dict[str, float]) -> Table:
    """The best trials, best first."""
    ranked = sorted(trials, key=lambda trial: -trial.objective(weights))
    stated = " + ".join(f"{weight:g} x {name}" for name, weight in weights.items() if weight)
    table = Table("objective", *(name.replace(" ", "\n") for name in COLUMNS), title=f"Mean of {stated}")
    table.add_column("knobs", overflow="fold")
    for trial in ranked[:SHOWN]:
        figures = (f"{trial.figures[name]:.3f}" for name in COLUMNS)
        table.add_row(f"{trial.objective(weights):.4f}", *figures, _shown(trial.knobs))
    return table


def main(
    start: Annotated[list[str] | None, typer.Option("--set", help="Where to begin: name=JSON.")] = None,
    vary: Annotated[list[str] | None, typer.Option(help="What to try instead of all: name=[JSON, …].")] = None,
    weights: Annotated[str, typer.Option(help="Of the columns, in their order.")] = "1,1,1,1",
    rounds: Annotated[int, typer.Option(help="At most; 0 only tries the start.")] = 3,
) -> None:
    """Search for the best knobs, and print the best trials."""
    console = Console()
    if sentence := missing():
        console.print(sentence)
        return
    weighted = dict(zip(COLUMNS, map(float, weights.split(",")), strict=True))
    collections = read_all()
    with open_door(collections, console) as loaded:
        trials = Trials(loaded, CACHE / "tune" / f"{_engine_hash()}.jsonl")
        known = loaded[0].search(loaded[0].asked[0], 1, explain=True)["explain"]["knobs"]
        space = _parsed(vary) if vary else {name: values for name, values in SPACE.items() if name in known}
        best = search(trials, _parsed(start or []), space, weighted, rounds, console)
    console.print(table_of(trials.done.values(), weighted))
    console.print(f"Best: {json.dumps(best.knobs)}", highlight=False)


def _parsed(pairs: Iterable[str]) -> dict[str, Any]:
    return {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in pairs)}


def _line(what: str, trial: Trial, weights: dict[str, float]) -> str:
    figures = ", ".join(f"{name} {trial.figures[name]:.3f}" for name in COLUMNS)
    return f"{what}: {trial.objective(weights):.4f} ({figures})"


def _shown(knobs: Knobs) -> str:
    return ", ".join(f"{name} {value}" for name, value in knobs.items()) or "as they are"


def _key(knobs: Knobs) -> str:
    return json.dumps(knobs, sort_keys=True)


def _engine_hash() -> str:
    digest = hashlib.sha256()
    for path in [*sorted(SQL.glob("**/*.sql")), *sorted((Path(__file__).parents[1] / "quality").glob("*.json"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    typer.run(main)
