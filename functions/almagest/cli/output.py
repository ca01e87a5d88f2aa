"""What a command prints: tables for people, plain JSON for programs, messages on standard error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 200
UUID_WIDTH = 36
# Columns of ids that people copy.
IDS = {"id", "user_id"}

Answer = Mapping[str, Any]


def as_data(answer: "BaseModel | Answer") -> dict[str, Any]:
    """JSON values of an answer."""
    return dict(answer) if isinstance(answer, Mapping) else answer.model_dump(mode="json")


def print_json(answer: "BaseModel | Answer") -> None:
    """One JSON document, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(as_data(answer), ensure_ascii=False, indent=2) + "\n")


def print_text(text: str) -> None:
    """Text as it is, without markup or wrapping."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_rows(rows: Iterable[Answer], columns: Sequence[str], *, empty: str) -> None:
    """Print a table, one row an entry; `empty` goes to standard error when there is none.

    A column in which no entry has a value is left out.
    """
    entries = list(rows)
    if not entries:
        print_message(empty)
        return
    filled = [column for column in columns if any(entry.get(column) is not None for entry in entries)]
    table = _table(*filled)
    for entry in entries:
        table.add_row(*(_cell(entry.get(column)) for column in filled))
    print_table(table)


def print_record(answer: "BaseModel | Answer") -> None:
    """One entry, a line a field."""
    table = _table("field", "value", header=False)
    for name, value in as_data(answer).items():
        table.add_row(name, _cell(value))
    print_table(table)


def print_table(table: "Table") -> None:
    """Print a rich table on standard output: as wide as the terminal, or as the table when there is none."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    console.print(table)


def print_message(message: str) -> None:
    """One line for the person at the terminal, on standard error."""
    sys.stderr.write(message + "\n")


def print_error(code: str, detail: str) -> None:
    """One red sentence with its stable code, on standard error."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(f"Error ({code}): {detail}", style="red"))


def _table(*columns: str, header: bool = True) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if header else None, show_header=header)
    for column in columns:
        # Ids, keys and the like are there to be copied: better a line of their own than a cut, and an id is not broken.
        table.add_column(column, overflow="fold", min_width=UUID_WIDTH if column in IDS else None)
    return table


def _cell(value: Any) -> "str":
    from rich.markup import escape

    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, (dict, list)):
        return escape(json.dumps(value, ensure_ascii=False))
    return escape(str(value))
