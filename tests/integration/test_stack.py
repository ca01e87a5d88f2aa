"""`almagest stack`: what it starts, what it says when something is in the way, and that nothing of it stays."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from infra.local.ports import free_port

ALMAGEST = [sys.executable, "-c", "from almagest.cli import main; main()"]


@dataclass
class Place:
    """A directory and a port for a stack, and the environment that names them."""

    directory: Path
    environment: dict[str, str]

    @property
    def port(self) -> str:
        return self.environment["ALMAGEST_PORT"]

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ALMAGEST, "stack", *arguments],
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=90,
        )

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*ALMAGEST, "stack", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return found

    def processes(self) -> list[psutil.Process]:
        """All that runs for this stack: the supervisor, its children, and Postgres, which is nobody's child."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                ours = process.environ().get("ALMAGEST_DIR") == str(self.directory)
                if ours or Path(process.cwd()).is_relative_to(self.directory):
                    found += [process, *process.children(recursive=True)]
        return found


@pytest.fixture
def place(postgrest_program: Path) -> Iterator[Place]:
    # Not in pytest's own directory, which the system user that Postgres runs as under root may not enter.
    with tempfile.TemporaryDirectory(prefix="almagest-") as base:
        directory = Path(base) / "stack"
        environment = {
            **os.environ,
            "PATH": f"{postgrest_program.parent}:{os.environ['PATH']}",
            "ALMAGEST_DIR": str(directory),
            "ALMAGEST_PORT": str(free_port()),
        }
        place = Place(directory, environment)
        yield place
        place.run("stop")
        assert gone(place.processes())


def gone(processes: list[psutil.Process]) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if not any(is_running(process) for process in processes):
            return True
        time.sleep(0.05)
    return False


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def search(status: dict[str, Any], query: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {status['key']}"}
    return httpx.post(f"{status['url']}/v1/search", json={"query": query}, headers=headers, timeout=60)


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len([line for line in lines if line.startswith("Error")]) == 1
    return lines[-1]


def test_start_status_and_stop(place: Place) -> None:
    assert place.status()["running"] is False
    started = place.run("start", "--json")
    assert started.returncode == 0, started.stderr
    status = place.status()
    assert status == json.loads(started.stdout)
    assert status["running"] is True
    assert (place.directory / "stack.json").stat().st_mode & 0o077 == 0
    headers = {"Authorization": f"Bearer {status['key']}"}
    written = httpx.post(
        f"{status['url']}/v1/write/memories", json={"content": "We deploy on Tuesdays."}, headers=headers, timeout=60
    )
    assert written.status_code == 201, written.text
    processes = place.processes()
    assert {"postgres", "postgrest"} <= {process.name() for process in processes}
    stopped = place.run("stop")
    assert stopped.returncode == 0
    assert gone(processes)
    assert place.status()["running"] is False

    began = time.monotonic()
    assert place.run("start").returncode == 0
    assert time.monotonic() - began < 10
    again = place.status()
    assert again["key"] == status["key"]
    assert [result["id"] for result in search(again, "deploy").json()["results"]] == [written.json()["id"]]


def test_a_killed_stack_is_cleared_up_by_the_next_start_or_stop(place: Place) -> None:
    assert place.run("start").returncode == 0
    first = place.status()
    processes = place.processes()
    os.kill(first["pid"], signal.SIGKILL)
    assert place.status()["running"] is False
    assert place.run("start").returncode == 0
    second = place.status()
    assert (second["running"], second["key"]) == (True, first["key"])
    assert gone(processes)
    processes = place.processes()
    os.kill(second["pid"], signal.SIGKILL)
    assert place.run("stop").returncode == 0
    assert gone(processes)


@pytest.mark.slow
def test_what_ends_by_itself_is_started_again(place: Place) -> None:
    assert place.run("start").returncode == 0
    status = place.status()
    for process in place.processes():
        with suppress(psutil.NoSuchProcess):
            if process.name() in ("postgres", "postgrest"):
                process.kill()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        answer = search(status, "deploy")
        if answer.status_code == 200:
            return
        assert answer.status_code == 503
        time.sleep(0.2)
    pytest.fail("The stack did not recover.")


def test_up_answers_a_question_and_ctrl_c_ends_everything(place: Place) -> None:
    process = place.popen("up")
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Serving until Ctrl-C" in line:
            break
    shown = "".join(lines)
    assert "Read in" in shown
    assert f"http://127.0.0.1:{place.port}" in shown
    curl = shlex.split(next(line for line in lines if line.startswith("curl ")))
    headers = dict(value.split(": ", 1) for flag, value in pairwise(curl) if flag == "-H")
    answer = httpx.post(curl[2], content=curl[curl.index("-d") + 1], headers=headers, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["results"]

    second = place.run("up")
    assert f"A stack is running in {place.directory} already" in one_sentence(second)

    processes = place.processes()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 0
    process.stdout.close()
    assert gone(processes)


@pytest.mark.parametrize(
    "seconds", [1.0, *(pytest.param(seconds, marks=pytest.mark.slow) for seconds in (0.4, 1.6, 2.4))]
)
def test_ctrl_c_during_the_start_leaves_nothing(place: Place, seconds: float) -> None:
    process = place.popen("up")
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert "Traceback" not in said or seconds < 0.9, said
    assert gone(place.processes())


def test_a_taken_port_is_named_with_its_holder(place: Place) -> None:
    with socket.create_server(("127.0.0.1", int(place.port))):
        sentence = one_sentence(place.run("start"))
    assert f"Port {place.port} is in use by" in sentence
    assert f"(pid {os.getpid()})" in sentence
    assert "ALMAGEST_PORT" in sentence


def test_a_missing_npm_is_named(place: Place) -> None:
    sentence = one_sentence(place.run("start", PATH="/nonexistent"))
    assert "Neither npm nor postgrest is on PATH" in sentence
    assert "install npm" in sentence


def test_a_full_disk_is_named(place: Place) -> None:
    place.directory.mkdir()
    (place.directory / "run.new").symlink_to("/dev/full")
    sentence = one_sentence(place.run("start"))
    assert f"The disk that holds {place.directory} is full" in sentence


def test_a_directory_that_cannot_be_written_is_named(place: Place) -> None:
    place.directory.write_text("a file")
    assert f"{place.directory} cannot be written" in one_sentence(place.run("start"))
    place.directory.unlink()


def test_half_a_project_is_refused(place: Place) -> None:
    sentence = one_sentence(place.run("start", SUPABASE_URL="http://127.0.0.1:9"))
    assert "DATABASE_URL and SUPABASE_SECRET_KEY not" in sentence


def test_a_real_project_replaces_the_local_one(place: Place, tmp_path: Path) -> None:
    assert place.run("start").returncode == 0
    project = place.status()
    other = Place(
        tmp_path / "other",
        place.environment
        | {
            "ALMAGEST_DIR": str(tmp_path / "other"),
            "ALMAGEST_PORT": str(free_port()),
            "SUPABASE_URL": project["supabase_url"],
            "SUPABASE_SECRET_KEY": project["supabase_key"],
            "DATABASE_URL": project["database_url"],
            "ALMAGEST_KEY": project["key"],
        },
    )
    process = other.popen("up")
    assert process.stdout is not None
    shown = []
    for line in process.stdout:
        shown.append(line)
        if "Serving until Ctrl-C" in line:
            break
    try:
        assert not any("Read in" in line or "Postgres" in line for line in shown)
        assert not (other.directory / "postgres").exists()
        there = {"url": f"http://127.0.0.1:{other.port}", "key": project["key"]}
        assert search(there, "stack").json()["results"] == []
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()
    assert gone(other.processes())
