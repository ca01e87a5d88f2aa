"""Where `almagest export` writes and `import` reads: nobody else's to read, and nothing replaced that is no file."""

import io
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from almagest.cli import main
from infra.local.postgres import Postgres
from tests.database.support import Org, one_hot, serve, write_one
from tests.support import Database, clone

Command = Callable[..., bytes]


@pytest.fixture(scope="module")
def source(cluster: Postgres, template_database: Database) -> Iterator[Database]:
    with clone(cluster, template_database.name) as database:
        with serve(database) as server:
            write_one(server, Org(server, "acme").owner, "Otters hold hands.", one_hot(1))
        yield database


@pytest.fixture
def command(
    source: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Command:
    """Run a command in a folder of its own and return what it printed; of a failing one, what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", source.url)
    monkeypatch.setenv("ALMAGEST_DIR", str(tmp_path / "none"))

    def run(*arguments: str, status: int = 0) -> bytes:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        out, err = capsysbinary.readouterr()
        assert caught.value.code == status, err
        return err if status else out

    return run


@pytest.fixture
def whole(command: Command) -> bytes:
    """What an export is."""
    lines = command("export", "--org", "acme")
    assert b"Otters" in lines
    return lines


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_its_owners_alone(command: Command, whole: bytes, tmp_path: Path) -> None:
    """Whatever lay there, and whatever lies beside it."""
    file, part, victim = tmp_path / "a.jsonl", tmp_path / "a.jsonl.part", tmp_path / "victim"
    victim.write_text("mine")
    for lay_beside in (lambda: None, part.touch, lambda: part.symlink_to(victim)):
        part.unlink(missing_ok=True)
        lay_beside()
        if part.exists() and not part.is_symlink():
            part.chmod(0o666)
        file.write_text("old")
        file.chmod(0o666)
        command("export", "--org", "acme", "-o", str(file))
        assert file.read_bytes() == whole
        assert mode(file) == 0o600
        assert victim.read_text() == "mine"
    part.unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "victim"]


def test_what_fails_leaves_the_old_file(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("old")
    assert b"unknown_org" in command("export", "--org", "nobody", "-o", str(file), status=1)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_one(command: Command, whole: bytes, tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "there.jsonl"
    link.symlink_to(file)
    for _ in range(2):
        command("export", "--org", "acme", "-o", str(link))
        assert link.is_symlink()
        assert file.read_bytes() == whole
        assert mode(file) == 0o600


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_stays_one(linked: bool, command: Command, whole: bytes, tmp_path: Path) -> None:
    pipe = given = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        given = tmp_path / "link"
        given.symlink_to(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        command("export", "--org", "acme", "-o", str(given))
        if not pipe.is_fifo():  # so that the reader ends where it was replaced
            pytest.fail("the pipe was replaced")
        assert read.result(10) == whole
    assert pipe.is_fifo()


def test_a_dash_is_standard_output(command: Command, whole: bytes, tmp_path: Path) -> None:
    assert command("export", "--org", "acme", "-o", "-") == whole
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_said(command: Command, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "a.jsonl", tmp_path / ("x" * 300)):
        said = command("export", "--org", "acme", "-o", str(path), status=1)
        assert b"not_written" in said
        assert b"Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_leaves_is_no_traceback(command: Command, source: Database, tmp_path: Path) -> None:
    """As `almagest export … | head` does."""
    program = "import sys; from almagest.cli import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", program, "export", "--org", "acme"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "DATABASE_URL": source.url},
    ) as export:  # fmt: skip
        assert export.stdout is not None
        assert export.stderr is not None
        export.stdout.close()
        said = export.stderr.read()
    assert export.returncode == 1
    assert b"not_written" in said
    assert b"Traceback" not in said
    assert b"Exception ignored" not in said


@pytest.mark.parametrize("kind", ["file", "pipe", "dash"])
def test_an_import_reads_what_there_is(
    kind: str, command: Command, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        if kind == "dash":
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(whole)))
            path = Path("-")
        else:
            pool.submit(path.write_bytes, whole)
            if kind == "file":
                pool.shutdown()
        assert b"org_exists" in command("import", str(path), status=1)


def test_what_cannot_be_read_is_said(command: Command, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        said = command("import", str(path), status=1)
        assert b"not_read" in said
        assert b"Traceback" not in said
