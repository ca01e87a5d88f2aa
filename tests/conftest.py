"""Fixtures that several kinds of test share. A test never sees the environment's own database or stack."""

import os

_KEPT = ("ALMAGEST_TEST_ROWS", "ALMAGEST_PACKAGE_PYTHON")
for _name in list(os.environ):
    if _name == "DATABASE_URL" or (_name.startswith(("SUPABASE_", "ALMAGEST_")) and _name not in _KEPT):
        del os.environ[_name]

import asyncio  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
from collections.abc import Callable, Coroutine, Iterator  # noqa: E402
from contextlib import ExitStack  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import pytest  # noqa: E402

from almagest.database.migrate import migrate  # noqa: E402
from infra.local.artefacts import packaged  # noqa: E402
from infra.local.errors import StackError  # noqa: E402
from infra.local.gateway import Gateway  # noqa: E402
from infra.local.keys import Keys  # noqa: E402
from infra.local.postgres import Postgres  # noqa: E402
from infra.local.postgrest import Postgrest, find_postgrest, install_postgrest  # noqa: E402
from tests.stack import Stack, own_stack  # noqa: E402
from tests.support import Database, clone  # noqa: E402

FROM_PACKAGE = "--from-package"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --from-package`: what goes through the session's stack meets the artefacts of `make package`."""
    parser.addoption(FROM_PACKAGE, action="store_true", help="serve the stack from the artefacts of `make package`")


def pytest_configure(config: pytest.Config) -> None:
    """Let `kill` end a run as Ctrl-C does: fixture by fixture, so that nothing stays."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if config.getoption(FROM_PACKAGE):
        try:
            packaged()
        except StackError as error:
            # Once, not by every test.
            raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Postgres]:
    """A Postgres of the session's own, with Supabase's roles and no migrations; thrown away at the end."""
    # Not in pytest's own directory, which the system user that Postgres runs as under root may not enter.
    with tempfile.TemporaryDirectory(prefix="almagest-") as directory:
        postgres = Postgres(Path(directory), durable=False)
        try:
            postgres.start()
            yield postgres
        finally:
            postgres.stop()


@pytest.fixture(scope="session")
def template_database(cluster: Postgres) -> Iterator[Database]:
    """A migrated database that is only ever copied."""
    with clone(cluster, "postgres", prefix="template") as template:
        migrate(template.url)
        yield template


@pytest.fixture
def database(cluster: Postgres, template_database: Database) -> Iterator[Database]:
    """A migrated database of the test's own."""
    with clone(cluster, template_database.name) as copy:
        yield copy


@pytest.fixture(scope="session")
def run_async() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Run a coroutine in an event loop that goes on in a thread, so that servers started in it keep serving."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def postgrest_program() -> Path:
    """PostgREST's binary, kept beside the embedding model, so that only the first session installs it."""
    directory = Path(sys.prefix) / "share" / "almagest"
    directory.mkdir(parents=True, exist_ok=True)
    return find_postgrest(directory) or install_postgrest(directory)


@dataclass(frozen=True)
class Supabase:
    """A project as its clients see it: gateway and PostgREST over one database of the cluster."""

    url: str
    keys: Keys
    database_url: str


@pytest.fixture(scope="session")
def supabase_over(
    cluster: Postgres,
    run_async: Callable[[Coroutine[Any, Any, Any]], Any],
    postgrest_program: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Supabase]]:
    """Serve a database of the cluster, named, as a Supabase project, until the session ends."""
    keys = Keys.create()
    with ExitStack() as stack:

        def serve(database: str) -> Supabase:
            log = tmp_path_factory.mktemp("postgrest") / "postgrest.log"
            postgrest = Postgrest(postgrest_program, cluster.url("authenticator", database), keys.jwt_secret, log)
            postgrest.start()
            stack.callback(postgrest.stop)
            gateway = Gateway(postgrest.url, keys)
            run_async(gateway.start())
            stack.callback(lambda: run_async(gateway.stop()))
            return Supabase(gateway.url, keys, cluster.url(database=database))

        yield serve


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Stack]:
    """A whole stack of the session's own, with an org and its owner's key."""
    options = [FROM_PACKAGE] if pytestconfig.getoption(FROM_PACKAGE) else []
    with own_stack(tmp_path_factory.mktemp("stack"), *options) as running:
        yield running
