"""The jobs function over a real database: what its events do, and what becomes of a run that fails or is killed."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC
from io import StringIO
from logging import StreamHandler
from typing import Any

import pytest
from apscheduler.triggers.interval import IntervalTrigger
from pydantic import SecretStr

from almagest.edge import observe
from almagest.handlers import jobs
from almagest.operations.index_sweep import COUNT_SECONDS
from almagest.operations.jobs.errors import OutOfTime
from almagest.operations.jobs.job import Job, Run
from almagest.operations.registry import JOBS
from almagest.problems import Problem
from almagest.runtime import Runtime
from infra.local import ROOT
from infra.local.scheduler import Scheduler
from infra.local.template import Function, read_template
from tests.edge import Context
from tests.integration.conftest import Team
from tests.unit.test_template import PARAMETERS

SWEEP = {"job": "index_sweep", "scheduled_for": "2026-11-30T12:00:00Z"}
RETENTION = {"job": "retention", "scheduled_for": "2027-01-01T03:30:00Z"}


@pytest.fixture(autouse=True)
def own_container(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function's container is over the team's database, in which nothing has run."""
    monkeypatch.setattr(jobs, "container", lambda: team.runtime)
    team.rows("delete from almagest.job_runs")
    team.settle()


@pytest.fixture
def read_log(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Lines that were logged."""
    handler = observe.logger.registered_handler
    assert isinstance(handler, StreamHandler)
    stream = StringIO()
    monkeypatch.setattr(handler, "stream", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def invoke(event: Any, milliseconds: int = 60_000) -> dict[str, Any]:
    return jobs.handler(event, Context(milliseconds))


def register(monkeypatch: pytest.MonkeyPatch, work: Callable[[Run], dict[str, Any]]) -> dict[str, str]:
    """Let there be one more job; an event of it."""
    monkeypatch.setitem(JOBS, "cleaning", Job("cleaning", "Cleans.", "rate(1 day)", 60, work))
    return {"job": "cleaning", "scheduled_for": "2026-11-30T12:00:00Z"}


def test_the_sweep_indexes_what_waits_and_a_second_delivery_does_nothing(team: Team) -> None:
    """R9"""
    written = team.remember("Indexed later.")
    team.rows("delete from almagest.embeddings where item_id = %s", written["id"])
    team.rows("update almagest.items set index_status = 'text_ready' where id = %s", written["id"])
    first = invoke(SWEEP)
    nothing = {
        "stale": 0,
        "failed": 0,
        "retokenised": 0,
        "counted": 0,
        "index_backlog": 0,
        "index_backlog_seconds": 0.0,
    }
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


def test_a_failure_is_raised_and_stored_and_logged_without_content(
    team: Team, monkeypatch: pytest.MonkeyPatch, read_log: Callable[[], list[dict[str, Any]]]
) -> None:
    """What Lambda's retry and the queue of failed runs see; P7"""
    broken = [True]

    def work(run: Run) -> dict[str, Any]:
        run.step("first", lambda _: {"number": 1})
        if broken:
            raise ValueError("what Ann had written")
        return {"number": 2}

    event = register(monkeypatch, work)
    with pytest.raises(jobs.JobFailed, match=r"^cleaning: ValueError, raised in test_jobs\.py, line \d+\.$") as caught:
        invoke(event)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    outcome, where = read_log()
    assert (outcome["level"], outcome["state"], outcome["job"]) == ("ERROR", "failed", "cleaning")
    assert where["errors"][0]["type"] == "builtins.ValueError"
    assert "Ann" not in str(read_log()) + str(team.rows("select row_to_json(r)::text from almagest.job_runs as r"))
    # Lambda delivers it again.
    broken.clear()
    again = invoke(event)
    assert (again["state"], again["attempt"], again["figures"]) == ("succeeded", 2, {"number": 2})
    assert read_log()[-1]["figures"] == {"number": 2}
    assert team.rows("select attempts from almagest.job_steps") == [1]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"job": "sweeping"}, "unknown_job"),
        ({"job": None}, "unknown_job"),
        ({"job": ["index_sweep"]}, "unknown_job"),
        ({}, "unknown_job"),
        ({"job": "SECRET" * 20_000}, "unknown_job"),
        ({"job": ["SECRET"] * 20_000}, "unknown_job"),
        ([SWEEP], "invalid_event"),
        ("index_sweep", "invalid_event"),
        (None, "invalid_event"),
        (7, "invalid_event"),
        (SWEEP | {"scheduled_for": "<aws.scheduler.scheduled-time>"}, "invalid_time"),
        (SWEEP | {"scheduled_for": "2026-11-30"}, "invalid_time"),
        (SWEEP | {"scheduled_for": 1796040000}, "invalid_time"),
        (SWEEP | {"scheduled_for": ""}, "invalid_time"),
    ],
)
def test_what_is_no_run_is_a_failure_that_says_so(
    team: Team, event: Any, code: str, read_log: Callable[[], list[dict[str, Any]]]
) -> None:
    with pytest.raises(Problem) as caught:
        invoke(event)
    assert caught.value.code == code
    [line] = read_log()
    assert (line["level"], line["code"], line["detail"]) == ("ERROR", code, caught.value.detail)
    assert len(str(caught.value)) < 200
    assert team.rows("select count(*) from almagest.job_runs") == [0]


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (lambda url: f"{url}?options=-cdefault_transaction_read_only%3Don", "ReadOnlySqlTransaction"),
        (lambda _: "postgresql://olga:otter@127.0.0.1:9/vault", "OperationalError"),
        (lambda url: url.rpartition("/")[0] + "/vault", "OperationalError"),
    ],
    ids=["read-only", "refused", "no such database"],
)
def test_what_goes_wrong_before_the_work_is_told_without_postgres_message(
    team: Team,
    monkeypatch: pytest.MonkeyPatch,
    read_log: Callable[[], list[dict[str, Any]]],
    url: Callable[[str], str],
    error: str,
) -> None:
    there = team.runtime.settings.database_url
    assert there is not None
    settings = team.runtime.settings.model_copy(update={"database_url": SecretStr(url(there.get_secret_value()))})
    monkeypatch.setattr(jobs, "container", lambda: Runtime.from_settings(settings))
    with pytest.raises(jobs.JobFailed, match=rf"^{error}[:,] .*raised in \w+\.py, line \d+\.$") as caught:
        invoke(SWEEP)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    [line] = read_log()
    assert line["level"] == "ERROR"
    for word in ("vault", "otter", "olga", "127.0.0.1", "read-only"):
        assert word not in str(line) + str(caught.value)
    assert team.rows("select count(*) from almagest.job_runs") == [0]


def test_by_hand_a_run_is_of_now(team: Team) -> None:
    assert [invoke({"job": "index_sweep"})["state"] for _ in range(2)] == ["succeeded"] * 2
    assert team.rows(
        "select count(*) from almagest.job_runs where abs(extract(epoch from scheduled_for - started_at)) < 5"
    ) == [2]


def test_a_run_ends_before_its_function(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of Lambda's time is less than the job's own, and its end is stored within it."""

    def work(run: Run) -> dict[str, Any]:
        return run.step("sleep", lambda _: run.connection.execute("select pg_sleep(60)") and {})

    event = register(monkeypatch, work)
    with pytest.raises(jobs.JobFailed, match=OutOfTime.__name__):
        invoke(event, int(1000 * (jobs.RESERVE_SECONDS + 1)))
    [milliseconds] = team.rows("select extract(epoch from finished_at - started_at) * 1000 from almagest.job_runs")
    assert milliseconds < 10_000


def test_a_sweep_that_has_no_time_for_all_leaves_the_rest_and_has_not_failed(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    def index(*_: object) -> dict[str, int]:
        import time

        time.sleep(1)
        return {"indexed": 1}

    monkeypatch.setattr("almagest.operations.index_sweep.index_pending", index)
    swept = invoke(SWEEP, int(1000 * (jobs.RESERVE_SECONDS + COUNT_SECONDS + 1)))
    assert (swept["state"], swept["figures"]) == (
        "succeeded",
        {"indexed": 1, "index_backlog": 0, "index_backlog_seconds": 0.0},
    )


def test_what_the_scheduler_sends_is_done(
    team: Team, run_async: Callable[[Coroutine[Any, Any, Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template's own sweep, each second instead of each fifth minute, and every event delivered twice."""
    monkeypatch.setattr("infra.local.scheduler.trigger", lambda _: IntervalTrigger(seconds=1, timezone=UTC))
    sweep = next(each for each in read_template(ROOT / "template.yaml", PARAMETERS)["jobs"].schedules)
    function = Function(name="jobs", handler="", code=ROOT, schedules=(sweep,))
    states: list[str] = []

    def deliver(_: str, event: bytes) -> None:
        states.extend(invoke(json.loads(event))["state"] for _ in range(2))

    async def follow() -> None:
        scheduler = Scheduler([function], deliver)
        scheduler.start()
        while len(states) < 6:
            await asyncio.sleep(0.1)
        await scheduler.stop()

    run_async(follow())
    assert states[:6] == ["succeeded", "done"] * 3
    runs = team.rows("select job, state, attempts from almagest.job_runs")
    assert set(runs) == {("index_sweep", "succeeded", 1)}
