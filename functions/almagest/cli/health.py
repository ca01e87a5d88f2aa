"""The health checks at the command line."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from almagest.cli import output
from almagest.cli.context import database_errors, open_runtime, open_session
from almagest.cli.jobs import logs_on_stderr
from almagest.cli.options import Json, examples
from almagest.problems import Problem

if TYPE_CHECKING:
    from almagest.database.health import Health

COLUMNS = ("check", "status", "measured", "threshold", "unit", "sentence", "ms")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("health", epilog=examples("almagest health", "almagest health --last --json"))(health)


def health(
    last: Annotated[bool, typer.Option("--last", help="Show what was found last, and check nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Check the system's health now, and keep what was found; exit status 1 where a check is degraded or failed."""
    from almagest.database.health import Health

    run = None if last else _check()
    with open_session(autocommit=True) as connection:
        report = _report(Health(connection), run)
    if as_json:
        output.print_json(report)
    else:
        _print(report)
    if report["status"] != "ok":
        raise typer.Exit(1)


def _check() -> int:
    """Make the checks as the scheduled job makes them; the id of the run."""
    from datetime import UTC, datetime

    from almagest.operations.jobs.runner import run_job
    from almagest.operations.registry import JOBS

    with open_runtime() as runtime, database_errors(), logs_on_stderr():
        if not runtime.settings.database_url:
            raise Problem(503, "no_stack", "There is no database: set DATABASE_URL.")
        outcome = run_job(runtime, JOBS["health"], datetime.now(UTC), JOBS["health"].seconds)
    if outcome.state == "skipped":
        sentence = (
            f"The health checks are being made already, in run {outcome.other}. Until they are done, `almagest health"
            " --last` shows what the run before them found."
        )
        raise Problem(409, "job_running", sentence)
    if outcome.state != "succeeded":
        raise Problem(503, "checks_not_made", f"The health checks could not be made: {outcome.error}")
    return outcome.run


def _report(health: "Health", run: int | None) -> dict[str, Any]:
    """What a run found, or what each check found last, in a run of health or of remediation."""
    last = run or health.last_run()
    if last is None:
        raise Problem(404, "never_checked", "The health checks have not been made yet: run `almagest health`.")
    found = health.checks(last) if run else health.latest_checks()
    statuses = {check["status"] for check in found}
    checks = [{"run": last, **check, "checked_at": check["checked_at"].isoformat()} for check in found]
    return {
        "run": last,
        "status": next((status for status in ("failed", "degraded", "ok") if status in statuses), "failed"),
        "checked_at": max((check["checked_at"] for check in found), default=health.run(last)[0]).isoformat(),
        "checks": checks,
    }


def _print(report: dict[str, Any]) -> None:
    rows = [
        {**check, "check": check["name"], "ms": f"{check['duration_ms']:.0f}", "measured": _number(check["measured"]),
         "threshold": _number(check["threshold"])}
        for check in report["checks"]
    ]  # fmt: skip
    output.print_rows(rows, COLUMNS, empty="No check was made.")
    output.print_message(f"Health is {report['status']}, as of {report['checked_at']}.")


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"
