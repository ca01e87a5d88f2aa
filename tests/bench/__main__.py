"""The benchmarks: ``python -m tests.bench [PART]``, or ``make bench`` for all of them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.bench.places import REPORTS, missing


class Part(StrEnum):
    """What is measured."""

    LOCOMO = "locomo"
    QUALITY = "quality"
    SPEED = "speed"
    GROWTH = "growth"
    WRITES = "writes"
    INDEXES = "indexes"
    CAPACITY = "capacity"
    COLDSTART = "coldstart"
    COST = "cost"
    ALL = "all"


def main(
    part: Annotated[Part, typer.Argument(help="What is measured.")] = Part.ALL,
    scale: Annotated[int, typer.Option(min=1000, help="Chunks of the largest corpus.")] = 100_000,
    json: Annotated[Path, typer.Option(help="Folder of the results.")] = REPORTS,
) -> None:
    """Measure, print tables, and leave the figures as JSON."""
    console = Console()
    # Cold starts and costs need none of the collections.
    if part not in (Part.COLDSTART, Part.COST) and (sentence := missing()):
        console.print(sentence)
        return
    if part in (Part.LOCOMO, Part.ALL):
        from tests.bench import locomo

        locomo.run(console, json)
    if part in (Part.QUALITY, Part.ALL):
        from tests.bench import quality

        quality.run(console, json)
    if part in (Part.SPEED, Part.ALL):
        from tests.bench import speed

        speed.run(console, json, scale)
    if part in (Part.GROWTH, Part.ALL):
        from tests.bench import growth

        growth.run(console, json, scale)
    if part in (Part.WRITES, Part.ALL):
        from tests.bench import writes

        writes.run(console, json)
    if part in (Part.INDEXES, Part.ALL):
        from tests.bench import indexes

        indexes.run(console, json, scale)
    if part in (Part.CAPACITY, Part.ALL):
        from tests.bench import capacity

        capacity.run(console, json, scale)
    if part in (Part.COLDSTART, Part.ALL):
        from tests.bench import coldstart

        coldstart.run(console, json)
    if part in (Part.COST, Part.ALL):
        from tests.bench import cost

        cost.run(console, json)


if __name__ == "__main__":
    typer.run(main)
