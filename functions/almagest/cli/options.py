"""Options that several commands share, and how ids and numbers are read."""

import re
from collections.abc import Callable
from typing import Annotated
from uuid import UUID

import typer


def uuid(text: str) -> UUID:
    """An id as it is typed."""
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter("must be a UUID, such as 123e4567-e89b-12d3-a456-426614174000") from None


def key_name(text: str) -> "UUID | str":
    """A key's id or prefix as it is typed."""
    if re.fullmatch("alm_[A-Za-z0-9_-]{8}", text):
        return text
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter("must be the key's id or prefix, as `almagest key list` prints them") from None


def whole(text: str) -> int:
    """A whole number as it is typed."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter("must be a whole number") from None


def whole_within(least: int, most: int) -> Callable[[str], int]:
    """Read a whole number within bounds, where no request checks them."""

    def read(text: str) -> int:
        if not least <= (number := whole(text)) <= most:
            raise typer.BadParameter(f"must be from {least:,} to {most:,}")
        return number

    return read


def number(text: str) -> float:
    """A number as it is typed."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter("must be a number") from None


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]
Org = Annotated[str | None, typer.Option(help="Slug of the org; may be left out where there is only one.")]
Slug = Annotated[str, typer.Argument(help="Short name: lower-case letters, digits, - and _.")]
Name = Annotated[str | None, typer.Option(help="Name for people; default the slug.")]
ItemId = Annotated[
    UUID, typer.Argument(parser=uuid, metavar="ITEM", help="The item's id, as search and remember print it.")
]
IdempotencyKey = Annotated[
    str | None, typer.Option(help="A name for this write of your own, so that a repeated command has no second effect.")
]


def group(help_: str) -> typer.Typer:
    """A command that only has commands."""
    return typer.Typer(help=help_, no_args_is_help=True)


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])
