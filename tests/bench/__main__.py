"""The benchmarks: ``python -m tests.bench [quality|speed|growth|locomo|all]``, or ``make bench``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.bench.places import REPORTS, missing


class Part(StrEnum):
    """What is measured."""

    QUALITY = "quality"
    LOCOMO = "locomo"
    ALL = "all"


def main(
    part: Annotated[Part, typer.Argument(help="What is measured.")] = Part.ALL,
    json: Annotated[Path, typer.Option(help="Folder of the results.")] = REPORTS,
) -> None:
    """Measure, print tables, and leave the figures as JSON."""
    console = Console()
    if sentence := missing():
        console.print(sentence)
        return
    if part in (Part.QUALITY, Part.ALL):
        from tests.bench import quality

        quality.run(console, json)
    if part in (Part.LOCOMO, Part.ALL):
        from tests.bench import locomo

        locomo.run(console, json)


if __name__ == "__main__":
    typer.run(main)
