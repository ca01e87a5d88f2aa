"""Which jobs there are: what each does, when, and how long it may take. Their code is imported when they run."""

from typing import Any

from almagest.operations.jobs.job import Job, Run
from almagest.problems import Problem


def _sweep_index(run: Run) -> dict[str, Any]:
    from almagest.operations.index_sweep import sweep

    return sweep(run)


def _retain(run: Run) -> dict[str, Any]:
    from almagest.operations.retention import end_what_is_over

    return end_what_is_over(run)


def _check_health(run: Run) -> dict[str, Any]:
    from almagest.operations.health.run import check_health

    return check_health(run)


def _remediate(run: Run) -> dict[str, Any]:
    from almagest.operations.remediation.run import remediate

    return remediate(run)


# The template has the same schedules, and a test compares them. A job's seconds end before its next run begins.
JOBS = {
    job.name: job
    for job in (
        Job("index_sweep", "Indexes what the requests left pending.", "rate(5 minutes)", 270, _sweep_index),
        Job(
            "retention",
            "Makes partitions for the months to come, and ends traces, idempotency keys, runs and Hub entries in time.",
            "cron(30 3 * * ? *)",
            840,
            _retain,
        ),
        Job("health", "Makes the health checks.", "cron(0 0,12 * * ? *)", 600, _check_health),
        Job("remediation", "Mends what the health checks found.", "cron(15 0,12 * * ? *)", 840, _remediate),
    )
}


def find_job(name: object) -> Job:
    """Return a job by its name.

    Raises
    ------
    Problem
        404 `unknown_job`, which names those that there are.
    """
    job = JOBS.get(name) if isinstance(name, str) else None
    if job is None:
        # Whatever came is quoted as far as a name goes: it may be long, and no name at all.
        sentence = f"There is no job {str(name)[:40]!r}; there are {', '.join(sorted(JOBS))}."
        raise Problem(404, "unknown_job", sentence)
    return job
