"""The jobs function over a real database: what its events do, and what becomes of a run that fails or is killed."""

from typing import Any

import pytest

from almagest.handlers import jobs
from tests.edge import Context
from tests.integration.conftest import Team

SWEEP = {"job": "index_sweep", "scheduled_for": "2026-11-30T12:00:00Z"}
RETENTION = {"job": "retention", "scheduled_for": "2027-01-01T03:30:00Z"}


@pytest.fixture(autouse=True)
def own_container(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "container", lambda: team.runtime)
    team.rows("delete from almagest.job_runs")
    team.rows("update almagest.items set index_status = 'search_ready' where index_status <> 'search_ready'")


def invoke(event: dict[str, Any]) -> dict[str, Any]:
    return jobs.handler(event, Context(60_000))


def test_the_sweep_indexes_what_waits_and_a_second_delivery_does_nothing(team: Team) -> None:
    """R9"""
    written = team.remember("Indexed later.")
    team.rows("delete from almagest.embeddings where item_id = %s", written["id"])
    team.rows("update almagest.items set index_status = 'text_ready' where id = %s", written["id"])
    first = invoke(SWEEP)
    nothing = {"stale": 0, "failed": 0, "retokenised": 0, "counted": 0}
    assert (first["state"], first["figures"]) == ("succeeded", {"indexed": 1, **nothing})
    assert team.rows("select count(*) from almagest.embeddings where item_id = %s", written["id"]) == [1]
    second = invoke(SWEEP)
    assert (second["state"], second["run"]) == ("done", first["run"])
    assert team.rows("select state, attempts from almagest.job_runs") == [("succeeded", 1)]
    assert team.rows("select name from almagest.job_steps order by position") == ["index", "retokenise", "statistics"]


def test_the_daily_job(team: Team) -> None:
    figures = invoke(RETENTION)["figures"]
    assert (figures["added"] >= 2, figures["left"]) == (True, 0)
    again = invoke(RETENTION | {"scheduled_for": "2027-01-02T03:30:00Z"})["figures"]
    assert again == dict.fromkeys(figures, 0)
    assert team.ask("ann", "POST", "/v1/search", {"query": "anything"}).body["trace_id"]
