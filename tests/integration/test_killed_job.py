"""R10: work that is killed half way, as Lambda kills one at the end of its time: an index, and a run of a job."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from almagest.database.queue import Queue
from almagest.database.session import connect
from almagest.operations.index_pending import index_pending
from almagest.operations.jobs.runner import read_time, run_job
from almagest.operations.registry import JOBS
from tests.integration.conftest import Team

JOB = """
from almagest.handlers import index
from tests.edge import Context
index.handler({}, Context(60_000))
"""
SECONDS = 30

AT = "2026-11-30T12:00:00Z"
LEASE_SECONDS = 3.0
# Real handler, runner and retention; the killed one waits in its second step for a lock that the test holds.
RETENTION = f"""
from almagest.handlers import jobs
from almagest.operations.jobs import heartbeat
from tests.edge import Context
heartbeat.LEASE_SECONDS, heartbeat.BEAT_SECONDS = {LEASE_SECONDS}, 0.2
jobs.handler({{"job": "retention", "scheduled_for": "{AT}"}}, Context(60_000))
"""


def test_its_lease_ends_and_another_goes_on(team: Team) -> None:
    team.settle()
    written = team.remember("A sentence about otters that fills a chunk of its own. " * 10_000)
    assert written["index_status"] == "text_ready"
    look = "select index_status, lease_owner from almagest.items where id = %s"

    job = subprocess.Popen([sys.executable, "-c", JOB], env=environment(team), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: team.rows(look, written["id"])[0][0] == "indexing")
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()

    [(status, dead)] = team.rows(look, written["id"])
    assert (status, dead is not None) == ("indexing", True)
    assert team.ask("ann", "GET", "/v1/write/index").body == {"pending": 0, "indexing": 1, "failed": 0}
    assert len(team.find("otters")) == 1  # by its words, all the while
    assert index(team) == {"indexed": 0, "stale": 0, "failed": 0}  # the lease still holds

    team.rows("update almagest.items set lease_expires_at = now(), index_after = now() where id = %s", written["id"])
    team.rows(
        "delete from almagest.chunks where item_id = %s and position > 20", written["id"]
    )  # else it takes a minute
    team.rows("update almagest.items set content = left(content, 20000) where id = %s", written["id"])
    assert index(team) == {"indexed": 1, "stale": 0, "failed": 0}
    assert team.rows(look, written["id"]) == [("search_ready", None)]
    without = "select count(*) from almagest.chunks as k left join almagest.embeddings as e on e.chunk_id = k.id"
    assert team.rows(f"{without} where k.item_id = %s and e.chunk_id is null", written["id"]) == [0]


def test_a_killed_workers_run_is_taken_up_and_the_steps_that_were_done_are_not_done_again(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease held by a dead worker: the run was in its second step when it was killed."""
    state = "select state, attempts, worker, lease_expires_at > clock_timestamp() from almagest.job_runs"
    steps = "select name, state, attempts from almagest.job_steps order by position"
    team.rows("delete from almagest.job_runs")
    old = "insert into almagest.job_runs (job, scheduled_for, state, started_at) values ('old', %s, 'succeeded', %s)"
    team.rows(old, "2020-01-01", "2020-01-01")
    team.rows(old, "2020-01-02", "2020-01-02")
    team.rows("insert into almagest.job_steps (run_id, name, position, state) select min(id), 'x', 1, 'succeeded'"
              " from almagest.job_runs")  # fmt: skip

    with team.database.connect(autocommit=False) as blocker:
        # What the second step deletes; it passes over what is locked, so the lock is on what goes with it.
        blocker.execute("select from almagest.job_steps where name = 'x' for update")
        job = subprocess.Popen(
            [sys.executable, "-c", RETENTION],
            env=environment(team),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: len(team.rows(f"{steps} limit 2 offset 1")) == 2)
            beat = "select heartbeat_at from almagest.job_runs where job = 'retention'"
            before = team.rows(beat)
            wait_until(lambda: team.rows(beat) != before)  # it is alive, and kept so by its heartbeat
        finally:
            job.send_signal(signal.SIGKILL)
            job.wait()
        # Postgres would finish what the dead one had asked for, once it gets its lock.
        blocked = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        assert len(team.rows(f"select pg_terminate_backend(pid) {blocked}")) == 1
        wait_until(lambda: team.rows(f"select count(*) {blocked}") == [0])
    retention = f"{state} where job = 'retention'"
    [(was, attempts, dead, held)] = team.rows(retention)
    assert (was, attempts, held) == ("running", 1, True)
    own = f"{steps.replace('order', 'where name <> %s order')}"
    assert team.rows(own, "x") == [("retain", "succeeded", 1), ("runs", "running", 1)]

    def ask() -> str:
        return run_job(team.runtime, JOBS["retention"], read_time(AT), 60).state

    # Its schedule is delivered again: first while the dead one's lease holds, then late.
    assert ask() == "running"
    done: list[str] = []
    retain = "almagest.operations.retention.retain"
    monkeypatch.setattr(retain, lambda *_: done.append("retain"))
    wait_until(lambda: not team.rows(retention)[0][3])
    assert ask() == "succeeded"
    assert ask() == "done"
    assert done == []
    [(now, attempts, worker, held)] = team.rows(retention)
    assert (now, attempts, worker != dead, held) == ("succeeded", 2, True, None)
    assert team.rows(own, "x") == [("retain", "succeeded", 1), ("runs", "succeeded", 2)]
    [figures] = team.rows("select figures from almagest.job_runs where job = 'retention'")
    assert figures["runs"] == 1  # of the second attempt
    assert figures["added"] >= 2  # of the first
    assert team.rows("select count(*) from almagest.job_runs where job = 'old'") == [1]


def index(team: Team) -> dict[str, int]:
    with connect(team.runtime.settings, autocommit=True) as connection:
        return index_pending(team.runtime, Queue(connection), 60)


def environment(team: Team) -> dict[str, str]:
    settings = team.runtime.settings
    assert settings.supabase_url
    assert settings.supabase_key
    assert settings.database_url
    return os.environ | {
        "SUPABASE_URL": settings.supabase_url,
        "SUPABASE_SECRET_KEY": settings.supabase_key.get_secret_value(),
        "DATABASE_URL": settings.database_url.get_secret_value(),
    }


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)
