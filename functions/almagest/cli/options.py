"""Options that several commands share."""

from typing import Annotated
from uuid import UUID

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]
Org = Annotated[str | None, typer.Option(help="Slug of the org; may be left out where there is only one.")]
Slug = Annotated[str, typer.Argument(help="Short name: lower-case letters, digits, - and _.")]
Name = Annotated[str | None, typer.Option(help="Name for people; default the slug.")]
ItemId = Annotated[UUID, typer.Argument(help="The item's id, as search and remember print it.")]
IdempotencyKey = Annotated[
    str | None, typer.Option(help="A name for this write of your own, so that a repeated command has no second effect.")
]


def group(help_: str) -> typer.Typer:
    """A command that only has commands."""
    return typer.Typer(help=help_, no_args_is_help=True)


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])
