"""A whole local stack for tests and benchmarks, as `almagest stack start` makes it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from infra.local.ports import free_port

# This interpreter's command, whether or not its script is on the PATH.
ALMAGEST = (sys.executable, "-c", "from almagest.cli import main; main()")


@dataclass(frozen=True)
class Stack:
    """A stack that serves.

    Attributes
    ----------
    url
        Of the function URLs.
    key
        An owner's API key.
    environment
        What a command needs to act on this stack and on no other.
    """

    url: str
    key: str
    environment: dict[str, str]

    def status(self) -> dict[str, Any]:
        """What the stack says of itself: its parts' URLs and secrets."""
        found: dict[str, Any] = json.loads(self.almagest("stack", "status", "--json"))
        return found

    @property
    def database_url(self) -> str:
        """For the database's owner."""
        return str(self.status()["database_url"])

    def rows(self, query: str, *parameters: object) -> list[Any]:
        """Look behind the scenes: rows of the database, single columns unwrapped."""
        with psycopg.connect(self.database_url) as connection:
            found = connection.execute(query.encode(), parameters).fetchall()
        return [row[0] if len(row) == 1 else row for row in found]

    def almagest(self, *words: str) -> str:
        """Run a command of the CLI, and return what it prints."""
        return _almagest(words, self.environment)


@contextmanager
def own_stack(directory: Path, *options: str) -> Iterator[Stack]:
    """Run a stack that keeps its data in a directory, as long as the context lasts; `options` of `stack start`."""
    # Nothing of a real project may reach it: that project would be filled with test data.
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "ALMAGEST_PACKAGE_PYTHON" or not name.startswith(("SUPABASE_", "ALMAGEST_", "DATABASE_URL"))
    }
    environment = kept | {"ALMAGEST_DIR": str(directory), "ALMAGEST_PORT": str(free_port())}
    try:
        running = json.loads(_almagest(("stack", "start", "--json", *options), environment))
        yield Stack(running["url"], running["key"], environment)
    finally:
        _almagest(("stack", "stop"), environment)


def _almagest(words: tuple[str, ...], environment: dict[str, str]) -> str:
    done = subprocess.run([*ALMAGEST, *words], env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout
