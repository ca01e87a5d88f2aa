"""Commands that take an org, or what is one person's own, out of a database and into another one, as its operator."""

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from almagest.cli import output
from almagest.cli.context import open_session
from almagest.cli.options import Json, examples
from almagest.problems import Problem

if TYPE_CHECKING:
    from rich.progress import Progress

# As a name: standard input or output.
STANDARD = Path("-")


def export(
    org: Annotated[str, typer.Option(help="Slug of the org.")],
    user: Annotated[
        str | None, typer.Option(help="E-mail address or id of a member: only what is private to that person.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File that is made once it is whole, for its owner alone; default, and -, standard output.",
        ),
    ] = None,
    vectors: Annotated[
        bool, typer.Option("--vectors/--no-vectors", help="With vectors, or to have them made anew on the other side.")
    ] = True,
) -> None:
    """Write an org with everything in it, private memories too, as JSON Lines; or with --user one person's own.

    For whoever operates the database: DATABASE_URL opens it. No key is in the export.
    """
    from almagest.database.exporter import export as read

    with open_session() as connection, _written(file) as out, _progress() as progress:
        bar = progress.add_task("", total=None)
        done: dict[str, int] = {}
        for table, line in read(connection, org, user, vectors=vectors):
            out.write(line.encode() + b"\n")
            done[table] = done.get(table, 0) + 1
            progress.update(bar, description=f"{table}: {done[table]:,}")
    rows = sum(number for table, number in done.items() if table not in ("header", "end"))
    output.print_message(f"Exported {rows:,} rows.")


def import_(
    file: Annotated[Path, typer.Argument(help="An export; - is standard input.")],
    org: Annotated[str | None, typer.Option(help="Slug of the org that one person's export goes into.")] = None,
    user: Annotated[
        str | None, typer.Option(help="E-mail address or id of the member whose they become; default as in the export.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Store an export: all of it, or after an error nothing. An org's export makes the org, which is not there yet.

    For whoever operates the database: DATABASE_URL opens it. Keys are made anew with `almagest key create`.
    """
    from almagest.database.importer import import_ as store

    with open_session() as connection, _opened(file) as lines, _progress() as progress:
        total = _size(file)
        bar = progress.add_task("", total=total)

        def report(table: str, rows: int) -> None:
            completed = lines.tell() if total is not None else None
            progress.update(bar, description=f"{table}: {rows:,}", completed=completed)

        counts = store(connection, lines, org, user, report=report)
    if as_json:
        output.print_json(counts)
    else:
        output.print_record({table: f"{rows:,}" for table, rows in counts.items()})


def register(app: typer.Typer) -> None:
    """Give the commands to the app."""
    app.command(
        epilog=examples(
            "almagest export --org acme -o acme.jsonl",
            "almagest export --org acme --user ann@acme.example -o ann.jsonl",
        )
    )(export)
    app.command("import", epilog=examples("almagest import acme.jsonl", "almagest import ann.jsonl --org globex"))(
        import_
    )


@contextmanager
def _written(file: Path | None) -> Iterator[IO[bytes]]:
    """Where an export goes: into a new file, or straight into what is none, such as a pipe."""
    try:
        if file is None or file == STANDARD:
            destination = _standard_output()
        else:
            destination = _whole(file.resolve()) if _may_be_replaced(file) else _opened_as_it_is(file)
        with destination as out:
            yield out
    except OSError as error:
        where = "Standard output" if file is None or file == STANDARD else str(file)
        raise Problem(500, "not_written", f"{where} cannot be written: {error.strerror}.") from error


def _may_be_replaced(file: Path) -> bool:
    """Whether a name is free, or a regular file's; a link is what it leads to."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        return True


@contextmanager
def _whole(file: Path) -> Iterator[IO[bytes]]:
    """A file that has its name only when all of it is there, and that nobody else may read."""
    # New, under a name that nobody could foresee, and its owner's alone from the beginning.
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".almagest-", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(file)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def _opened_as_it_is(file: Path) -> Iterator[IO[bytes]]:
    with os.fdopen(os.open(file, os.O_WRONLY), "wb") as out:
        yield out


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    try:
        yield sys.stdout.buffer
        sys.stdout.flush()
    except BrokenPipeError:
        # Else Python tries again at its end, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    if file == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        with file.open("rb") as lines:
            yield lines
    except OSError as error:
        raise Problem(422, "not_read", f"{file} cannot be read: {error.strerror}.") from error


def _size(file: Path) -> int | None:
    """Bytes of a regular file; of anything else, it is not known how much will come."""
    return file.stat().st_size if file != STANDARD and file.is_file() else None


@contextmanager
def _progress() -> Iterator["Progress"]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress
