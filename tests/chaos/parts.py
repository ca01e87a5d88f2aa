"""The processes that a stack is made of."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from infra.local.postgres import Postgres
from tests.stack import Stack
from tests.support import Database


def postgres(stack: Stack) -> list[psutil.Process]:
    """Postgres with all its sessions; it is nobody's child, but works in its data."""
    directory = Path(stack.environment["ALMAGEST_DIR"])
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "postgres" and Path(process.cwd()).is_relative_to(directory):
                found.append(process)
    return found


def postgrest(stack: Stack) -> list[psutil.Process]:
    """PostgREST."""
    return [process for process in _children(stack) if process.name() == "postgrest"]


def function(stack: Stack, name: str) -> list[psutil.Process]:
    """Containers of a function."""
    handler = f"almagest.handlers.{name}.handler"
    return [process for process in _children(stack) if handler in process.cmdline()]


def memory(stack: Stack, names: Iterable[str]) -> dict[int, int]:
    """Bytes of its own that each container of these functions has, by process."""
    found = {}
    for process in (container for name in names for container in function(stack, name)):
        with suppress(psutil.Error):
            found[process.pid] = process.memory_full_info().uss
    return found


def _children(stack: Stack) -> list[psutil.Process]:
    return psutil.Process(stack.status()["pid"]).children(recursive=True)


def database_of(stack: Stack) -> Database:
    """The stack's database, also for its superuser."""
    cluster = Postgres(Path(stack.environment["ALMAGEST_DIR"]) / "postgres")
    cluster._port = int((cluster.directory / "port").read_text())
    cluster._passwords = json.loads((cluster.directory / "passwords.json").read_text())
    return Database(cluster, "postgres")
