"""Commands about what is kept for a time only. They act on the database itself, as its operator."""

from typing import Annotated

import typer

from almagest.cli import output
from almagest.cli.context import open_session
from almagest.cli.options import Json, examples, group, whole_within
from almagest.problems import Problem

app = group("Retention: how long traces and idempotency keys are kept, and ending what is over.")

Seconds = Annotated[
    int, typer.Option(parser=whole_within(1, 86_400), metavar="SECONDS", help="Time after which the rest is left.")
]


@app.command("run", epilog=examples("almagest retention run", "almagest retention run --seconds 60 --json"))
def run_now(seconds: Seconds = 3600, as_json: Json = False) -> None:
    """Do now what the daily job does: partitions for the months to come, and an end to what is over."""
    from datetime import UTC, datetime

    from almagest.database.retention import Retention
    from almagest.operations.retention import end_old_work, retain

    with open_session(autocommit=True) as connection:
        counts = retain(Retention(connection), seconds, report=output.print_message)
        counts |= end_old_work(connection, datetime.now(UTC))
    _show(counts, as_json)


@app.command("status")
def status(as_json: Json = False) -> None:
    """Show how long things are kept, which partitions there are, and what the next run would do."""
    from datetime import UTC, datetime

    from almagest.database.retention import Retention

    with open_session(autocommit=True) as connection:
        retention = Retention(connection)
        settings, partitions = retention.settings(), retention.partitions()
        due = [f"{step.step} {step.table} {step.month or ''}".strip() for step in retention.plan(datetime.now(UTC))]
    if as_json:
        output.print_json({"settings": settings, "partitions": partitions, "due": due})
        return
    named = [{**each, "org": each["org"] or "(all others)"} for each in settings]
    output.print_rows(named, ("org", "trace_days", "idempotency_days"), empty="No settings.")
    output.print_rows(partitions, ("partition", "rows", "bytes", "bounds"), empty="No partitions.")
    output.print_message("Due: " + (", ".join(due) or "nothing."))


@app.command(
    "set",
    epilog=examples("almagest retention set --trace-days 30", "almagest retention set --org acme --trace-days 365"),
)
def set_days(
    org: Annotated[
        str | None, typer.Option(help="Slug of an org; default all orgs that have no days of their own.")
    ] = None,
    trace_days: Annotated[
        int | None, typer.Option(parser=whole_within(1, 3650), metavar="DAYS", help="Days for which traces are kept.")
    ] = None,
    idempotency_days: Annotated[
        int | None,
        typer.Option(parser=whole_within(1, 365), metavar="DAYS", help="Days in which a repeated write is recognised."),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Let the org keep things for as long as all others.")] = False,
    as_json: Json = False,
) -> None:
    """Say how long things are kept; the next run acts on it."""
    from almagest.database.retention import Retention

    if reset == (trace_days is not None or idempotency_days is not None) or (reset and org is None):
        raise Problem(422, "invalid_request", "Give days, or --reset with --org.")
    with open_session(autocommit=True) as connection:
        retention = Retention(connection)
        known = (
            retention.forget_days(org)
            if reset and org is not None
            else retention.set_days(org, trace_days, idempotency_days)
        )
        if not known:
            raise Problem(404, "unknown_org", f"There is no org {org!r}.")
        [set_] = [each for each in retention.settings() if each["org"] == org] or [{"org": org}]
    _show(set_, as_json)


def _show(answer: output.Answer, as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
    else:
        output.print_record(answer)
