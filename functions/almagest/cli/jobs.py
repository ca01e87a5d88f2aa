"""Commands about scheduled work: which jobs there are, doing one now, and what became of their runs."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almagest.cli import output
from almagest.cli.context import database_errors, open_runtime, open_session
from almagest.cli.options import Json, examples, group, whole_within
from almagest.problems import Problem

if TYPE_CHECKING:
    from almagest.operations.jobs.runner import Outcome
    from almagest.settings import Settings

app = group("Jobs: what runs by schedule, each run once.")

Row = Mapping[str, Any]
JobName = Annotated[str, typer.Argument(metavar="NAME", help="The job's name, as `almagest jobs list` prints it.")]
AnyJobName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="One job's name; default all.")]
ScheduledFor = Annotated[
    str | None, typer.Option(metavar="TIME", help="The run of that time: 2026-11-30T12:00:00Z; default now.")
]
Limit = Annotated[
    int, typer.Option("-n", "--limit", parser=whole_within(1, 1000), metavar="NUMBER", help="Runs at most.")
]
_LAST = ("state", "started_at", "seconds", "figures", "error")


@app.command("list", epilog=examples("almagest jobs list", "almagest jobs list --json"))
def list_jobs(as_json: Json = False) -> None:
    """List the jobs: what each does, its schedule and next time (UTC), and its latest run."""
    from almagest.database.jobs import Jobs
    from almagest.operations.registry import JOBS

    with open_session(autocommit=True) as connection:
        latest = Jobs(connection).latest()
    jobs: list[dict[str, Any]] = [
        {
            "job": job.name,
            "does": job.sentence,
            "schedule": job.schedule,
            "next": _next_time(job.schedule, latest.get(job.name)),
            "last": _last(latest.get(job.name)),
        }
        for job in JOBS.values()
    ]
    if as_json:
        output.print_json({"jobs": jobs})
        return
    rows = []
    for job in jobs:
        last = _readable(job["last"]) if job["last"] else {}
        rows.append({**job, **{f"last {name}": last.get(name) for name in _LAST}})
    columns = ("job", "does", "schedule", "next", *(f"last {name}" for name in _LAST))
    output.print_rows(rows, columns, empty="There are no jobs.")


@app.command(
    "run",
    epilog=examples(
        "almagest jobs run index_sweep", "almagest jobs run retention --scheduled-for 2026-11-30T03:30:00Z"
    ),
)
def run_now(name: JobName, scheduled_for: ScheduledFor = None, as_json: Json = False) -> None:
    """Do a job now, or the run of some time that failed or broke off; one that was done is not done again."""
    from almagest.operations.jobs.runner import read_time, run_job
    from almagest.operations.registry import find_job

    job = find_job(name)
    at = read_time(scheduled_for) if scheduled_for else datetime.now(UTC)
    with open_runtime() as runtime, database_errors(), logs_on_stderr():
        if not runtime.settings.database_url:
            raise Problem(503, "no_stack", "There is no database: set DATABASE_URL.")
        if scheduled_for:
            _demand_installation(runtime.settings)
        outcome = run_job(runtime, job, at, job.seconds)
    if as_json:
        output.print_json(outcome.as_data())
    else:
        output.print_record(outcome.as_data())
    _tell(outcome)


def _demand_installation(settings: "Settings") -> None:
    """Refuse runs of times by schedule to any other machine: whoever does these is the installation.

    Raises
    ------
    Problem
        409 `other_stack`.
    """
    from almagest.database.jobs import Jobs
    from almagest.database.session import connect

    with connect(settings, autocommit=True) as connection:
        stack = Jobs(connection).installation()
    if stack not in (None, settings.stack):
        sentence = f"Runs by schedule are the stack {stack}'s: send its function the event, or leave the time out."
        raise Problem(409, "other_stack", sentence)


@app.command("history", epilog=examples("almagest jobs history", "almagest jobs history retention -n 5 --json"))
def history(name: AnyJobName = None, limit: Limit = 20, as_json: Json = False) -> None:
    """Show the latest runs of a job, or of all: their state, figures and errors; with --json their steps, too."""
    from almagest.database.jobs import Jobs
    from almagest.operations.registry import find_job

    job = find_job(name).name if name else None
    with open_session(autocommit=True) as connection:
        runs = [_told(row) for row in Jobs(connection).history(job, limit)]
    if as_json:
        output.print_json({"runs": runs})
        return
    columns = ("id", "job", "scheduled_for", "state", "attempts", "started_at", "seconds", "figures", "error")
    output.print_rows(map(_readable, runs), columns, empty="Nothing has run yet.")


def _tell(outcome: "Outcome") -> None:
    """Say what the figures do not; a job that failed is an error."""
    if outcome.state == "failed":
        raise Problem(500, "job_failed", f"{outcome.job} failed: {outcome.error}")
    sentences = {
        "running": f"{outcome.job} is at work already, in run {outcome.other}.",
        "skipped": f"{outcome.job} is at work already, in run {outcome.other}; this one was skipped.",
        "done": f"That run of {outcome.job} was done before: `almagest jobs history {outcome.job}` has its figures.",
        "lost": f"Another worker took over this run of {outcome.job}.",
    }
    if outcome.state in sentences:
        output.print_message(sentences[outcome.state])


def _next_time(schedule: str, last: Row | None) -> str | None:
    """The next time of a schedule, in UTC; None where the local stack, which knows schedules, is not installed.

    That of a rate which has not come yet is the latest at which it can.
    """
    try:
        from infra.local.scheduler import trigger
    except ModuleNotFoundError:
        return None
    now = datetime.now(UTC)
    found: datetime | None = trigger(schedule, last["on_schedule"] if last else None).get_next_fire_time(None, now)
    return found.astimezone(UTC).isoformat(timespec="seconds") if found else None


def _last(row: Row | None) -> Row | None:
    return {name: value for name, value in _told(row).items() if name not in ("job", "on_schedule")} if row else None


def _told(row: Row) -> dict[str, Any]:
    """JSON values of a row, its times in UTC."""
    return {
        name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value for name, value in row.items()
    }


def _readable(run: Row) -> Row:
    """A run for a table: to the second, without figures inside of figures, and told apart where its worker is gone."""
    gone = run["state"] == "running" and not run["alive"]
    started = datetime.fromisoformat(run["started_at"]).strftime("%Y-%m-%d %H:%M:%S")
    plain = {name: value for name, value in run["figures"].items() if not isinstance(value, (dict, list))}
    return {**run, "started_at": started, "state": "broken off" if gone else run["state"], "figures": plain}


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Show what the job logs to the person at the terminal; standard output is for the outcome alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    log = logging.getLogger("almagest")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
