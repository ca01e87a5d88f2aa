"""R3: a container that is frozen for minutes, while servers give up its connections, answers its next request.

The functions run as on AWS: in the real runtime client, asked over the Runtime API. SIGSTOP is what freezing is.
"""

import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import almagest
from almagest.models.identity import KeyCreate, OrgCreate
from almagest.operations import identity
from almagest.runtime import Runtime
from almagest.settings import Settings
from infra.local.emulator import Emulator
from infra.local.postgres import Postgres
from infra.local.template import Function
from tests.conftest import Supabase
from tests.integration.wire import Wire
from tests.support import Database, clone

Run = Callable[[Coroutine[Any, Any, Any]], Any]
CODE = Path(almagest.__file__).parents[1]


@dataclass
class Container:
    """The functions in processes of their own, and the wire between them and the project."""

    emulator: Emulator
    wire: Wire
    database: Database
    key: str

    def ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Send a request to the function that its path names, which is in one process for the whole test."""
        answer = httpx.request(
            method,
            f"{self.emulator.url}{path}",
            json=body,
            headers={"authorization": f"Bearer {self.key}"},
            timeout=60,
        )
        return answer.status_code, answer.json()

    def search(self) -> tuple[int, Any]:
        return self.ask("POST", "/v1/search", {"query": "otters"})

    def write(self, text: str) -> tuple[int, Any]:
        return self.ask("POST", "/v1/write/memories", {"content": text})

    def index(self, **fields: Any) -> dict[str, Any]:
        """Invoke the index function and wait for its counts."""
        url = f"{self.emulator.url}/2015-03-31/functions/index/invocations"
        until = time.monotonic() + 30
        while (answer := httpx.post(url, json=fields, timeout=60)).status_code == 429:
            assert time.monotonic() < until, "the run before this one does not end"
            time.sleep(0.1)
        assert "x-amz-function-error" not in answer.headers, answer.text
        counts: dict[str, Any] = answer.json()
        return counts

    @property
    def processes(self) -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if "awslambdaric" in " ".join(child.cmdline())]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every process, for as long as it takes."""
        stopped = self.processes
        assert stopped
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 10
        while any(process.status() != psutil.STATUS_STOPPED for process in stopped):
            assert time.monotonic() < until
            time.sleep(0.01)
        try:
            yield
        finally:
            for process in stopped:
                process.send_signal(signal.SIGCONT)

    def end_sessions(self) -> int:
        """End the sessions of scheduled work on the database's side; how many there were."""
        return len(
            self.database.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name = 'almagest'",
                role="supabase_admin",
            )
        )


@pytest.fixture(scope="module")
def container(
    cluster: Postgres,
    template_database: Database,
    supabase_over: Callable[[str], Supabase],
    run_async: Run,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Container]:
    with clone(cluster, template_database.name) as database:
        project = supabase_over(database.name)
        settings = Settings(supabase_url=project.url, supabase_key=project.keys.secret)  # type: ignore[arg-type]
        runtime = Runtime.from_settings(settings)
        request = {"slug": "acme", "name": "Acme", "owner": {"email": "ann@acme.example"}}
        identity.create_org(runtime, None, OrgCreate.model_validate(request))
        key = identity.create_key(runtime, None, KeyCreate(org="acme", name="ann", member="ann@acme.example")).secret
        runtime.rpc.close()
        wire = Wire(int(project.url.rpartition(":")[2]))
        run_async(wire.start())
        environment = {
            "SUPABASE_URL": f"http://127.0.0.1:{wire.port}",
            "SUPABASE_SECRET_KEY": project.keys.secret,
            "DATABASE_URL": database.url,
        }
        functions = {
            name: Function(
                name=name,
                handler=f"almagest.handlers.{name}.handler",
                code=CODE,
                memory=1769,
                timeout=60,
                concurrency=1,
                environment=environment,
                has_url=name != "index",
            )
            for name in ("search", "write", "index")
        }
        emulator = Emulator(functions, tmp_path_factory.mktemp("logs"), retry_delays=())
        run_async(emulator.start())
        yield Container(emulator, wire, database, key)
        run_async(emulator.stop())
        run_async(wire.stop())


def pids(container: Container) -> set[int]:
    return {process.pid for process in container.processes}


@pytest.mark.parametrize("break_off", [Wire.hang_up, Wire.forget], ids=["closed", "dropped without a word"])
def test_the_next_request_is_answered(
    container: Container, run_async: Run, break_off: Callable[[Wire], Coroutine[Any, Any, int]]
) -> None:
    assert container.write("Otters hold hands while they sleep.")[0] == 201
    assert container.search()[0] == 200
    before = pids(container)

    with container.frozen():
        assert run_async(break_off(container.wire)) >= 2  # one of each function was open, so something is tried here

    status, found = container.search()
    assert (status, found["mode"], len(found["results"])) == (200, "hybrid", 1)
    status, written = container.write(f"Written after {break_off.__name__}.")
    assert (status, written["deduplicated"]) == (201, False)
    assert pids(container) == before, "another process answered"
    stored = container.database.rows("select count(*) from almagest.items where content like 'Written after%'")
    assert stored == [1 if break_off is Wire.hang_up else 2]


def test_a_dropped_connection_is_noticed(container: Container, run_async: Run) -> None:
    """Else the test before would prove nothing: without a second try, a request over a forgotten wire fails."""
    with httpx.Client(base_url=f"http://127.0.0.1:{container.wire.port}") as client:
        assert client.get("/").status_code == 404
        assert run_async(container.wire.forget()) >= 1
        with pytest.raises(httpx.TransportError):
            client.get("/")


def test_the_index_function_opens_a_session_anew(container: Container) -> None:
    assert container.index()["failed"] == 0
    before = pids(container)
    with container.frozen():
        container.end_sessions()
    container.database.rows("update almagest.items set index_status = 'text_ready', index_after = now()")
    container.database.rows("delete from almagest.embeddings")
    assert container.index()["indexed"] >= 1
    assert pids(container) == before


def test_a_session_that_ends_under_a_run_ends_the_run_and_the_next_one_works(container: Container) -> None:
    """Frozen in the middle of its work, which AWS does to no run, but a network may do as much."""
    long = "A sentence about otters that fills a chunk of its own. " * 4_000
    assert container.write(long)[0] == 201
    url = f"{container.emulator.url}/2015-03-31/functions/index/invocations"
    assert httpx.post(url, json={}, headers={"x-amz-invocation-type": "Event"}).status_code == 202
    until = time.monotonic() + 30
    while not container.database.rows("select 1 from almagest.items where index_status = 'indexing'"):
        assert time.monotonic() < until
        time.sleep(0.05)
    with container.frozen():
        assert container.end_sessions() == 1
    container.database.rows(
        "update almagest.items set index_status = 'text_ready', index_after = now(), lease_owner = null,"
        " lease_expires_at = null, content = 'Short now.' where index_status = 'indexing'"
    )
    assert container.index()["indexed"] == 1
