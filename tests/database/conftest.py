"""One database that the tests share, emptied after each, and an org in it."""

from collections.abc import Iterator

import pytest

from infra.local.postgres import Postgres
from tests.database.support import Org, Server, serve
from tests.support import Database, clone

# Vectors are truncated: what is deleted from their index stays in the way of every later scan.
EMPTY = """
truncate almagest.embeddings;
delete from almagest.orgs;
delete from almagest.hub_feed;
delete from almagest.audit_log;
delete from almagest.retrievals;
delete from almagest.activations;
delete from almagest.job_runs;
delete from almagest.embedding_models;
update almagest.search_profiles set knobs = '{}' where knobs <> '{}';
"""


@pytest.fixture(scope="session")
def shared_database(cluster: Postgres, template_database: Database) -> Iterator[Database]:
    """A database for tests that change rows and nothing else; a copy for each would take most of their time."""
    with clone(cluster, template_database.name) as copy:
        yield copy


@pytest.fixture
def server(shared_database: Database) -> Iterator[Server]:
    """Connections to an empty, migrated database."""
    with serve(shared_database) as connections:
        yield connections
    shared_database.rows(EMPTY)


@pytest.fixture
def org(server: Server) -> Org:
    """An org with its owner."""
    return Org(server, "acme")
