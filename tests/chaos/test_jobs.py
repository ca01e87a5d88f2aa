"""R9, R10: a schedule that is delivered twice and late, and a lease that a dead worker holds."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest

from tests.chaos.parts import function
from tests.stack import Stack

INVOCATIONS = "/2015-03-31/functions/jobs/invocations"
# Lambda tries again after a minute, and a lease is as long.
SECONDS = 120


def deliver(client: httpx.Client, day: int, kind: str = "RequestResponse") -> dict[str, Any]:
    """Send the event of the day's retention, and return the outcome where it is waited for."""
    event = {"job": "retention", "scheduled_for": f"2026-11-{day}T03:30:00Z"}
    answer = client.post(INVOCATIONS, json=event, headers={"X-Amz-Invocation-Type": kind})
    assert answer.is_success
    assert "X-Amz-Function-Error" not in answer.headers, answer.text
    outcome: dict[str, Any] = answer.json() if kind == "RequestResponse" else {}
    return outcome


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_schedule_that_is_delivered_twice_and_late(stack: Stack) -> None:
    """Both at once, then again when a later run is over; and one that is late itself."""
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        deliver(client, 26, "Event")
        first = deliver(client, 26)
        wait_until(
            lambda: stack.rows("select state from almagest.job_runs where id = %s", first["run"]) == ["succeeded"]
        )
        later = deliver(client, 27)
        late = [deliver(client, day) for day in (26, 25, 25)]
    assert first["state"] in ("succeeded", "done", "running")
    assert later["state"] == "succeeded"
    assert [each["state"] for each in late] == ["done", "succeeded", "done"]
    told = json.loads(stack.almagest("jobs", "history", "retention", "--json"))["runs"]
    days = {f"2026-11-{day}T03:30:00+00:00": day for day in (25, 26, 27)}
    runs = [run for run in told if run["scheduled_for"] in days]  # not what the stack's own schedule sends
    assert [days[run["scheduled_for"]] for run in runs] == [25, 27, 26]
    assert all((run["state"], run["attempts"]) == ("succeeded", 1) for run in runs)
    assert all(step["attempts"] == 1 for run in runs for step in run["steps"])
    jobs = {job["job"]: job for job in json.loads(stack.almagest("jobs", "list", "--json"))["jobs"]}
    assert jobs["retention"]["last"]["state"] == "succeeded"
    assert jobs["retention"]["next"].endswith("T03:30:00+00:00")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_dead_workers_run_is_finished_by_another_without_doing_again_what_was_done(breakable: Stack) -> None:
    """Killed in the second of its steps, with the lease and the retries as they are on AWS; nobody helps."""
    run = "select state, attempts, worker from almagest.job_runs where job = 'retention'"
    steps = (
        "select s.name, s.state, s.attempts from almagest.job_steps as s join almagest.job_runs as r on r.id = s.run_id"
        " where r.job = 'retention' order by s.position"
    )
    # Two runs of long ago, of which the job deletes one with its step; that is locked, so that the job waits for it.
    breakable.rows(
        "with old as ("
        "  insert into almagest.job_runs (job, scheduled_for, state, started_at) values"
        "  ('old', '2020-01-01', 'succeeded', '2020-01-01'), ('old', '2020-01-02', 'succeeded', '2020-01-02')"
        "  returning id"
        ") insert into almagest.job_steps (run_id, name, position, state) select min(id), 'x', 1, 'succeeded' from old"
        " returning 1"
    )
    with psycopg.connect(breakable.database_url) as blocker, httpx.Client(base_url=breakable.url) as client:
        blocker.execute("select from almagest.job_steps where name = 'x' for update")
        deliver(client, 26, "Event")
        wait_until(lambda: breakable.rows(steps)[1:] == [("runs", "running", 1)])
        [worker] = function(breakable, "jobs")
        worker.kill()
        # Postgres would finish what the dead one had asked for, once it gets its lock.
        [(_, _, dead)] = breakable.rows(run)
        breakable.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'"
            " and datname = current_database()"
        )
    assert breakable.rows(steps) == [("retain", "succeeded", 1), ("runs", "running", 1)]
    wait_until(lambda: breakable.rows(run)[0][0] == "succeeded")
    [(_, attempts, alive)] = breakable.rows(run)
    assert (attempts, alive != dead) == (2, True)
    assert breakable.rows(steps) == [("retain", "succeeded", 1), ("runs", "succeeded", 2)]
    assert breakable.rows("select count(*) from almagest.job_runs where job = 'old'") == [1]
