"""The health checks and remediation over a real Postgres, PostgREST and model, with real faults put in."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from almagest import deadline
from almagest.cli.health import _report
from almagest.database.health import Health
from almagest.database.migrate import migrate
from almagest.database.remedy import Remedy
from almagest.database.session import connect
from almagest.handlers import jobs
from almagest.models.write import BatchWrite
from almagest.operations.health import canary_quality, check, crud_integrity, semantic_accuracy
from almagest.operations.health.canaries import CANARIES
from almagest.operations.health.check import Check, Found, Probe, perform
from almagest.operations.health.paraphrases import PAIRS
from almagest.operations.health.planted import new_call
from almagest.operations.health.registry import CHECKS
from almagest.operations.jobs.runner import Outcome, run_job
from almagest.operations.registry import JOBS
from almagest.operations.remediation import run as remediation
from almagest.operations.write import write_memories
from almagest.runtime import Runtime
from tests import faults
from tests.edge import Context
from tests.faults import MENDED, UNMENDED, Fault
from tests.integration.conftest import Team
from tests.integration.test_killed_job import environment

NAMES = [
    "table_access",
    "embedding_function",
    "semantic_accuracy",
    "crud_integrity",
    "orphaned_embeddings",
    "staleness",
    "canary_quality",
]
EVERY = dict(CHECKS)
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
        at = datetime.now(UTC).replace(microsecond=self._slots) if by_hand else SLOT + timedelta(minutes=self._slots)
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


@pytest.fixture
def system(team: Team) -> Iterator[System]:
    team.rows("delete from almagest.job_runs")
    team.rows("delete from almagest.hub_feed")
    team.settle()
    for number in range(4):
        team.remember(f"Release {number} went out in the morning, and nobody noticed.", title=f"Release {number}")
    yield System(team)
    faults.embedder_back(team.runtime)


ALL_CHECKS = dict(CHECKS)
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


@pytest.fixture
def only() -> Iterator[Callable[..., None]]:
    """Have these checks made and no others, since seven take seconds."""
    every = dict(CHECKS)

    def leave(*names: str) -> None:
        for name in every.keys() - set(names):
            CHECKS.pop(name, None)

    yield leave
    CHECKS.clear()
    CHECKS.update(every)


@pytest.mark.parametrize("fault", MENDED.values(), ids=MENDED.keys())
def test_a_fault_is_found_named_mended_and_shown(
    system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    # Of four memories among many, so that no sample may miss them.
    for sample in ("health.orphaned_embeddings.SAMPLE", "remediation.orphans.SAMPLE", "remediation.orphans.COMPARED"):
        monkeypatch.setattr(f"almagest.operations.{sample}", 20 if fault.kind != "vectors_that_differ" else 2000)
    only(fault.check)
    assert system.health() == {fault.check: "ok"}
    fault.put(system.runtime, system.database)
    assert system.health()[fault.check] == fault.status
    if fault.kind:
        assert system.found(fault.check)["figures"][fault.kind] > 0
    figures = system.run("remediation")
    assert figures["checks"][fault.check]["status"] == "ok", (figures, system.found(fault.check))
    tried = system.database.rows("select state, attempt from almagest.remediations where check_name = %s", fault.check)
    assert ("mended", 1) in tried
    assert system.entries() == []
    assert system.health() == {fault.check: "ok"}


def test_faults_together_are_mended_in_one_run(system: System) -> None:
    assert system.health() == OK
    together = ["embedder returns zeros", "vectors removed", "index dropped", "canary deleted", "item forgotten"]
    for name in together:
        MENDED[name].put(system.runtime, system.database)
    statuses = system.health()
    assert {statuses[MENDED[name].check] for name in together} == {"failed", "degraded"}
    figures = system.run("remediation")
    assert figures["left"] == 0, figures
    assert system.health() == OK


class TestChecksApart:
    """One that crashes or hangs is failed, and the others are made."""

    @pytest.fixture
    def behaves(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Probe], Found]], None]:
        def set_(look: Callable[[Probe], Found]) -> None:
            monkeypatch.setitem(CHECKS, "staleness", Check("staleness", "As the test says.", 1.0, look))

        monkeypatch.setattr(check, "GRACE_SECONDS", 0.5)
        return set_

    @pytest.fixture(autouse=True)
    def few(self, only: Callable[..., None]) -> None:
        only("table_access", "staleness", "canary_quality")

    def others(self, system: System) -> dict[str, str]:
        statuses = system.health()
        assert statuses.pop("staleness") == "failed"
        return statuses

    def test_one_that_raises(self, system: System, behaves: Any) -> None:
        def look(probe: Probe) -> Found:
            raise ValueError("what Anna wrote")

        behaves(look)
        assert self.others(system) == {"table_access": "ok", "canary_quality": "ok"}
        found = system.found("staleness")
        assert (found["sentence"], found["measured"]) == (
            "It broke off: an error that nobody expected (ValueError).",
            None,
        )
        assert "Anna" not in str(found)

    def test_one_that_waits_for_the_database(self, system: System, behaves: Any) -> None:
        def look(probe: Probe) -> Found:
            probe.connection.execute("select pg_sleep(60)")
            raise AssertionError

        behaves(look)
        assert self.others(system) == {"table_access": "ok", "canary_quality": "ok"}
        assert system.found("staleness")["sentence"] == "It took longer than 1 second, and was ended."
        asleep = "select count(*) from pg_stat_activity where state = 'active' and query like 'select pg_sleep%%'"
        assert system.database.rows(asleep) == [0]

    def test_one_that_lacks_a_table(self, system: System, behaves: Any) -> None:
        def look(probe: Probe) -> Found:
            probe.health._rows("select from almagest.what_anna_wrote")
            raise AssertionError

        behaves(look)
        self.others(system)
        assert system.found("staleness")["sentence"] == "It broke off: a table is missing."

    def test_one_whose_statement_takes_too_long(self, system: System, behaves: Any) -> None:
        def look(probe: Probe) -> Found:
            probe.health.limit(0.2)
            probe.health._rows("select pg_sleep(60)")
            raise AssertionError

        behaves(look)
        self.others(system)
        assert system.found("staleness")["sentence"] == "It broke off: a statement took too long."

    def test_one_that_hangs_keeps_no_process_from_ending(self, system: System) -> None:
        program = (
            "import time\n"
            "from almagest.operations.health.check import Check, perform\n"
            "from almagest.runtime import Runtime\n"
            "from almagest.settings import Settings\n"
            "from almagest.operations.health import check\n"
            "check.GRACE_SECONDS = 0.1\n"
            "hangs = Check('hangs', 'Hangs.', 0.5, lambda probe: time.sleep(600))\n"
            "print(perform(hangs, Runtime.from_settings(Settings())).found.status)\n"
        )
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(system.team),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == "failed\n"
        assert time.monotonic() - started < 30

    def test_an_answer_of_the_request_path_is_waited_for_no_longer_than_the_check_may_take(
        self, system: System, behaves: Any
    ) -> None:
        seen: list[float] = []

        def look(probe: Probe) -> Found:
            seen.append(deadline.remaining(1000))
            return Found("ok", "So.")

        behaves(look)
        system.health()
        assert 0 < seen[0] <= 1


def test_an_open_door_is_told_by_its_name(system: System, only: Callable[..., None]) -> None:
    only("table_access")
    system.health()
    assert (system.found("table_access")["measured"], system.found("table_access")["threshold"]) == (0, 0)
    faults.as_superuser(
        system.database,
        "grant select on almagest.item_types to anon",
        "drop policy reader on almagest.pins",
        "alter table almagest.items no force row level security",
    )
    try:
        assert system.health() == {"table_access": "failed"}
        found = system.found("table_access")
        assert (found["measured"], found["threshold"], found["unit"]) == (3, 0, "faults")
        assert found["sentence"] == (
            "Without forced row level security: items; missing policies: reader of pins;"
            " open to anon: almagest.item_types."
        )
    finally:
        migrate(system.database.url, reapply=True)
    assert system.health() == {"table_access": "ok"}


def test_what_guards_is_told_where_it_says_something_else(system: System, only: Callable[..., None]) -> None:
    only("table_access")
    faults.as_superuser(
        system.database,
        "alter policy reader on almagest.chunks using (true)",
        "drop function api.list_hub(jsonb, jsonb)",
    )
    try:
        assert system.health() == {"table_access": "failed"}
        assert system.found("table_access")["sentence"] == (
            "Missing functions: api.list_hub(jsonb,jsonb); changed policies: reader of chunks."
        )
    finally:
        migrate(system.database.url, reapply=True)
    assert system.health() == {"table_access": "ok"}


def test_sentences_tell_one_from_several(system: System, only: Callable[..., None]) -> None:
    only("orphaned_embeddings", "canary_quality")
    system.health()
    faults.index_dropped(system.runtime, system.database)
    system.database.rows("update almagest.items set state = 'archived' where source_ref like 'health:canaries:%%:01'")
    system.database.rows("select engine.refresh_visibility(i) from almagest.items as i where i.state = 'archived'")
    system.health()
    assert "1 missing index." in system.found("orphaned_embeddings")["sentence"]
    assert system.found("canary_quality")["sentence"] == "Canaries: 1 of 3 is archived."
    faults.index_of_partitions_dropped(system.runtime, system.database)
    system.database.rows("delete from almagest.items where source_ref like 'health:canaries:%%' and state = 'active'")
    system.health()
    assert "2 missing indexes." in system.found("orphaned_embeddings")["sentence"]
    assert sorted(system.found("canary_quality")["figures"]["missing"].items()) == [("archived", 1), ("gone", 2)]
    assert system.run("remediation")["left"] == 0


class TestRequestPath:
    def test_postgrest_down(self, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = system.runtime.settings.model_copy(update={"supabase_url": "http://127.0.0.1:9"})
        runtime = Runtime.from_settings(settings)
        monkeypatch.setattr(system, "runtime", runtime)
        statuses = system.health()
        wrong = {"table_access", "semantic_accuracy", "crud_integrity", "canary_quality"}
        assert {name for name, status in statuses.items() if status == "failed"} == wrong
        assert system.found("table_access")["sentence"] == ("The request path does not answer (database_unavailable).")
        assert system.found("crud_integrity")["figures"]["failed_at"] == "write"
        system.run("remediation")
        assert [entry[:2] for entry in system.entries()] == [(f"health.{name}", "critical") for name in sorted(wrong)]
        runtime.rpc.close()
        monkeypatch.undo()
        # It is up again: the next health run closes all of them.
        assert system.health() == OK
        assert system.entries() == []


@pytest.mark.parametrize(
    ("fault", "back"),
    [
        (UNMENDED["table gone"], lambda system: faults.table_back(system.database)),
        (UNMENDED["row security off"], lambda system: faults.row_security_on(system.database)),
    ],
)
def test_what_a_person_has_to_mend(
    system: System, only: Callable[..., None], fault: Fault, back: Callable[[System], None]
) -> None:
    only(fault.check)
    fault.put(system.runtime, system.database)
    try:
        assert system.health() == {fault.check: fault.status}
        looked_at = system.run("remediation")["checks"]["table_access"]
        assert (looked_at["status"], looked_at["actions"]) == ("failed", {"look_again": "unchanged"})
        [(key, severity, tries)] = system.entries()
        assert (key, severity, tries) == ("health.table_access", "critical", 1)
    finally:
        back(system)
    assert system.health() == {"table_access": "ok"}
    assert system.entries() == []


def test_a_job_that_does_not_succeed_is_told(system: System, only: Callable[..., None]) -> None:
    only("staleness")
    system.run("retention")
    assert system.health() == {"staleness": "ok"}
    system.database.rows("update almagest.migrations set applied_at = applied_at - interval '3 days'")
    late = "update almagest.job_runs set finished_at = now() - make_interval(hours => %s) where job = 'retention'"
    try:
        for job in ("index_sweep", "remediation"):
            system.run(job)
        system.database.rows(late, 47)
        assert system.health() == {"staleness": "ok"}
        system.database.rows(late, 49)
        assert system.health() == {"staleness": "degraded"}
        assert system.found("staleness")["sentence"] == "The job retention has not succeeded for 49 hours."
        assert system.found("staleness")["figures"]["late"] == ["job.retention"]
        figures = system.run("remediation")
        assert figures["checks"]["staleness"]["actions"] == {"look_again": "unchanged"}
        [entry] = system.database.rows("select to_jsonb(f) from almagest.hub_feed as f")
        assert [(each["what"], each["outcome"]) for each in entry["tried"]] == [("Looked again", "unchanged")]
        system.run("retention")
        assert system.health() == {"staleness": "ok"}
        assert system.entries() == []

        # A month without its partition is mended.
        for table in ("retrievals", "activations"):
            for [partition] in system.database.rows(
                "select array[c.relname] from pg_inherits as h join pg_class as c on c.oid = h.inhrelid"
                " where h.inhparent = %s::regclass and c.relname !~ 'rest'",
                f"almagest.{table}",
            ):
                system.database.rows(f"drop table almagest.{partition}")
        assert system.health() == {"staleness": "degraded"}
        assert system.run("remediation")["checks"]["staleness"] == {
            "status": "ok", "measured": 0, "actions": {"add_partitions": "mended"},
        }  # fmt: skip
    finally:
        system.database.rows("update almagest.migrations set applied_at = applied_at + interval '3 days'")


def test_the_last_of_each_check_is_what_the_dashboard_shows(system: System, only: Callable[..., None]) -> None:
    """Remediation makes a check again: `--last` shows that one, and of the others the one before."""
    only("orphaned_embeddings", "staleness")
    faults.vectors_removed(system.runtime, system.database)
    assert system.health()["orphaned_embeddings"] == "degraded"
    system.run("remediation")
    with connect(system.runtime.settings, autocommit=True) as connection:
        report = _report(Health(connection), None)
        assert report["status"] == "ok"
        shown = system.database.rows("select check_name, status, run_id from dashboard.latest_health order by 1")
        assert [
            (each["name"], each["status"], each["run"])
            for each in sorted(report["checks"], key=lambda each: each["name"])
        ] == shown
        assert len({run for _, _, run in shown}) == 2
        assert _report(Health(connection), report["run"])["status"] == "degraded"


class TestRemediationItself:
    """Nobody else tells of it: health does."""

    OVER = "update almagest.migrations set applied_at = applied_at - interval '3 days'"
    BACK = "update almagest.migrations set applied_at = applied_at + interval '3 days'"

    def test_where_it_has_not_succeeded_for_two_intervals_health_tells_so(
        self, system: System, only: Callable[..., None]
    ) -> None:
        only("table_access")
        system.health()
        assert system.entries() == []  # a new installation has had no time for it yet
        system.database.rows(self.OVER)
        try:
            system.health()
            assert system.entries() == [("health.remediation", "critical", 0)]
            system.run("remediation")
            system.health()
            assert system.entries() == []
            late = (
                "update almagest.job_runs set finished_at = now() - make_interval(hours => %s)"
                " where job = 'remediation'"
            )
            system.database.rows(late, 23)
            system.health()
            assert system.entries() == []
            system.database.rows(late, 25)
            system.health()
            [entry] = system.database.rows("select to_jsonb(f) from almagest.hub_feed as f where closed_at is null")
            assert entry["found"] == "Remediation has not succeeded for 25 hours."
        finally:
            system.database.rows(self.BACK)

    def test_a_lease_that_no_worker_takes_keeps_it_away_no_longer(
        self, system: System, only: Callable[..., None]
    ) -> None:
        only("orphaned_embeddings")
        system.database.rows(
            "insert into almagest.job_runs (job, scheduled_for, state, worker, lease_expires_at)"
            " values ('remediation', '2026-01-01', 'running', 'forged', '2099-01-01')"
        )
        system.database.rows(
            "update almagest.items set index_status = 'indexing', lease_owner = 'forged',"
            " lease_expires_at = '2099-01-01'"
            " where id = (select id from almagest.items where index_status = 'search_ready' order by id limit 1)"
        )
        assert system.health() == {"orphaned_embeddings": "degraded"}
        assert system.found("orphaned_embeddings")["figures"]["leases_over"] == 2
        assert system.run("remediation")["mended"] == 1
        assert system.health() == {"orphaned_embeddings": "ok"}


class TestWhatStaysBroken:
    """One entry of the Hub, tried three times and no more, until it passes or a person asks."""

    @pytest.fixture
    def gone(self, system: System, only: Callable[..., None]) -> Iterator[System]:
        only("embedding_function", "orphaned_embeddings")
        faults.embedder_gone(system.runtime, system.database)
        yield system
        faults.embedder_back(system.runtime)

    def entry(self, system: System) -> dict[str, Any]:
        [row] = system.database.rows(
            "select to_jsonb(f) from almagest.hub_feed as f where key = 'health.embedding_function'"
        )
        entry: dict[str, Any] = row
        return entry

    def attempts(self, system: System) -> list[Any]:
        return system.database.rows(
            "select action, attempt, state, error from almagest.remediations"
            " where check_name = 'embedding_function' order by id"
        )

    def test_it_is_told_once_and_given_up_after_three_tries(self, gone: System) -> None:
        system = gone
        for attempt in range(1, 4):
            assert system.health()["embedding_function"] == "failed"
            figures = system.run("remediation")
            assert figures["checks"]["embedding_function"]["actions"] == {"reload_model": "failed"}
            entry = self.entry(system)
            assert (entry["tries"], entry["severity"], entry["closed_at"]) == (attempt, "critical", None)
            assert entry["found"] == "Texts cannot be embedded (model_missing)."
            assert [(each["what"], each["outcome"]) for each in entry["tried"]] == [
                ("Loaded the embedding model again", "failed")
            ] * attempt
            assert ("three times" in entry["to_do"]) == (attempt == 3)
        failed = "EmbeddingUnavailable model_missing"
        assert self.attempts(system) == [("reload_model", n, "failed", failed) for n in (1, 2, 3)]

        system.health()
        figures = system.run("remediation")
        assert figures["checks"]["embedding_function"] == {
            "status": "failed",
            "measured": None,
            "actions": {"none": "left"},
        }
        assert self.attempts(system)[3:] == [("none", 4, "left", None)]
        assert self.entry(system)["tries"] == 3

        # A person asks, and what was tried already counts as untried for that.
        figures = system.run("remediation", by_hand=True)
        assert figures["checks"]["embedding_function"]["actions"] == {"reload_model": "failed"}
        assert self.entry(system)["tries"] == 4

        faults.embedder_back(system.runtime)
        assert system.health()["embedding_function"] == "ok"
        assert self.entry(system)["closed_at"] is not None

        # Broken anew, it is tried anew, and a new entry is opened.
        faults.embedder_gone(system.runtime, system.database)
        system.health()
        figures = system.run("remediation")
        assert figures["checks"]["embedding_function"]["actions"] == {"reload_model": "failed"}
        assert self.attempts(system)[-1][:2] == ("reload_model", 1)
        assert ("health.embedding_function", "critical", 1) in system.entries()

    def test_what_is_new_is_mended_and_told_though_the_check_was_given_up(
        self, system: System, only: Callable[..., None]
    ) -> None:
        only("orphaned_embeddings")
        for put in (
            "drop index almagest.items_recent",
            "create index items_recent on almagest.items (org_id, updated_at)",
        ):
            system.database.rows(put)
        try:
            for _ in range(4):
                assert system.health() == {"orphaned_embeddings": "degraded"}
                figures = system.run("remediation")
            assert figures["checks"]["orphaned_embeddings"]["actions"] == {"none": "left"}
            [before] = self.hub(system)
            assert (before["severity"], before["tries"], before["figures"]["kinds"]) == (
                "warning", 3, ["indexes_changed"],
            )  # fmt: skip
            system.database.rows(
                "insert into almagest.hub_marks (entry_id, user_id, dismissed_at)"
                " select id, gen_random_uuid(), now() from almagest.hub_feed"
            )

            # The same is told as it was, and stays dismissed.
            system.health()
            system.run("remediation")
            assert self.hub(system) == [before]
            assert system.database.rows("select count(*) from almagest.hub_marks") == [1]

            faults.vectors_removed(system.runtime, system.database)
            faults.index_dropped(system.runtime, system.database)
            assert system.health() == {"orphaned_embeddings": "failed"}
            figures = system.run("remediation")
            assert figures["checks"]["orphaned_embeddings"] == {
                "status": "degraded",
                "measured": 1,
                "actions": {"index_again": "mended", "rebuild_indexes": "mended"},
            }
            [entry] = self.hub(system)
            assert entry["found"] == "1 index other than it was made."

            # What nothing was left to try for is told when it becomes worse, and comes back to who dismissed it.
            system.database.rows("drop index almagest.items_type")
            system.database.rows("create index items_type on almagest.items (type)")
            system.health()
            assert system.run("remediation")["checks"]["orphaned_embeddings"]["actions"] == {"none": "left"}
            [worse] = self.hub(system)
            assert (worse["found"], worse["tries"]) == ("2 indexes other than they were made.", entry["tries"])
        finally:
            for name in ("items_recent", "items_type"):
                [definition] = system.database.rows(
                    "select replace(definition, '@extschema:vector@', 'extensions')"
                    " from engine.expected_indexes() where name = %s",
                    name,
                )
                system.database.rows(f"drop index almagest.{name}")
                system.database.rows(definition)
        assert system.health() == {"orphaned_embeddings": "ok"}
        assert system.entries() == []

    def test_what_waits_for_other_reasons_is_no_matter_of_orphans(
        self, system: System, only: Callable[..., None]
    ) -> None:
        only("orphaned_embeddings")
        waiting = (
            "update almagest.items set index_status = %s, index_attempts = 1, index_after = now() + interval '1 hour'"
            " where id = (select id from almagest.items order by id limit 1)"
        )
        system.database.rows(waiting, "text_ready")
        system.database.rows(
            "insert into almagest.job_runs (job, scheduled_for, state, worker, lease_expires_at)"
            " values ('sweep', now(), 'running', 'dead', now() - interval '1 hour')"
        )
        assert system.health() == {"orphaned_embeddings": "degraded"}
        figures = system.run("remediation")
        assert figures["checks"]["orphaned_embeddings"]["actions"] == {"release_leases": "mended"}
        assert system.database.rows(
            "select action, state from almagest.remediations where check_name = 'orphaned_embeddings'"
        ) == [("release_leases", "mended")]
        system.database.rows(waiting, "search_ready")

    def test_what_was_begun_and_is_not_done_is_left_to_the_next_run(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("orphaned_embeddings")
        faults.vectors_removed(system.runtime, system.database)
        system.health()
        monkeypatch.setattr("almagest.operations.remediation.orphans.index_pending", lambda *_: {"indexed": 0})
        figures = system.run("remediation")
        assert figures["checks"]["orphaned_embeddings"]["actions"] == {"index_again": "left"}
        [done] = system.database.rows("select after -> 'done' from almagest.remediations where action = 'index_again'")
        assert done["waiting"] == done["chunks_without_vectors"] > 0

    def test_a_dismissed_entry_comes_back_where_it_is_of_another_kind(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("staleness")
        late = ["job.retention"]
        monkeypatch.setitem(
            CHECKS,
            "staleness",
            Check("staleness", "", 30, lambda _: Found("degraded", "Late.", 1, 0, "late", {"late": list(late)})),
        )
        system.run("retention")
        for _ in range(4):
            system.health()
            system.run("remediation")
        assert system.entries() == [("health.staleness", "warning", 3)]
        system.database.rows(
            "insert into almagest.hub_marks (entry_id, user_id, dismissed_at)"
            " select id, gen_random_uuid(), now() from almagest.hub_feed"
        )
        late.append("job.health")
        system.health()
        assert system.run("remediation")["checks"]["staleness"]["actions"] == {"none": "left"}
        assert system.entries() == [("health.staleness", "warning", 3)]
        assert self.hub(system)[0]["figures"]["kinds"] == ["job.health", "job.retention"]
        assert system.database.rows("select count(*) from almagest.hub_marks") == [0]

    def test_a_machine_besides_neither_closes_what_is_broken_here_nor_has_its_own_faults_mended_here(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("embedding_function")
        here = system.runtime.settings

        def on(stack: str) -> None:
            monkeypatch.setattr(system.runtime, "settings", here.model_copy(update={"stack": stack}))

        # Deployed, it is broken; on a laptop it is not.
        on("deployed")
        faults.embedder_gone(system.runtime, system.database)
        system.health()
        system.run("remediation")
        assert system.entries() == [("health.embedding_function", "critical", 1)]
        on("local")
        faults.embedder_back(system.runtime)
        assert system.run("health", by_hand=True)["status"] == "ok"
        assert system.entries() == [("health.embedding_function", "critical", 1)]
        on("deployed")
        faults.embedder_gone(system.runtime, system.database)
        system.health()
        system.run("remediation")
        assert system.entries() == [("health.embedding_function", "critical", 2)]  # the tries go on
        assert self.attempts(system)[-1][:2] == ("reload_model", 2)

        # By hand it is tried from the laptop, too, and what is well there does not close it.
        on("local")
        faults.embedder_back(system.runtime)
        assert system.run("remediation", by_hand=True)["checks"]["embedding_function"]["status"] == "ok"
        assert system.entries() == [("health.embedding_function", "critical", 2)]
        on("deployed")
        faults.embedder_back(system.runtime)
        assert system.health() == {"embedding_function": "ok"}
        assert system.entries() == []

        # What is broken on the laptop is answered by nobody but the laptop, and told in no Hub.
        on("local")
        faults.embedder_gone(system.runtime, system.database)
        assert system.run("health", by_hand=True)["status"] == "failed"
        on("deployed")
        faults.embedder_back(system.runtime)
        assert system.run("remediation")["health_run"] is None
        on("local")
        faults.embedder_gone(system.runtime, system.database)
        answered = system.run("remediation", by_hand=True)
        assert answered["checks"]["embedding_function"]["actions"] == {"reload_model": "failed"}
        assert system.entries() == []

    def hub(self, system: System) -> list[dict[str, Any]]:
        return system.database.rows("select to_jsonb(f) from almagest.hub_feed as f where closed_at is null")

    def test_without_an_embedder_nothing_is_marked_that_could_not_be_indexed(self, gone: System) -> None:
        system = gone
        faults.vectors_removed(system.runtime, system.database)
        assert system.health()["orphaned_embeddings"] == "degraded"
        figures = system.run("remediation")
        assert figures["checks"]["orphaned_embeddings"]["actions"] == {"index_again": "failed"}
        assert system.database.rows("select count(*) from almagest.items where index_status <> 'search_ready'") == [0]

    def test_a_warning_is_told_where_it_is_degraded(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("embedding_function")
        monkeypatch.setattr("almagest.operations.health.embedding_function.LATENCY_MS", 0.0)
        assert system.health()["embedding_function"] == "degraded"
        system.run("remediation")
        assert system.entries() == [("health.embedding_function", "warning", 1)]
        monkeypatch.setattr("almagest.operations.health.embedding_function.LATENCY_MS", 5000.0)
        assert system.health() == {"embedding_function": "ok"}
        assert system.entries() == []


class TestRunsAreTakenUp:
    def test_a_backlog_that_cannot_be_counted_takes_nothing_else_down(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("canary_quality")
        system.health()
        faults.canary_deleted(system.runtime, system.database)
        slow = "select items, seconds from engine.backlog(), pg_sleep(60)"
        monkeypatch.setattr("almagest.operations.health.run.BACKLOG_SECONDS", 0.2)
        monkeypatch.setattr(Health, "backlog", lambda self: self._rows(slow))
        figures = system.run("health")
        assert (figures["status"], figures["index_backlog"], figures["index_backlog_seconds"]) == ("failed", None, None)
        monkeypatch.undo()
        assert system.run("remediation")["mended"] == 1

    def test_a_check_that_was_made_is_not_made_again(self, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
        """R10: a run that broke off in the middle goes on behind the checks that it had stored."""
        made: list[str] = []

        def perform_(one: Check, runtime: Runtime) -> check.Result:
            made.append(one.name)
            if made.count("crud_integrity") == 1 and one.name == "crud_integrity":
                raise RuntimeError("killed here")
            return perform(one, runtime)

        monkeypatch.setattr("almagest.operations.health.run.perform", perform_)
        assert system.attempt("health").state == "failed"
        assert made == NAMES[:4]
        outcome = system.attempt("health", again=True)
        assert (outcome.state, outcome.attempt) == ("succeeded", 2)
        assert made == [*NAMES[:4], *NAMES[3:]]
        assert list(outcome.figures["checks"]) == NAMES
        assert system.attempt("health", again=True).state == "done"
        assert system.database.rows("select count(*) from almagest.health_runs") == [1]

    def test_a_remediation_that_broke_off_goes_on_with_what_it_had_claimed(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("canary_quality")
        assert system.health() == {"canary_quality": "ok"}
        faults.canary_deleted(system.runtime, system.database)
        system.health()
        real = remediation.record
        broken: list[str] = []

        def record(run: Any, result: check.Result) -> dict[str, Any]:
            if not broken:
                broken.append(result.name)
                raise RuntimeError("killed here")
            return real(run, result)

        monkeypatch.setattr(remediation, "record", record)
        assert system.attempt("remediation").state == "failed"
        outcome = system.attempt("remediation", again=True)
        assert (outcome.state, outcome.figures["mended"]) == ("succeeded", 1)
        assert system.health() == {"canary_quality": "ok"}

    def test_two_at_once_are_one(self, system: System, only: Callable[..., None]) -> None:
        only("orphaned_embeddings")
        faults.vectors_removed(system.runtime, system.database)
        system.health()
        with ThreadPoolExecutor(3) as pool:
            outcomes = list(pool.map(lambda _: system.attempt("remediation"), range(3)))
        done = [outcome for outcome in outcomes if outcome.state == "succeeded"]
        answered = [outcome for outcome in done if outcome.figures["health_run"]]
        assert len(answered) == 1
        assert {outcome.state for outcome in outcomes} <= {"succeeded", "skipped"}
        assert system.health() == {"orphaned_embeddings": "ok"}


def test_what_a_planting_stored_after_it_was_given_up_is_taken_out(system: System, only: Callable[..., None]) -> None:
    """A request that no answer came to is done later, when PostgREST goes on, and shadows what is noted."""
    only("semantic_accuracy", "canary_quality")
    assert set(system.health().values()) == {"ok"}
    memories = [
        {"content": pair.memory, "type": "note", "source_ref": f"health:{name}:late:{number:02}"}
        for name, pairs in ((semantic_accuracy.NAME, PAIRS), (canary_quality.NAME, CANARIES))
        for number, pair in enumerate(pairs)
    ]
    with connect(system.runtime.settings, autocommit=True) as connection:
        caller = Probe(system.runtime, connection).caller
    write_memories(system.runtime, caller, BatchWrite(memories=memories), new_call())
    late = "select count(*) from almagest.items where source_ref like 'health:%:late:%'"
    assert system.database.rows(late) == [len(memories)]
    assert set(system.health().values()) == {"ok"}
    left = "select source_ref, state, index_status from almagest.items where source_ref like 'health:%:late:%'"
    assert system.database.rows(left) == []


class TestOwnItems:
    @pytest.fixture(autouse=True)
    def few(self, only: Callable[..., None]) -> None:
        only("embedding_function", "semantic_accuracy", "crud_integrity")

    @pytest.mark.parametrize(
        "settings",
        [
            "'[]'",
            "'5'",
            'settings || \'{"canaries": 5, "paraphrases": []}\'',
            'settings || \'{"canaries": {"version": 1}, "paraphrases": {}}\'',
            "jsonb_set(settings, '{canaries,similarities}', '[0.5]')",
            "jsonb_set(settings, '{canaries,similarities,0}', '\"near\"')",
            "jsonb_set(settings, '{canaries,planting}', 'null')",
        ],
    )
    def test_notes_of_another_shape_are_none(self, system: System, settings: str) -> None:
        """What is noted lies in the org's settings, which anybody with the database may have written."""
        CHECKS.setdefault("canary_quality", EVERY["canary_quality"])
        assert set(system.health().values()) == {"ok"}
        system.database.rows(f"update almagest.orgs set settings = {settings} where is_system")
        assert set(system.health().values()) == {"ok"}
        assert system.database.rows(
            "select settings #>> '{canaries,planting}' is not null and jsonb_array_length(settings #>"
            " '{canaries,similarities}') = 3 from almagest.orgs where is_system"
        ) == [True]

    def test_paraphrases_are_planted_again_when_some_are_missing_or_the_version_is_another(
        self, system: System, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def planted() -> list[Any]:
            return system.database.rows(
                "select id::text from almagest.items where source_ref like 'health:paraphrases:%%' order by source_ref"
            )

        assert system.health()["semantic_accuracy"] == "ok"
        first = planted()
        assert len(first) == 20
        system.health()
        assert planted() == first
        faults.as_superuser(system.database, f"update almagest.items set state = 'archived' where id = '{first[4]}'")
        assert system.health()["semantic_accuracy"] == "ok"
        second = planted()
        assert (len(second), set(first) & set(second)) == (20, set())
        monkeypatch.setattr("almagest.operations.health.semantic_accuracy.VERSION", 2)
        assert system.health()["semantic_accuracy"] == "ok"
        assert set(planted()) & set(second) == set()

    def test_words_alone_do_not_answer_the_paraphrases(self, system: System) -> None:
        """Else the check would not notice that meaning is lost."""
        system.health()
        faults.embedder_gone(system.runtime, system.database)
        probe_runtime = system.runtime
        with connect(probe_runtime.settings, autocommit=True) as connection:
            planted = semantic_accuracy.paraphrases(Probe(probe_runtime, connection))
            answers = [planted.ask(number, 1) for number in range(20)]
            items = planted.items()
        firsts = [answer.results[0].id if answer.results else None for answer in answers]
        found = sum(first == item for first, item in zip(firsts, items, strict=True))
        assert found / 20 < semantic_accuracy.FAILED_BELOW

    def test_what_a_killed_check_left_is_cleared(self, system: System) -> None:
        with connect(system.runtime.settings, autocommit=True) as connection:
            probing = crud_integrity._Probing(Probe(system.runtime, connection))
            probing.write()
        left = "select count(*) from almagest.items where source_ref like 'health:crud:%%'"
        assert system.health()["crud_integrity"] == "ok"
        assert system.database.rows(left) == [1]  # it may be on its way
        system.database.rows(
            "update almagest.items set created_at = created_at - interval '11 minutes' where id = %s", probing.id
        )
        assert system.health()["crud_integrity"] == "ok"
        assert system.database.rows(left) == [0]

    @pytest.mark.parametrize("version", [1, 2])
    def test_two_at_once_do_not_disturb_each_other(
        self, system: System, monkeypatch: pytest.MonkeyPatch, version: int
    ) -> None:
        """A check of remediation, beside one of health; each time the sets are planted anew."""
        monkeypatch.setattr("almagest.operations.health.semantic_accuracy.VERSION", version)
        monkeypatch.setattr("almagest.operations.health.canary_quality.VERSION", version)
        names = ("crud_integrity", "semantic_accuracy", "canary_quality")
        for time_ in range(3):
            if time_:  # else they are of another version, or never planted
                system.database.rows("update almagest.orgs set settings = '{}' where is_system")
            with ThreadPoolExecutor(6) as pool:
                results = list(pool.map(lambda name: perform(ALL_CHECKS[name], system.runtime), names * 2))
            assert [(each.name, each.found.status, each.found.sentence) for each in results
                    if each.found.status != "ok"] == []  # fmt: skip
            assert system.database.rows(
                "select count(*) from almagest.items where source_ref like 'health:%%' union all"
                " select count(*) from almagest.items as i join almagest.orgs as o on o.id = i.org_id and o.is_system"
                " where i.state = 'erased'"
            ) == [23, 0]

    def test_a_planting_that_is_killed_holds_up_nobody(self, system: System) -> None:
        with connect(system.runtime.settings, autocommit=True) as killed:
            holds = semantic_accuracy.paraphrases(Probe(system.runtime, killed))
            with suppress(psycopg.OperationalError), holds._locked(alone=True):
                system.database.rows(f"select pg_terminate_backend({killed.info.backend_pid})")
                assert system.health()["semantic_accuracy"] == "ok"

    @pytest.mark.parametrize(
        ("broken", "at"),
        [
            ("erase_item", "erase"),
            ("archive_item", "archive"),
            ("update_item", "edit"),
        ],
    )
    def test_a_step_that_does_nothing_is_noticed_and_cleaned_up(
        self, system: System, monkeypatch: pytest.MonkeyPatch, broken: str, at: str
    ) -> None:
        monkeypatch.setattr(crud_integrity, broken, lambda *_: None)
        assert system.health()["crud_integrity"] == "failed"
        assert system.found("crud_integrity")["figures"]["failed_at"] == at
        assert system.database.rows("select count(*) from almagest.items where source_ref like 'health:crud:%%'") == [0]

    def test_another_model_is_noticed_by_its_cosines(self, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
        real = system.runtime.embedder

        class Turned(type(real)):  # type: ignore[misc]  # its class is known when it runs
            """Vectors of unit length in which something else is near."""

            def __init__(self) -> None:
                pass

            model = real.model

            def embed_query(self, text: str) -> list[float]:
                return list(reversed(real.embed_query(text)))

            def embed_passages(self, texts: Any) -> list[list[float]]:
                return [[abs(value) for value in vector] for vector in real.embed_passages(texts)]

        monkeypatch.setitem(system.runtime.__dict__, "embedder", Turned())
        assert system.health()["embedding_function"] == "failed"


def test_nothing_that_people_wrote_is_in_what_health_keeps(system: System) -> None:
    system.team.remember("The password of the vault is otterly-secret.", title="Otter vault")
    for fault in (faults.vectors_removed, faults.chunks_without_item, faults.canary_deleted):
        fault(system.runtime, system.database)
    system.health()
    system.run("remediation")
    for table in ("health_checks", "remediations", "hub_feed", "job_runs", "job_steps"):
        kept = system.database.rows(f"select t::text from almagest.{table} as t")
        assert kept or table == "hub_feed"
        for word in ("otter", "vault", "olga", system.team.slug, "warned miners"):
            assert word not in " ".join(kept).lower(), table


def test_the_jobs_function_tells_the_metrics_of_what_was_found(
    system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only("table_access", "canary_quality")
    system.health()
    faults.canary_deleted(system.runtime, system.database)
    monkeypatch.setattr(jobs, "container", lambda: system.runtime)
    capsys.readouterr()
    for event in ("health", "remediation"):
        jobs.handler({"job": event, "scheduled_for": "2027-06-01T00:00:00Z"}, Context(600_000))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    told = {}
    for line in lines:
        [directive] = line["_aws"]["CloudWatchMetrics"]
        where = tuple(line[name] for name in directive["Dimensions"][0] if name != "stack")
        told |= {(metric["Name"], *where): line[metric["Name"]][0] for metric in directive["Metrics"]}
        assert line["stack"] == "local"
    durations = {key: told.pop(key) for key in list(told) if key[0] == "CheckDuration"}
    assert durations.keys() == {("CheckDuration", "table_access"), ("CheckDuration", "canary_quality")}
    assert min(durations.values()) > 0
    assert told == {
        ("JobFailures", "health"): 0,
        ("JobFailures", "remediation"): 0,
        ("FailedChecks",): 1,
        ("DegradedChecks",): 0,
        ("CheckStatus", "table_access"): 0,
        ("CheckStatus", "canary_quality"): 2,
        ("IndexBacklog",): 0,
        ("IndexBacklogSeconds",): 0,
        ("OpenHubEntries",): 0,
    }


class TestOneBreaksOff:
    """Fault 4: what is broken in one place is in the way of nothing else."""

    def test_what_remediation_writes_to_may_lack_its_own_indexes(
        self, system: System, only: Callable[..., None]
    ) -> None:
        only("table_access", "orphaned_embeddings")
        keys = (
            ("remediations", "remediations_run_id_check_name_action_key", "unique (run_id, check_name, action)"),
            ("health_checks", "health_checks_pkey", "primary key (run_id, name)"),
            ("health_runs", "health_runs_pkey", "primary key (run_id)"),
        )
        system.database.rows("drop index almagest.hub_feed_open")
        for table, name, _ in keys:
            system.database.rows(f"alter table almagest.{table} drop constraint {name}")
        try:
            assert system.health() == {"table_access": "failed", "orphaned_embeddings": "failed"}
            figures = system.run("remediation")
            assert figures["checks"]["orphaned_embeddings"]["actions"] == {"rebuild_indexes": "mended"}
            assert [key for key, _, _ in system.entries()] == ["health.table_access"]
        finally:
            for table, name, key in keys:
                system.database.rows(f"alter table almagest.{table} add constraint {name} {key}")
        assert system.health() == {"table_access": "ok", "orphaned_embeddings": "ok"}

    def test_an_answer_that_raises_fails_the_run_after_the_others(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("embedding_function", "orphaned_embeddings")
        system.health()
        faults.embedder_returns_zeros(system.runtime, system.database)
        faults.lease_of_a_dead_worker(system.runtime, system.database)
        health_run = system.run("health", by_hand=True) and system.database.rows(
            "select max(run_id) from almagest.health_runs"
        )
        real = Remedy.record

        def record(self: Remedy, done: dict[str, Any]) -> None:
            if done["check_name"] == "embedding_function":
                raise ZeroDivisionError
            real(self, done)

        monkeypatch.setattr(Remedy, "record", record)
        outcome = system.attempt("remediation")
        assert outcome.state == "failed"
        assert outcome.error is not None
        assert outcome.error.startswith("ZeroDivisionError")
        assert system.database.rows("select check_name, action, state from almagest.remediations") == [
            ("orphaned_embeddings", "release_leases", "mended")
        ]
        # It was not tried, so the next run takes it.
        monkeypatch.undo()
        figures = system.run("remediation")
        assert [figures["health_run"]] == health_run
        assert figures["left"] == 0


class TestMarkedAndNotIndexed:
    """Fault 7: what was marked stays an orphan until it has its vectors."""

    def test_a_run_that_was_killed_goes_on_with_what_it_had_marked(
        self, system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only("orphaned_embeddings")
        faults.vectors_removed(system.runtime, system.database)
        system.health()

        def killed(*_: object) -> dict[str, int]:
            raise KeyboardInterrupt

        monkeypatch.setattr("almagest.operations.remediation.orphans.index_pending", killed)
        with suppress(KeyboardInterrupt):
            system.attempt("remediation")
        monkeypatch.setattr("almagest.operations.remediation.orphans.index_pending", lambda *_: {"indexed": 0})
        outcome = system.attempt("remediation", again=True)
        assert (outcome.state, outcome.figures["mended"], outcome.figures["left"]) == ("succeeded", 0, 1)
        assert outcome.figures["checks"]["orphaned_embeddings"]["actions"] == {"index_again": "left"}

        # So it is in the health runs that follow, where new writes that wait are none of it.
        system.database.rows(
            "update almagest.items set index_error = null, index_status = 'text_ready', index_after = now()"
            " where id = (select id from almagest.items where index_status = 'text_ready' order by id limit 1)"
        )
        assert system.health() == {"orphaned_embeddings": "degraded"}
        waiting = system.database.rows("select count(*) from almagest.items where index_status = 'text_ready'")
        assert [system.found("orphaned_embeddings")["figures"]["items_to_index_again"] + 1] == waiting
        monkeypatch.undo()
        only("orphaned_embeddings")
        assert system.run("remediation")["mended"] == 1
        assert system.database.rows("select count(*) from almagest.items where index_error is not null") == [0]
        assert system.health() == {"orphaned_embeddings": "ok"}


class TestDuplicates:
    """Faults 5 and 6: a unique index that cannot be made is not tried, and told with what is in its way."""

    def test_an_index_waits_for_its_duplicates_to_go(self, system: System, only: Callable[..., None]) -> None:
        only("orphaned_embeddings")
        [org] = system.database.rows("select id from almagest.orgs where not is_system order by created_at limit 1")
        tried: list[str] = []
        system.database.rows("drop index almagest.members_email")
        system.database.rows(
            "insert into almagest.members (org_id, user_id, email, role)"
            " select org_id, gen_random_uuid(), upper(email), role from almagest.members where org_id = %s limit 1",
            org,
        )
        for _ in range(4):
            assert system.health() == {"orphaned_embeddings": "failed"}
            actions = system.run("remediation")["checks"]["orphaned_embeddings"]["actions"]
            tried += actions
        assert "rebuild_indexes" not in tried
        assert system.found("orphaned_embeddings")["sentence"] == (
            "1 missing index; 1 group of duplicates in the way of an index."
        )
        [to_do] = system.database.rows("select to_do from almagest.hub_feed where closed_at is null")
        assert to_do.startswith("Rows are there twice")
        assert "@" not in to_do
        system.database.rows("delete from almagest.members where org_id = %s and email = upper(email)", org)
        system.health()
        figures = system.run("remediation")
        assert figures["checks"]["orphaned_embeddings"]["actions"] == {"rebuild_indexes": "mended"}


def test_what_could_not_be_counted_is_not_nothing(
    system: System, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kind takes longer than it may, and is cancelled; all others are none."""
    count = Health.count_orphans

    def slowly(health: Health, kind: str, model: str | None) -> int:
        if kind == "leases_over":
            health._rows("select pg_sleep(60)")
        return count(health, kind, model)

    only("orphaned_embeddings")
    monkeypatch.setattr(Health, "count_orphans", slowly)
    monkeypatch.setattr("almagest.operations.health.orphaned_embeddings.KIND_SECONDS", 2.0)
    assert system.health() == {"orphaned_embeddings": "degraded"}
    found = system.found("orphaned_embeddings")
    assert found["measured"] is None
    assert found["sentence"] == "How many leases past their time there are could not be counted."
