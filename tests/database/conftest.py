"""A database served to each test, and an org in it."""

from collections.abc import Iterator

import pytest

from tests.database.support import Org, Server, serve
from tests.support import Database


@pytest.fixture
def server(database: Database) -> Iterator[Server]:
    """Connections to a migrated database of the test's own."""
    with serve(database) as connections:
        yield connections


@pytest.fixture
def org(server: Server) -> Org:
    """An org with its owner."""
    return Org(server, "acme")
