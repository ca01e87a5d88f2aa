"""The `almagest` command.

Modules of commands import what they work with inside the functions, so that help and usage errors come at once.
"""

import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from almagest import __version__
from almagest.cli import (
    admin,
    configure,
    health,
    hub,
    items,
    jobs,
    migrate,
    output,
    profiles,
    retention,
    stack,
    transfer,
)
from almagest.cli.options import examples
from almagest.problems import Problem

app = typer.Typer(
    name="almagest",
    help="A knowledge system for AI agents: write what was learned, search it, start every session from it.",
    epilog=examples("almagest stack start", "almagest remember 'We deploy on Tuesdays.'", "almagest search deploy"),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

items.register(app)
migrate.register(app)
transfer.register(app)
configure.register(app)
health.register(app)
for _name, _group in {
    "stack": stack.app,
    "org": admin.orgs,
    "member": admin.members,
    "agent": admin.agents,
    "key": admin.keys,
    "project": admin.projects,
    "client": admin.clients,
    "deal": admin.deals,
    "scope": admin.scopes,
    "profile": profiles.app,
    "hub": hub.app,
    "jobs": jobs.app,
    "retention": retention.app,
}.items():
    app.add_typer(_group, name=_name)
# What it was called before the others got names in the singular; scripts may say so still.
app.add_typer(admin.keys, name="keys", hidden=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.print_text(f"almagest {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a problem becomes one sentence on standard error and exit status 1.

    What is not UTF-8 in an argument or in the environment comes as half characters, which no setting, no request and no
    statement can be made of.
    """
    # What the layers below log is for functions; here the problem itself is told.
    logging.getLogger("almagest").addHandler(logging.NullHandler())
    try:
        app(arguments)
    except Problem as problem:
        output.print_error(problem.code, problem.detail)
    except UnicodeEncodeError:
        output.print_error("not_utf8", "An argument, or a variable of the environment, is not UTF-8.")
    sys.exit(1)
