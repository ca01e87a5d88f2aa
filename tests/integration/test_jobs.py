"""The jobs function over a real database: what its events do, and what becomes of a run that fails or is killed."""

import json
from collections.abc import Callable
from io import StringIO
from logging import StreamHandler
from typing import Any

import httpx
import pytest

from almagest.edge import observe
from almagest.handlers import jobs
from almagest.operations.jobs import Job, OutOfTime, Run
from almagest.operations.registry import JOBS
from almagest.problems import Problem
from tests.edge import Context
from tests.integration.conftest import Team
from tests.stack import Stack

SWEEP = {"job": "index_sweep", "scheduled_for": "2026-11-30T12:00:00Z"}
RETENTION = {"job": "retention", "scheduled_for": "2027-01-01T03:30:00Z"}


@pytest.fixture(autouse=True)
def own_container(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function's container is over the team's database, in which nothing has run."""
    monkeypatch.setattr(jobs, "container", lambda: team.runtime)
    team.rows("delete from almagest.job_runs")
    team.rows("update almagest.items set index_status = 'search_ready' where index_status <> 'search_ready'")


@pytest.fixture
def read_log(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Lines that were logged."""
    handler = observe.logger.registered_handler
    assert isinstance(handler, StreamHandler)
    stream = StringIO()
    monkeypatch.setattr(handler, "stream", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def invoke(event: dict[str, Any], milliseconds: int = 60_000) -> dict[str, Any]:
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
        (SWEEP | {"scheduled_for": "<aws.scheduler.scheduled-time>"}, "invalid_time"),
        (SWEEP | {"scheduled_for": "2026-11-30"}, "invalid_time"),
        (SWEEP | {"scheduled_for": 1796040000}, "invalid_time"),
        (SWEEP | {"scheduled_for": ""}, "invalid_time"),
    ],
)
def test_what_is_no_run_is_a_failure_that_says_so(
    team: Team, event: dict[str, Any], code: str, read_log: Callable[[], list[dict[str, Any]]]
) -> None:
    with pytest.raises(Problem) as caught:
        invoke(event)
    assert caught.value.code == code
    [line] = read_log()
    assert (line["level"], line["code"], line["detail"]) == ("ERROR", code, caught.value.detail)
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
    swept = invoke(SWEEP, int(1000 * (jobs.RESERVE_SECONDS + 1)))
    assert (swept["state"], swept["figures"]) == (
        "succeeded",
        {"indexed": 1, "index_backlog": 0, "index_backlog_seconds": 0.0},
    )


def test_a_schedule_that_a_stack_delivers_twice_and_late(stack: Stack) -> None:
    """R9, through the emulated Lambda: both at once, and once more when a later run is over."""

    def deliver(client: httpx.Client, time: str, kind: str = "RequestResponse") -> dict[str, Any]:
        answer = client.post(
            "/2015-03-31/functions/jobs/invocations",
            json=RETENTION | {"scheduled_for": time},
            headers={"X-Amz-Invocation-Type": kind},
        )
        assert "X-Amz-Function-Error" not in answer.headers, answer.text
        return answer.json() if kind == "RequestResponse" else {}

    with httpx.Client(base_url=stack.url, timeout=60) as client:
        deliver(client, "2026-11-29T03:30:00Z", "Event")
        first = deliver(client, "2026-11-29T03:30:00Z")
        later = deliver(client, "2026-11-30T03:30:00Z")
        late = [deliver(client, time) for time in ("2026-11-29T03:30:00Z", "2026-11-28T03:30:00Z")]
    assert first["state"] in ("succeeded", "done", "running")
    assert later["state"] == "succeeded"
    assert [each["state"] for each in late] == ["done", "succeeded"]
    runs = json.loads(stack.almagest("jobs", "history", "retention", "--json"))["runs"]
    assert sorted((run["scheduled_for"][:10], run["state"], run["attempts"]) for run in runs) == [
        (f"2026-11-{day}", "succeeded", 1) for day in (28, 29, 30)
    ]
    [last] = [
        each for each in json.loads(stack.almagest("jobs", "list", "--json"))["jobs"] if each["job"] == "retention"
    ]
    assert last["last"]["scheduled_for"] == "2026-11-28T03:30:00+00:00"
    assert last["next"].endswith("T03:30:00+00:00")
