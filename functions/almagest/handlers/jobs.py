"""The jobs function: does the run of a job that a schedule's event names, once however often it is delivered."""

from datetime import UTC, datetime
from typing import Any

from almagest.edge.metrics import tell_job
from almagest.edge.observe import begin, logger, note, unexpected
from almagest.operations.jobs.errors import describe
from almagest.operations.jobs.job import Job
from almagest.operations.jobs.runner import Outcome, read_time, run_job
from almagest.operations.registry import find_job
from almagest.problems import Problem
from almagest.runtime import Runtime, container

# Time kept back to store how a run ended, before Lambda ends the function.
RESERVE_SECONDS = 15.0


class JobFailed(Exception):
    """A run failed: Lambda delivers its event again, and at last to the queue of failed runs."""


def handler(event: object, context: Any) -> dict[str, Any]:
    """Do `{"job": name, "scheduled_for": time}`; a run that is asked for by hand may leave the time out."""
    begin(context.aws_request_id)
    try:
        outcome = _asked(event, context)
    except Problem as problem:
        logger.error("job refused", extra={"code": problem.code, "detail": problem.detail})
        raise
    except Exception as error:
        unexpected(error)
        failed = JobFailed(describe(error))
    else:
        return _told(outcome)
    # Here, without what was raised as its context, whose message Lambda would log.
    raise failed


def _asked(event: object, context: Any) -> Outcome:
    if not isinstance(event, dict):
        raise Problem(422, "invalid_event", 'An event must be an object, like {"job": "index_sweep"}.')
    job = find_job(event.get("job"))
    note(job=job.name)
    given = event.get("scheduled_for")
    scheduled_for = datetime.now(UTC) if given is None else read_time(given)
    return _done(container(), job, scheduled_for, _seconds_left(context) - RESERVE_SECONDS)


def _done(runtime: Runtime, job: Job, scheduled_for: datetime, seconds: float) -> Outcome:
    """Do a run, and tell the metrics of it; one that another worker does, or did, is told by that one."""
    try:
        outcome = run_job(runtime, job, scheduled_for, seconds)
    except Exception:
        tell_job(runtime.settings.stack, job.name, failed=True, figures={})
        raise
    if outcome.state in ("succeeded", "failed"):
        tell_job(runtime.settings.stack, job.name, failed=outcome.state == "failed", figures=outcome.figures)
    return outcome


def _told(outcome: Outcome) -> dict[str, Any]:
    if outcome.state != "failed":
        logger.info("job", extra=outcome.as_data())
        return outcome.as_data()
    logger.error("job", extra=outcome.as_data())
    if outcome.cause is not None:
        unexpected(outcome.cause)
    # Without the cause, whose message Lambda would log.
    raise JobFailed(f"{outcome.job}: {outcome.error}")


def _seconds_left(context: Any) -> float:
    return float(context.get_remaining_time_in_millis()) / 1000
