"""Scheduled runs: done once however often they are delivered, by one worker at a time, taken up where one broke off."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from almagest import deadline
from almagest.database.jobs import Jobs
from almagest.operations.jobs import heartbeat, runner
from almagest.operations.jobs.errors import LeaseLost
from almagest.operations.jobs.job import Job, Run, Step
from almagest.operations.jobs.runner import Outcome, read_time, run_job
from almagest.operations.retention import end_old_work
from almagest.problems import Problem
from tests.database.concurrency import at_once
from tests.database.support import Server
from tests.edge import FakeRpc, runtime

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECRET = "what Ann had written"
SECONDS = 20

Figures = dict[str, Any]
Work = Callable[[Run], Figures]


def do(server: Server, work: Work, at: datetime = AT, *, job: str = "cleaning", seconds: float = 60) -> Outcome:
    """Ask for a run of a job, as a function does that was sent its event."""
    made = runtime(FakeRpc(), database_url=server.database.url)
    return run_job(made, Job(job, "Cleans.", "rate(1 hour)", 60, work), at, seconds)


def nothing(_: Run) -> Figures:
    return {}


def claim(server: Server, worker: str, at: datetime = AT, seconds: float = 60, job: str = "cleaning") -> Any:
    """Outcome, run, attempt and the run that is in the way."""
    return server.rows("select * from engine.claim_run(%s, %s, %s, %s)", job, at, worker, seconds)[0]


def runs(server: Server) -> list[tuple[str, int, Any]]:
    return server.rows("select state, attempts, error from almagest.job_runs order by id")


def steps(server: Server) -> list[tuple[str, str, int]]:
    return server.rows("select name, state, attempts from almagest.job_steps order by run_id, position")


def lease_over(server: Server) -> None:
    """Let a worker have been silent for longer than its lease."""
    server.rows("update almagest.job_runs set lease_expires_at = now() - interval '1 second' where state = 'running'")


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class Counted:
    """Steps that count how often they were really done; one of them may raise, so many times."""

    def __init__(self, raises: Exception | None = None, times: int = 1) -> None:
        self.done: list[str] = []
        self._raises = raises
        self._left = times if raises else 0

    def __call__(self, run: Run) -> Figures:
        return {name: run.step(name, self._step(name)) for name in ("first", "second", "third")}

    def _step(self, name: str) -> Callable[[Step], Figures]:
        def work(_: Step) -> Figures:
            if name == "second" and self._left and self._raises:
                self._left -= 1
                raise self._raises
            self.done.append(name)
            return {"number": len(self.done)}

        return work


# Delivered twice, late, and at once


def test_a_run_is_done_once(server: Server) -> None:
    """R9: a schedule that is delivered twice."""
    work = Counted()
    first, second = do(server, work), do(server, work)
    assert (first.state, first.attempt, first.error) == ("succeeded", 1, None)
    assert first.figures == {"first": {"number": 1}, "second": {"number": 2}, "third": {"number": 3}}
    assert (second.state, second.run, second.figures) == ("done", first.run, {})
    assert work.done == ["first", "second", "third"]
    assert runs(server) == [("succeeded", 1, None)]


def test_the_same_moment_in_another_zone_is_the_same_run(server: Server) -> None:
    assert do(server, nothing, read_time("2026-11-30T12:00:00Z")).state == "succeeded"
    assert do(server, nothing, read_time("2026-11-30T17:45:00+05:45")).state == "done"


def test_a_delivery_that_is_late_and_comes_twice_is_done_once_and_after_a_later_run(server: Server) -> None:
    """R9: out of order, and again when all is over."""
    work = Counted()
    late = AT - HOUR
    assert do(server, nothing, AT).state == "succeeded"
    assert [do(server, work, late).state for _ in range(2)] == ["succeeded", "done"]
    assert do(server, work, AT).state == "done"
    assert work.done == ["first", "second", "third"]
    assert len(runs(server)) == 2


def test_of_many_deliveries_at_once_one_works(server: Server) -> None:
    """R9"""
    outcomes = at_once(server, *(lambda other, n=n: claim(other, f"worker {n}") for n in range(8)))
    assert sorted(outcome for outcome, *_ in outcomes) == ["claimed"] + ["running"] * 7
    assert len({run for _, run, *_ in outcomes}) == 1
    assert {other for outcome, _, _, other in outcomes if outcome == "running"} == {outcomes[0][1]}


def test_of_many_runs_at_once_one_works_and_the_others_are_skipped(server: Server) -> None:
    """R9: a run that overlaps the next."""
    outcomes = at_once(server, *(lambda other, n=n: claim(other, f"worker {n}", AT + n * HOUR) for n in range(8)))
    assert sorted(outcome for outcome, *_ in outcomes) == ["claimed"] + ["skipped"] * 7
    [at_work] = [run for outcome, run, *_ in outcomes if outcome == "claimed"]
    assert {other for outcome, _, _, other in outcomes if outcome == "skipped"} == {at_work}
    assert server.rows(
        "select figures, lease_expires_at, finished_at is null from almagest.job_runs where state = 'skipped' limit 1"
    ) == [({"other": at_work}, None, False)]
    # A skipped run stays so: what it would have done, the next one does.
    skipped = next(AT + n * HOUR for n, (outcome, *_) in enumerate(outcomes) if outcome == "skipped")
    server.rows("update almagest.job_runs set state = 'succeeded' where id = %s", at_work)
    assert claim(server, "late", skipped)[0] == "done"


def test_jobs_do_not_wait_for_each_other(server: Server) -> None:
    assert claim(server, "one", job="cleaning")[0] == claim(server, "two", job="sweeping")[0] == "claimed"


def test_a_run_that_failed_waits_for_another_that_is_at_work(server: Server) -> None:
    do(server, Counted(ValueError()), AT)
    assert claim(server, "another", AT + HOUR)[0] == "claimed"
    assert do(server, nothing, AT).state == "running"
    assert [state for state, *_ in runs(server)] == ["failed", "running"]


# Failures


def test_a_run_that_fails_is_taken_up_behind_the_steps_that_were_done(server: Server) -> None:
    """R10"""
    work = Counted(ValueError(SECRET))
    failed = do(server, work)
    assert (failed.state, failed.figures, type(failed.cause)) == ("failed", {}, ValueError)
    assert failed.error is not None
    assert failed.error.startswith("ValueError, raised in test_jobs.py, line ")
    assert runs(server) == [("failed", 1, failed.error)]
    assert steps(server) == [("first", "succeeded", 1), ("second", "failed", 1)]
    assert server.value("select lease_expires_at from almagest.job_runs") is None

    again = do(server, work)
    assert (again.state, again.run, again.attempt) == ("succeeded", failed.run, 2)
    assert again.figures == {"first": {"number": 1}, "second": {"number": 2}, "third": {"number": 3}}
    assert work.done == ["first", "second", "third"]
    assert runs(server) == [("succeeded", 2, None)]
    assert steps(server) == [("first", "succeeded", 1), ("second", "succeeded", 2), ("third", "succeeded", 1)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError(SECRET), "ValueError, raised in"),
        (Problem(503, "misconfigured", SECRET), "Problem: misconfigured (503)."),
        (psycopg.errors.CheckViolation(SECRET), "CheckViolation: Postgres refused with 23514, raised in"),
    ],
)
def test_errors_are_told_without_content(server: Server, error: Exception, told: str) -> None:
    """P7"""
    outcome = do(server, Counted(error))
    assert outcome.error is not None
    assert outcome.error.startswith(told)
    stored = server.rows("select row_to_json(r)::text from almagest.job_runs as r") + server.rows(
        "select row_to_json(s)::text from almagest.job_steps as s"
    )
    assert not [text for text in [*stored, str(outcome.as_data()), repr(outcome)] if "Ann" in text]


def test_what_the_work_left_open_is_rolled_back_and_the_end_stored(server: Server) -> None:
    def work(run: Run) -> Figures:
        run.connection.execute("begin")
        run.connection.execute("update almagest.job_runs set job = 'other'")
        run.connection.execute("select 1 / 0")
        return {}

    assert do(server, work).state == "failed"
    [(job, state, error)] = server.rows("select job, state, error from almagest.job_runs")
    assert (job, state, "DivisionByZero" in error) == ("cleaning", "failed", True)


@pytest.mark.parametrize("within_a_step", [True, False])
def test_a_connection_that_is_lost_fails_the_run_and_its_end_is_stored(server: Server, within_a_step: bool) -> None:
    """R11"""

    def work(run: Run) -> Figures:
        server.database.rows("select pg_terminate_backend(%s)", run.connection.info.backend_pid, role="supabase_admin")
        run.connection.execute("select 1")
        return {}

    def stepwise(run: Run) -> Figures:
        return run.step("first", lambda _: work(run))

    failed = do(server, stepwise if within_a_step else work)
    assert failed.state == "failed"
    assert runs(server) == [("failed", 1, failed.error)]
    assert {state for _, state, _ in steps(server)} <= {"failed"}
    assert do(server, nothing).state == "succeeded"


def test_an_end_that_cannot_be_stored_is_a_failure_although_the_work_was_done(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Counted()

    def gone(*_: object, **__: object) -> None:
        raise psycopg.OperationalError

    def then_unreachable(run: Run) -> Figures:
        figures = work(run)
        run.connection.close()
        monkeypatch.setattr(runner, "connect", gone)
        return figures

    outcome = do(server, then_unreachable)
    assert (outcome.state, type(outcome.cause)) == ("failed", psycopg.OperationalError)
    monkeypatch.undo()
    lease_over(server)
    assert do(server, work).state == "succeeded"
    assert work.done == ["first", "second", "third"]


@pytest.mark.parametrize("figures", [{"at": AT}, {"share": float("nan")}, {"text": "\0"}])
@pytest.mark.parametrize("within_a_step", [True, False])
def test_figures_that_cannot_be_stored_are_a_failure(server: Server, figures: Figures, within_a_step: bool) -> None:
    def work(run: Run) -> Figures:
        return run.step("first", lambda _: figures) if within_a_step else figures

    assert do(server, work).state == "failed"
    assert [state for state, *_ in runs(server)] == ["failed"]
    assert {state for _, state, _ in steps(server)} <= {"failed"}


def test_a_run_that_a_person_breaks_off_is_over_at_once(server: Server) -> None:
    def work(_: Run) -> Figures:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do(server, work)
    [(state, _, error)] = runs(server)
    assert (state, error.split(",")[0]) == ("failed", "KeyboardInterrupt")


def test_a_database_that_does_not_fit_is_not_worked_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almagest.schema.SCHEMA", 9_999)
    with pytest.raises(Problem) as caught:
        do(server, nothing)
    assert caught.value.code == "schema_mismatch"
    assert runs(server) == []


# Checkpoints


def test_a_step_goes_on_from_its_checkpoint(server: Server) -> None:
    seen: list[Any] = []

    def work(run: Run) -> Figures:
        def count(step: Step) -> Figures:
            seen.append(step.checkpoint)
            begin = (step.checkpoint or {"at": 0})["at"]
            for number in range(begin + 1, 5):
                step.save({"at": number})
                if number == 2 and begin == 0:
                    raise ValueError
            return {"from": begin}

        return run.step("count", count)

    assert do(server, work).state == "failed"
    assert do(server, work).figures == {"from": 2}
    assert seen == [None, {"at": 2}]


# Leases


def test_a_dead_workers_run_is_taken_up_when_its_lease_is_over(server: Server) -> None:
    """R10"""
    claim(server, "dead")
    server.rows("select engine.begin_step(id, 'dead', 'first') from almagest.job_runs")
    assert do(server, nothing).state == "running"
    lease_over(server)
    work = Counted()
    taken = do(server, work)
    assert (taken.state, taken.attempt) == ("succeeded", 2)
    assert steps(server)[0] == ("first", "succeeded", 2)


def test_a_dead_workers_run_that_nobody_asks_for_again_ends_with_the_next(server: Server) -> None:
    """R10: history does not say for ever that it runs."""
    claim(server, "dead")
    server.rows("select engine.begin_step(id, 'dead', 'first') from almagest.job_runs")
    lease_over(server)
    assert do(server, nothing, AT + HOUR).state == "succeeded"
    assert [state for state, *_ in runs(server)] == ["failed", "succeeded"]
    assert runs(server)[0][2].startswith("LeaseOver")
    assert steps(server) == [("first", "failed", 1)]
    # It is asked for after all.
    assert do(server, Counted(), AT).attempt == 2


@pytest.mark.parametrize(("ahead", "outcome"), [("59 minutes", "skipped"), ("61 minutes", "claimed")])
def test_a_lease_that_no_worker_takes_is_none(server: Server, ahead: str, outcome: str) -> None:
    """A clock that was wrong must not keep all later runs away."""
    server.rows(
        "insert into almagest.job_runs (job, scheduled_for, state, worker, lease_expires_at)"
        " values ('cleaning', '2020-01-01', 'running', 'forged', now() + %s::interval)",
        ahead,
    )
    assert claim(server, "new")[0] == outcome


def test_who_has_lost_the_lease_writes_nothing_more(server: Server) -> None:
    """R10: a worker that was frozen for longer than its lease, and comes back."""
    other = Counted()

    def work(run: Run) -> Figures:
        def slow(step: Step) -> Figures:
            step.save({"at": 1})
            lease_over(server)
            assert do(server, other).state == "succeeded"
            with pytest.raises(LeaseLost):
                step.save({"at": 2})
            return {"number": 99}

        run.step("first", slow)
        pytest.fail("the step has not ended")

    outcome = do(server, work)
    assert (outcome.state, outcome.figures, outcome.error, outcome.cause) == ("lost", {}, None, None)
    assert runs(server) == [("succeeded", 2, None)]
    figures = server.rows("select figures from almagest.job_steps order by position")
    assert figures == [{"number": number} for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "write",
    [
        "engine.beat_run(r.id, 'dead', 60)",
        "engine.save_checkpoint(r.id, 'dead', 'first', '{}')",
        "engine.end_step(r.id, 'dead', 'first', '{}', null)",
        "engine.end_run(r.id, 'dead', '{}', null)",
        "(select b.outcome <> 'lost' from engine.begin_step(r.id, 'dead', 'second') as b)",
    ],
)
@pytest.mark.parametrize("by", ["taken up", "given up"])
def test_every_write_is_refused_once_the_run_is_anothers(server: Server, write: str, by: str) -> None:
    claim(server, "dead")
    server.rows("select engine.begin_step(id, 'dead', 'first') from almagest.job_runs")
    assert server.value(f"select {write} from almagest.job_runs as r limit 1"), "refused although it holds the run"
    server.rows("delete from almagest.job_runs")
    claim(server, "dead")
    server.rows("select engine.begin_step(id, 'dead', 'first') from almagest.job_runs")
    lease_over(server)
    claim(server, "alive", AT if by == "taken up" else AT + HOUR)
    everything = (
        "select to_jsonb(r), (select jsonb_agg(to_jsonb(s)) from almagest.job_steps as s where s.run_id = r.id)"
    )
    before = server.rows(f"{everything} from almagest.job_runs as r order by r.id")
    assert server.value(f"select {write} from almagest.job_runs as r order by r.id limit 1") is False
    assert server.rows(f"{everything} from almagest.job_runs as r order by r.id") == before


def test_a_heartbeat_that_comes_while_a_run_is_given_up_saves_it(server: Server) -> None:
    """The next run waits for the beat, and then finds that the worker is alive."""
    _, run, *_ = claim(server, "slow")
    lease_over(server)
    with server.another() as other:
        server.owner.execute("begin")
        assert server.value("select engine.beat_run(%s, 'slow', 60)", run)
        asked: list[Any] = []
        asking = threading.Thread(target=lambda: asked.append(claim(other, "next", AT + HOUR)))
        asking.start()
        wait_until(
            lambda: bool(server.database.value("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"))
        )
        server.owner.execute("commit")
        asking.join()
    assert [outcome[0] for outcome in asked] == ["skipped"]
    assert runs(server)[0][0] == "running"


def test_a_run_that_is_longer_than_its_lease_is_kept_by_its_heartbeat(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.2)
    others: list[str] = []

    def work(run: Run) -> Figures:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            others.append(do(server, nothing).state)
            time.sleep(0.4)
        # The beats go through a connection of their own, and that may die, too.
        beats = "select pg_terminate_backend(pid) from pg_stat_activity where query like '%beat_run%'"
        server.database.rows(f"{beats} and pid <> pg_backend_pid()", role="supabase_admin")
        time.sleep(1.5)
        others.append(do(server, nothing).state)
        return {}

    assert do(server, work).state == "succeeded"
    assert len(others) > 4
    assert set(others) == {"running"}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("heartbeat")]


def test_without_a_heartbeat_the_lease_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it is the beat which keeps it."""
    monkeypatch.setattr(heartbeat, "LEASE_SECONDS", 0.5)
    states: list[str] = []

    def work(_: Run) -> Figures:
        time.sleep(1)
        states.append(do(server, nothing).state)
        return {}

    assert do(server, work).state == "lost"
    assert states == ["succeeded"]


def test_a_worker_that_hangs_for_ever_loses_its_lease(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """R10: the heart of one that does not come back from its work stops."""
    monkeypatch.setattr(heartbeat, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "PATIENCE_SECONDS", 0.5)
    states: list[str] = []

    def work(_: Run) -> Figures:
        wait_until(lambda: states.append(do(server, nothing, seconds=60).state) or states[-1] == "succeeded")
        return {}

    assert do(server, work, seconds=1).state == "lost"
    assert states[0] == "running"


# Time


def test_work_has_the_jobs_time_or_what_is_left_of_the_functions(server: Server) -> None:
    left: list[float] = []

    def work(_: Run) -> Figures:
        left.append(deadline.remaining(1e9))
        return {}

    do(server, work, seconds=900)
    do(server, work, AT + HOUR, seconds=20)
    assert 55 < left[0] <= 60 > 20 >= left[1] > 15


def test_no_step_begins_when_the_time_is_over_and_the_next_attempt_begins_there(server: Server) -> None:
    work = Counted()

    def slow(run: Run) -> Figures:
        run.step("first", lambda _: time.sleep(0.6) or {})
        return work(run)

    failed = do(server, slow, seconds=1)
    assert (failed.state, failed.error) == ("failed", "OutOfTime: the run's time was over before its work was.")
    assert work.done == []
    assert do(server, slow).state == "succeeded"
    assert work.done == ["second", "third"]


def test_what_postgres_still_does_when_the_time_is_over_is_cancelled(server: Server) -> None:
    def work(run: Run) -> Figures:
        return run.step("sleep", lambda _: run.connection.execute("select pg_sleep(60)") and {})

    begun = time.monotonic()
    outcome = do(server, work, seconds=1)
    assert time.monotonic() - begun < 10
    assert (outcome.state, (outcome.error or "").split(":")[0]) == ("failed", "OutOfTime")


# Reading, and an end to it


def test_the_latest_run_of_a_job_is_told_and_its_schedules_last_time(server: Server) -> None:
    hours = [AT - n * HOUR for n in (3, 2, 1)]
    for at in hours:
        do(server, Counted(), at)
    by_hand = AT.replace(microsecond=5)
    last = do(server, Counted(ValueError()), by_hand)
    claim(server, "other", job="sweeping")
    jobs = Jobs(server.owner)
    latest = jobs.latest()
    assert latest.keys() == {"cleaning", "sweeping"}
    cleaning = latest["cleaning"]
    assert (cleaning["id"], cleaning["state"], cleaning["on_schedule"]) == (last.run, "failed", hours[-1])
    assert (latest["sweeping"]["alive"], latest["sweeping"]["seconds"]) == (True, None)
    assert 0 <= cleaning["seconds"] < 10
    found = jobs.history("cleaning", 2)
    assert [row["scheduled_for"] for row in found] == [by_hand, hours[-1]]
    assert [(step["name"], step["state"]) for step in found[0]["steps"]] == [
        ("first", "succeeded"),
        ("second", "failed"),
    ]
    assert [row["job"] for row in jobs.history(None, 9)] == ["sweeping"] + ["cleaning"] * 4


def test_a_skipped_run_does_not_hide_the_one_that_is_at_work(server: Server) -> None:
    _, at_work, *_ = claim(server, "one")
    claim(server, "two", AT + HOUR)
    assert Jobs(server.owner).latest()["cleaning"]["id"] == at_work


def test_old_runs_end_but_the_latest_of_each_job(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almagest.operations.retention.BATCH", 2)
    for number in range(7):
        do(server, Counted(), AT - number * HOUR)
    do(server, nothing, job="sweeping")
    claim(server, "one", job="running")
    claim(server, "two", AT + HOUR, job="running")  # skipped
    server.rows("update almagest.job_runs set started_at = now() - interval '91 days' - id * interval '1 minute'")
    server.rows(
        "update almagest.job_runs set started_at = now() - interval '89 days' where scheduled_for = %s", AT - HOUR
    )
    server.rows("insert into almagest.health_runs (run_id, status) select min(id), 'ok' from almagest.job_runs")

    assert end_old_work(server.owner, datetime.now(UTC))["runs"] == 7
    assert server.rows("select job, state from almagest.job_runs order by job") == [
        ("cleaning", "succeeded"),
        ("running", "running"),
        ("sweeping", "succeeded"),
    ]
    assert len(steps(server)) == 3
    assert server.value("select count(*) from almagest.health_runs") == 0
    server.rows("update almagest.job_runs set started_at = now() - interval '900 days'")
    assert end_old_work(server.owner, datetime.now(UTC))["runs"] == 0
