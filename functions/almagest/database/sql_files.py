"""The folder of SQL: what is in it, in which order it is applied, and how a file falls into statements.

It looks like this::

    migrations/NNNN_name.sql   schema and data, forward only; each runs once, in a transaction with its ledger row
    engine/*.sql               functions and views, `create or replace`; all run again when any of them changed
    dashboard/*.sql
    api/*.sql
    privileges.sql

`@extschema:vector@` in a file stands for the quoted schema of the extension `vector`, as in PostgreSQL's own
extension scripts.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from psycopg import sql

PLACEHOLDER = "@extschema:vector@"
PRIVILEGES = "privileges.sql"

_CODE_FOLDERS = ("engine", "dashboard", "api")
_MIGRATION_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_TOKEN = re.compile(
    r"""
      --[^\n]*                                  # comment
    | /\*.*?\*/
    | [eE]'(?:[^'\\]|\\.|'')*'                  # strings, with and without escapes
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"                            # quoted name
    | (?P<quote>\$(?:[A-Za-z_]\w*)?\$).*?(?P=quote)
    | (?P<end>;)
    """,
    re.VERBOSE | re.DOTALL,
)
_LEADING_BLANK = re.compile(r"\A(?:\s|--[^\n]*|/\*.*?\*/)+", re.DOTALL)


class MigrationError(Exception):
    """The database could not be brought up to date; the message says why and what to do about it."""


@dataclass(frozen=True)
class SqlFile:
    """One file of the SQL folder: its path in it, with forward slashes, and its text."""

    path: str
    text: str

    @property
    def name(self) -> str:
        """File name without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, as hex digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def sql_directory() -> Path:
    """Folder of the SQL: inside the installed package, or beside it in a checkout."""
    packaged = Path(__file__).parents[1] / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"


def render(text: str, extension_schema: str) -> str:
    """Put the quoted schema of the extension `vector` where the placeholder stands."""
    return text.replace(PLACEHOLDER, sql.Identifier(extension_schema).as_string(None))


def read_migrations(directory: Path) -> list[SqlFile]:
    """Migrations in order.

    Raises
    ------
    MigrationError
        When there is none, a name is not of the form `NNNN_name.sql`, or the numbers are not 1, 2, 3 and so on.
    """
    files = [_read(path, directory) for path in sorted((directory / "migrations").glob("*.sql"))]
    if not files:
        raise MigrationError(f"there are no migrations in {directory / 'migrations'}")
    for expected, file in enumerate(files, start=1):
        match = _MIGRATION_NAME.fullmatch(file.name)
        if not match:
            raise MigrationError(f"{file.path}: the name of a migration is NNNN_name.sql, in lower case")
        number = int(match[1])
        if number < expected:
            raise MigrationError(f"{file.path}: number {number:04} is taken by {files[expected - 2].name}")
        if number > expected:
            raise MigrationError(f"{file.path}: migration {expected:04} is missing before it")
    return files


def read_code(directory: Path) -> list[SqlFile]:
    """Code files in the order in which they are applied."""
    paths = [path for folder in _CODE_FOLDERS for path in sorted((directory / folder).glob("*.sql"))]
    privileges = directory / PRIVILEGES
    return [_read(path, directory) for path in [*paths, *([privileges] if privileges.exists() else [])]]


def _read(path: Path, directory: Path) -> SqlFile:
    return SqlFile(path.relative_to(directory).as_posix(), path.read_text(encoding="utf-8"))


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Split a file at the semicolons that end a statement.

    Bodies of functions are strings to it; the unquoted `begin atomic … end` is not supported.

    Yields
    ------
    tuple of int and str
        Where the statement's first word is in the text, and the statement.
    """
    start = 0
    for match in [*_TOKEN.finditer(text), None]:
        if match is not None and not match["end"]:
            continue
        end = match.start() if match else len(text)
        statement = _LEADING_BLANK.sub("", text[start:end])
        if statement:
            yield end - len(statement), statement
        start = end + 1
