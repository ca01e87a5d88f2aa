"""The stack that a benchmark runs against: one of its own, or the one that the environment names."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.client import Client

# This interpreter's command, whether or not its script is installed.
_ALMAGEST = (sys.executable, "-c", "from almagest.cli import main; main()")


@contextmanager
def client() -> Iterator[Client]:
    """Give a client of ALMAGEST_BENCH_URL and ALMAGEST_BENCH_KEY, else of a stack that lives as long as the context."""
    url, key = os.environ.get("ALMAGEST_BENCH_URL"), os.environ.get("ALMAGEST_BENCH_KEY")
    if url and key:
        with Client(url, key) as named:
            yield named
        return
    with tempfile.TemporaryDirectory(prefix="almagest-bench-") as directory:
        environment = _environment(directory)
        try:
            started = _almagest("start", "--json", environment=environment)
            running = json.loads(started)
            with Client(running["url"], running["key"]) as own:
                yield own
        finally:
            _almagest("stop", environment=environment)


def _environment(directory: str) -> dict[str, str]:
    # Nothing of a real project may reach the stack: it would be filled with the benchmark's memories.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUPABASE_", "ALMAGEST_"))}
    kept.pop("DATABASE_URL", None)
    return kept | {"ALMAGEST_DIR": directory, "ALMAGEST_PORT": str(_free_port())}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _almagest(*words: str, environment: dict[str, str]) -> str:
    done = subprocess.run([*_ALMAGEST, "stack", *words], env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout
