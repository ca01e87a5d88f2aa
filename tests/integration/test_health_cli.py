"""`almagest health` as a person and a program see it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from almagest.cli import main
from tests import faults
from tests.integration.conftest import Team

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(team: Team, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    settings = team.runtime.settings
    assert settings.supabase_key
    assert settings.database_url
    monkeypatch.setenv("SUPABASE_URL", str(settings.supabase_url))
    monkeypatch.setenv("SUPABASE_SECRET_KEY", settings.supabase_key.get_secret_value())
    monkeypatch.setenv("DATABASE_URL", settings.database_url.get_secret_value())
    monkeypatch.setenv("COLUMNS", "200")
    team.rows("delete from almagest.job_runs")
    team.settle()

    def run_(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return run_


def test_it_checks_shows_and_keeps(team: Team, run: Run) -> None:
    status, _, error = run("health", "--last")
    assert (status, error.splitlines()) == (
        1,
        ["Error (never_checked): The health checks have not been made yet: run `almagest health`."],
    )

    status, out, _ = run("health", "--json")
    report: dict[str, Any] = json.loads(out)
    assert (status, report["status"]) == (0, "ok"), report["checks"]
    assert len(report["checks"]) == 7
    assert set(report["checks"][0]) == {
        "name", "status", "measured", "threshold", "unit", "run", "sentence", "figures", "duration_ms", "checked_at",
    }  # fmt: skip

    faults.canary_deleted(team.runtime, team.database)
    status, out, _ = run("health", "--last", "--json")
    assert (status, json.loads(out)) == (0, report)
    status, out, error = run("health")
    assert status == 1
    [line] = [line for line in out.splitlines() if "canary_quality" in line]
    for word in ("failed", "2", "3", "canaries", "1 of 3 is gone"):
        assert word in line
    assert "Health is failed, as of " in error
    status, out, _ = run("health", "--last")
    assert (status, "1 of 3 is gone" in out) == (1, True)


def test_one_at_a_time(team: Team, run: Run) -> None:
    team.rows(
        "insert into almagest.job_runs (job, scheduled_for, state, worker, lease_expires_at)"
        " values ('health', now(), 'running', 'another', now() + interval '1 minute')"
    )
    status, out, error = run("health", "--json")
    assert (status, out) == (1, "")
    assert error.startswith("Error (job_running): ")
    [run_id] = team.rows("select id from almagest.job_runs where state = 'running'")
    assert f"in run {run_id}." in error
    assert "the run before" in error


def test_without_a_stack_it_says_so(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("SUPABASE_URL", "SUPABASE_SECRET_KEY", "DATABASE_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALMAGEST_DIR", str(tmp_path))
    for words in (("health",), ("health", "--last")):
        status, out, error = run(*words)
        assert (status, out) == (1, "")
        assert error.startswith("Error (no_stack): ")
        assert "Traceback" not in error


def test_a_database_that_is_down_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:nothing@127.0.0.1:9/none")
    for words in (("health",), ("health", "--last")):
        status, out, error = run(*words)
        assert (status, out, error.count("\n")) == (1, "", 1)
        assert error.startswith("Error (database_unavailable): ")


def test_the_org_of_the_checks_is_nobodys(run: Run) -> None:
    run("health")
    status, out, error = run("org", "create", "almagest-health", "--owner-email", "eve@example.org")
    assert (status, out, error.count("\n")) == (1, "", 1)
    assert error.startswith("Error (slug_reserved): ")
    _, out, _ = run("org", "list", "--json")
    assert "almagest-health" not in out
    status, _, error = run("export", "--org", "almagest-health")
    assert (status, error.startswith("Error (unknown_org): ")) == (1, True)
