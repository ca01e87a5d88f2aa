"""The command that brings a database to this version."""

from typing import Annotated

import typer

from almagest.cli import output
from almagest.cli.context import START_ADVICE, read_settings
from almagest.cli.options import Json, examples
from almagest.problems import Problem


def migrate(
    database_url: Annotated[
        str | None,
        typer.Option(help="Session mode URL (port 5432); default DATABASE_URL, or the local stack's database."),
    ] = None,
    reapply: Annotated[
        bool, typer.Option("--reapply", help="Apply functions and privileges again, as a restored database needs it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Apply what the database lacks: migrations, functions, privileges. Running it again does no harm."""
    from almagest.database.migrate import migrate as run
    from almagest.database.sql_files import MigrationError

    configured = read_settings().database_url
    url = database_url or (configured.get_secret_value() if configured else None)
    if not url:
        raise Problem(503, "no_stack", f"There is no database to migrate: set DATABASE_URL, or {START_ADVICE}.")
    try:
        report = run(url, output.print_message, reapply=reapply)
    except MigrationError as error:
        raise Problem(500, "migration_failed", str(error)) from error
    if as_json:
        output.print_json({"migrations": report.migrations, "code_files": report.code_files, "dropped": report.dropped})
    elif not report.changed:
        output.print_message("The database is up to date.")


def register(app: typer.Typer) -> None:
    """Give the command to the app."""
    app.command(
        epilog=examples(
            "almagest migrate",
            "read -rs DATABASE_URL && export DATABASE_URL && almagest migrate   # the URL is in no history then",
        )
    )(migrate)
