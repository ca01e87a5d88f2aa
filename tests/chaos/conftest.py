"""A stack of a test's own, to be broken."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack, own_stack


@pytest.fixture
def breakable(postgrest_program: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A whole stack that nobody else uses."""
    monkeypatch.setenv("PATH", str(postgrest_program.parent), prepend=":")
    # Not in pytest's own directory, which the system user that Postgres runs as under root may not enter.
    with tempfile.TemporaryDirectory(prefix="almagest-") as directory, own_stack(Path(directory) / "stack") as stack:
        yield stack
