"""Scheduled runs: done once however often they are delivered, by one worker at a time, taken up where one broke off."""

from datetime import UTC, datetime
from typing import Any

from almagest.operations.jobs import Job, Outcome, Run, run_job
from tests.database.support import Server
from tests.edge import FakeRpc, runtime

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def do(server: Server, work: Any, at: datetime = AT, *, job: str = "cleaning", seconds: float = 60) -> Outcome:
    made = runtime(FakeRpc(), database_url=server.database.url)
    return run_job(made, Job(job, "Cleans.", "rate(1 day)", 60, work), at, seconds)


def test_a_run_is_done_once(server: Server) -> None:
    """R9: a schedule that is delivered twice."""
    done: list[int] = []

    def work(run: Run) -> dict[str, Any]:
        return run.step("count", lambda _: {"number": done.append(run.id) or len(done)})

    first, second = do(server, work), do(server, work)
    assert first.error is None
    assert (first.state, first.figures, first.attempt) == ("succeeded", {"number": 1}, 1)
    assert (second.state, second.run) == ("done", first.run)
    assert done == [first.run]
