"""Each fault, put in by hand on a running stack: the check that goes red, what mends it, and the figure after.

The jobs are done as on AWS: their events are sent to the jobs function. Only faults of the embedder, which is in a
container's memory, are put into a runtime of the test's own over the same stack.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from almagest.operations.jobs.runner import run_job
from almagest.operations.registry import JOBS
from almagest.runtime import Runtime
from almagest.settings import Settings
from tests import faults
from tests.chaos.parts import database_of, postgrest
from tests.client import Client
from tests.faults import MENDED, UNMENDED, Fault
from tests.stack import Stack, own_stack
from tests.support import Database

MEMORIES = 150
# Each run has a time of its own: whole seconds, as Scheduler's are.
START = datetime(2027, 1, 1, tzinfo=UTC)
IN_MEMORY = {"embedder returns zeros", "embedder gone"}
# What shows that the whole of it works, in every run of the tests.
SHORT = {"vectors removed", "canary deleted"}

Job = Callable[[str], dict[str, Any]]


@dataclass
class System:
    """A stack with memories in it, and its scheduled work."""

    stack: Stack
    runtime: Runtime
    database: Database
    slots: Iterator[datetime] = field(default_factory=lambda: (START + timedelta(minutes=n) for n in range(10_000)))

    def deliver(self, job: str) -> dict[str, Any]:
        """Send a job's event to its function, and return the outcome."""
        event = {"job": job, "scheduled_for": next(self.slots).isoformat()}
        url = f"{self.stack.url}/2015-03-31/functions/jobs/invocations"
        until = time.monotonic() + 60
        while (answer := httpx.post(url, json=event, timeout=900)).status_code == 429:
            assert time.monotonic() < until, "all containers are at work"
            time.sleep(0.2)
        assert "x-amz-function-error" not in answer.headers, answer.text
        outcome: dict[str, Any] = answer.json()
        return outcome

    def by_schedule(self, job: str) -> dict[str, Any]:
        """Figures of a run in the jobs function."""
        outcome = self.deliver(job)
        assert outcome["state"] == "succeeded", outcome
        figures: dict[str, Any] = outcome["figures"]
        return figures

    def in_this_process(self, job: str) -> dict[str, Any]:
        """Figures of a run with this test's own embedder."""
        outcome = run_job(self.runtime, JOBS[job], next(self.slots), JOBS[job].seconds)
        assert outcome.state == "succeeded", outcome.error
        return outcome.figures

    def figure(self, fault: Fault) -> Any:
        """What the fault's check measured last: of its kind where it counts several."""
        [row] = self.database.rows(
            "select to_jsonb(c) from almagest.health_checks as c where name = %s order by checked_at desc limit 1",
            fault.check,
        )
        return row["figures"][fault.kind] if fault.kind else row["measured"]

    def sentences(self) -> list[Any]:
        """Of the checks of the last run that did not pass."""
        return self.database.rows(
            "select name, sentence from almagest.health_checks where status <> 'ok'"
            " and run_id = (select max(run_id) from almagest.health_checks)"
        )

    def entries(self) -> list[Any]:
        """Key and tries of the Hub's open entries."""
        return self.database.rows("select key, tries from almagest.hub_feed where closed_at is null order by key")


@contextmanager
def made_system() -> Iterator[System]:
    with tempfile.TemporaryDirectory(prefix="almagest-") as directory, own_stack(Path(directory) / "stack") as stack:
        with Client(stack.url, stack.key) as client:
            client.write([{"content": f"Release {n} went out, and nobody noticed. Note {n}."} for n in range(MEMORIES)])
            client.wait_for_index()
        status = stack.status()
        settings = Settings.model_validate(
            {name: status[name] for name in ("supabase_url", "supabase_key", "database_url")}
        )
        runtime = Runtime.from_settings(settings)
        yield System(stack, runtime, database_of(stack))
        runtime.rpc.close()


@pytest.fixture(scope="module")
def made() -> Iterator[System]:
    with made_system() as system:
        yield system


@pytest.fixture
def system(made: System) -> Iterator[System]:
    """All is well before each fault, and no earlier one is told of any more."""
    made.database.rows("delete from almagest.hub_feed")
    made.database.rows("delete from almagest.job_runs")
    yield made
    faults.embedder_back(made.runtime)


def statuses(figures: dict[str, Any]) -> dict[str, str]:
    return {name: check["status"] for name, check in figures["checks"].items()}


def all_of(faults_by_name: dict[str, Fault]) -> list[Any]:
    return [
        pytest.param(fault, id=name, marks=[] if name in SHORT else pytest.mark.slow)
        for name, fault in faults_by_name.items()
    ]


@pytest.mark.parametrize("fault", all_of(MENDED))
@pytest.mark.timeout(300)
def test_what_is_mended(system: System, fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    run: Job = system.in_this_process if fault.name in IN_MEMORY else system.by_schedule
    assert set(statuses(run("health")).values()) == {"ok"}
    before = system.figure(fault)

    fault.put(system.runtime, system.database)
    assert statuses(run("health"))[fault.check] == fault.status
    broken = system.figure(fault)
    assert broken != before

    assert statuses(run("remediation"))[fault.check] == "ok"
    assert system.figure(fault) == before or fault.kind is None
    assert set(statuses(run("health")).values()) == {"ok"}
    assert system.entries() == []
    with capsys.disabled():
        sys.stdout.write(f"\n{fault.name}: {fault.check} {before} -> {broken} -> {system.figure(fault)}\n")


def back(fault: Fault, system: System) -> None:
    """What a person does."""
    if fault.name == "table gone":
        faults.table_back(system.database)
    elif fault.name == "row security off":
        faults.row_security_on(system.database)
    else:
        faults.embedder_back(system.runtime)


@pytest.mark.slow
@pytest.mark.parametrize("fault", UNMENDED.values(), ids=UNMENDED.keys())
@pytest.mark.timeout(600)
def test_what_a_person_has_to_mend_is_told_once(system: System, fault: Fault) -> None:
    run: Job = system.in_this_process if fault.name in IN_MEMORY else system.by_schedule
    fault.put(system.runtime, system.database)
    try:
        for tries in (1, 2, 3):
            assert statuses(run("health"))[fault.check] == fault.status
            assert statuses(run("remediation"))[fault.check] == fault.status
            assert (f"health.{fault.check}", tries) in system.entries()
        tried = system.database.rows("select count(*) from almagest.remediations where check_name = %s", fault.check)
        run("health")
        run("remediation")
        again = "select count(*) from almagest.remediations where check_name = %s and state <> 'left'"
        assert system.database.rows(again, fault.check) == tried
    finally:
        back(fault, system)
    told = system.stack.almagest("hub")
    assert "three times" in told
    # It is done by hand once a person has done something, or closes with the next run of health.
    assert set(statuses(run("health")).values()) == {"ok"}
    assert system.entries() == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_request_path_is_down(system: System) -> None:
    """PostgREST does not answer any more, without having ended."""
    stopped = postgrest(system.stack)
    assert stopped
    for process in stopped:
        process.suspend()
    try:
        found = statuses(system.by_schedule("health"))
        assert (found["table_access"], found["crud_integrity"], found["orphaned_embeddings"]) == (
            "failed",
            "failed",
            "ok",
        )
        assert statuses(system.by_schedule("remediation"))["table_access"] == "failed"
        assert ("health.table_access", 1) in system.entries()
    finally:
        for process in stopped:
            process.resume()
    assert set(statuses(system.by_schedule("health")).values()) == {"ok"}, system.sentences()
    assert system.entries() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_remediations_at_once_do_the_work_once(system: System) -> None:
    faults.vectors_removed(system.runtime, system.database)
    system.by_schedule("health")
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(system.deliver, ["remediation"] * 2))
    assert sorted(outcome["state"] for outcome in outcomes) in (["skipped", "succeeded"], ["succeeded", "succeeded"])
    answered = [outcome["figures"].get("health_run") for outcome in outcomes if outcome["state"] == "succeeded"]
    assert sum(run is not None for run in answered) == 1
    done = system.database.rows("select count(*) from almagest.remediations where action = 'index_again'")
    assert done == [1]
    assert set(statuses(system.by_schedule("health")).values()) == {"ok"}
