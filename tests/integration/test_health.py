"""The health checks and remediation over a real Postgres, PostgREST and model, with real faults put in."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from almagest.operations.health.registry import CHECKS
from almagest.operations.jobs import Outcome, run_job
from almagest.operations.registry import JOBS
from almagest.runtime import Runtime
from tests import faults
from tests.faults import MENDED, Fault
from tests.integration.conftest import Team
from tests.support import Database

NAMES = [
    "table_access",
    "embedding_function",
    "semantic_accuracy",
    "crud_integrity",
    "orphaned_embeddings",
    "staleness",
    "canary_quality",
]
# Scheduler's times are whole seconds; each of a test's runs has its own.
SLOT = datetime(2027, 1, 1, tzinfo=UTC)


class System:
    """A system with a few memories in it, and its jobs."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.runtime = team.runtime
        self.database = team.database
        self._slots = 0

    def run(self, job: str, *, by_hand: bool = False) -> dict[str, Any]:
        """Do a run of a job that must succeed, and return its figures."""
        outcome = self.attempt(job, by_hand=by_hand)
        assert outcome.state == "succeeded", outcome.error
        return outcome.figures

    def attempt(self, job: str, *, by_hand: bool = False, again: bool = False) -> Outcome:
        """Do a run of a job, or with `again` the last one once more."""
        self._slots += not again
        at = datetime.now(UTC).replace(microsecond=7) if by_hand else SLOT + timedelta(minutes=self._slots)
        return run_job(self.runtime, JOBS[job], at, JOBS[job].seconds)

    def health(self) -> dict[str, str]:
        """Status of each check."""
        return {name: check["status"] for name, check in self.run("health")["checks"].items()}

    def found(self, check: str) -> dict[str, Any]:
        """What a check found last, in a run of health or of remediation."""
        [row] = self.database.rows(
            "select to_jsonb(c) from almagest.health_checks as c where name = %s order by checked_at desc limit 1",
            check,
        )
        found: dict[str, Any] = row
        return found

    def entries(self) -> list[Any]:
        """Key, severity and tries of the Hub's open entries."""
        return self.database.rows(
            "select key, severity, tries from almagest.hub_feed where closed_at is null order by key"
        )


@pytest.fixture(scope="module")
def system_once(served: tuple[Runtime, Database]) -> dict[str, bool]:
    return {}


@pytest.fixture
def system(team: Team) -> Iterator[System]:
    team.rows("delete from almagest.job_runs")
    team.rows("delete from almagest.hub_feed")
    team.rows("update almagest.items set index_status = 'search_ready' where index_status in ('pending', 'text_ready')")
    for number in range(4):
        team.remember(f"Release {number} went out in the morning, and nobody noticed.", title=f"Release {number}")
    yield System(team)
    faults.embedder_back(team.runtime)


OK = dict.fromkeys(NAMES, "ok")


def test_a_system_that_works_is_ok_and_says_so(system: System) -> None:
    figures = system.run("health")
    assert list(figures["checks"]) == NAMES == list(CHECKS)
    assert {name: check["status"] for name, check in figures["checks"].items()} == OK
    assert (figures["status"], figures["failed"], figures["degraded"], figures["index_backlog"]) == ("ok", 0, 0, 0)
    stored = system.database.rows("select to_jsonb(c) from almagest.health_checks as c order by checked_at")
    assert [row["name"] for row in stored] == NAMES
    for row in stored:
        assert row["sentence"].endswith(".")
        assert row["unit"]
        assert row["duration_ms"] > 0
        assert None not in (row["measured"], row["threshold"])
    assert system.database.rows("select status, remediated_by from almagest.health_runs") == [("ok", None)]
    assert system.run("remediation") == {
        "health_run": None,
        "mended": 0,
        "left": 0,
        "checks": {},
        "open_hub_entries": 0,
    }


@pytest.mark.parametrize("fault", MENDED.values(), ids=MENDED.keys())
def test_a_fault_is_found_named_mended_and_shown(system: System, fault: Fault) -> None:
    assert system.health() == OK
    fault.put(system.runtime, system.database)
    assert system.health()[fault.check] == fault.status
    if fault.kind:
        assert system.found(fault.check)["figures"][fault.kind] > 0
    figures = system.run("remediation")
    assert figures["checks"][fault.check]["status"] == "ok", (figures, system.found(fault.check))
    tried = system.database.rows("select state, attempt from almagest.remediations where check_name = %s", fault.check)
    assert ("mended", 1) in tried
    assert system.entries() == []
    assert system.health() == OK
