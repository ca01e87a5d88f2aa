"""The stack that a benchmark runs against: one of its own, or the one that the environment names."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.client import Client
from tests.stack import own_stack


@contextmanager
def client() -> Iterator[Client]:
    """Give a client of ALMAGEST_BENCH_URL and ALMAGEST_BENCH_KEY, else of a stack that lives as long as the context."""
    url, key = os.environ.get("ALMAGEST_BENCH_URL"), os.environ.get("ALMAGEST_BENCH_KEY")
    if url and key:
        with Client(url, key) as named:
            yield named
        return
    # A benchmark that is told to end takes its stack with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with (
        tempfile.TemporaryDirectory(prefix="almagest-bench-") as directory,
        own_stack(Path(directory)) as stack,
        Client(stack.url, stack.key) as own,
    ):
        yield own
