"""`docs/sql-api.md`, from the comments that head the files in `sql/api`: `python -m almagest.database.sql_api`."""

import itertools
from dataclasses import dataclass
from pathlib import Path

from almagest.database.sql_files import sql_directory

FILE = Path("docs/sql-api.md")

INTRODUCTION = """# SQL API

Made from the comments in `sql/api` by `make docs`; edit those.

Every function is `api.<name>(caller jsonb, request jsonb) returns jsonb`, executable by `service_role` alone, and one
call is one transaction. `caller` is the answer of `authenticate`; null is the system itself, which names an org in
`request.org`. A problem is raised with SQLSTATE `PT<status>`, a sentence as its message, and
`{"code": …}` as its detail. Writes carry `idempotency: {key, request_hash}`: the same key and hash give the first
answer again, the same key with another hash is 409 `idempotency_conflict`.
"""


@dataclass(frozen=True)
class Entry:
    """What the comment of one API function says.

    Attributes
    ----------
    name
        Of the function.
    prose
        What it does.
    contract
        Lines on its `request`, `returns` and `errors`, as they are laid out in the file.
    """

    name: str
    prose: str
    contract: tuple[str, ...]


def read_entries(directory: Path) -> list[Entry]:
    """Entries of all API files in a folder of SQL, by name."""
    return [read_entry(path.stem, path.read_text(encoding="utf-8")) for path in sorted(directory.glob("api/*.sql"))]


def read_entry(name: str, text: str) -> Entry:
    """Read the comment at the top of a file: indented lines are the contract, the others are prose."""
    comment = [line[2:] for line in itertools.takewhile(lambda line: line.startswith("--"), text.splitlines())]
    contract = tuple(line.rstrip().removeprefix("   ") for line in comment if line.startswith("  "))
    prose = " ".join(line.strip() for line in comment if not line.startswith("  "))
    return Entry(name, prose, contract)


def render_page(entries: list[Entry]) -> str:
    """The page, as Markdown."""
    return INTRODUCTION + "".join(_section(entry) for entry in entries)


def _section(entry: Entry) -> str:
    return "\n".join(["", f"## {entry.name}", "", entry.prose, "", "```text", *entry.contract, "```", ""])


def main() -> None:
    """Write the page."""
    FILE.write_text(render_page(read_entries(sql_directory())), encoding="utf-8")


if __name__ == "__main__":
    main()
