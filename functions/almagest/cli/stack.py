"""The commands of the local stack; it belongs to a checkout and is imported only when one of them runs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almagest.cli import output
from almagest.cli.context import read_environment
from almagest.cli.options import Json, examples, group
from almagest.cli.results import told_mode
from almagest.problems import Problem

if TYPE_CHECKING:
    from httpx import Client

    from almagest.models.search import SearchResponse
    from almagest.settings import Settings
    from infra.local.state import Running

QUESTION = "How do I run several stacks side by side?"
DOCUMENTS_NOTE = "documents"
# So long the question waits for the vectors; a search by words alone is an answer too.
VECTORS_SECONDS = 90.0
POLL_SECONDS = 0.5

FromPackage = Annotated[
    bool, typer.Option("--from-package", help="Run the artefacts of `make package` instead of this checkout's code.")
]

app = group("The local stack: Postgres, PostgREST, gateway, functions and schedules on this machine.")


@app.command(epilog=examples("almagest stack up", "ALMAGEST_DIR=/tmp/other ALMAGEST_PORT=8788 almagest stack up"))
def up(from_package: FromPackage = False) -> None:
    """Start the stack, ask it one question, and serve until Ctrl-C."""
    with _faults_told():
        from infra.local.stack import real_project, serve

        settings = read_environment()
        is_local = real_project(settings) is None
        serve(
            settings,
            output.print_message,
            lambda running: _welcome(settings, running, is_local=is_local),
            from_package=from_package,
        )


@app.command(epilog=examples("almagest stack start", "almagest stack start --from-package --json"))
def start(as_json: Json = False, from_package: FromPackage = False) -> None:
    """Start the stack in the background, and return when it serves."""
    with _faults_told():
        from infra.local.control import start_detached
        from infra.local.stack import FROM_PACKAGE
        from infra.local.state import StateDirectory

        settings = read_environment()
        options = [FROM_PACKAGE] if from_package else []
        running = StateDirectory(settings.directory).running() or start_detached(settings, *options)
        _print_status(settings, running, as_json=as_json)


@app.command(epilog=examples("almagest stack stop"))
def stop(as_json: Json = False) -> None:
    """Stop the stack, with everything it started."""
    with _faults_told():
        from infra.local.control import stop as run

        settings = read_environment()
        was_running = run(settings)
        if as_json:
            output.print_json({"was_running": was_running, "directory": str(settings.directory.absolute())})
            return
        output.print_message(
            f"The stack in {settings.directory} {'has stopped' if was_running else 'was not running'}."
        )


@app.command(epilog=examples("almagest stack status", "almagest stack status --json"))
def status(as_json: Json = False) -> None:
    """Say whether the stack runs, and how to reach it."""
    with _faults_told():
        from infra.local.state import StateDirectory

        settings = read_environment()
        _print_status(settings, StateDirectory(settings.directory).running(), as_json=as_json)


@contextmanager
def _faults_told() -> Iterator[None]:
    """Turn what is in the stack's way into a problem, which becomes one sentence.

    Raises
    ------
    Problem
        `no_local_stack` where the stack is not installed, `stack_failed` otherwise.
    """
    try:
        from infra.local.errors import StackError
    except ModuleNotFoundError as error:
        raise Problem(
            501, "no_local_stack", "The local stack comes with a checkout of the repository; run `make up` there."
        ) from error
    try:
        yield
    except StackError as error:
        raise Problem(500, "stack_failed", str(error)) from error
    except ModuleNotFoundError as error:
        raise Problem(
            501,
            "no_local_stack",
            f"The local stack needs {error.name}; install requirements/local.txt, or run `make up`.",
        ) from error


def _print_status(settings: "Settings", running: "Running | None", *, as_json: bool) -> None:
    from dataclasses import asdict

    found: dict[str, Any] = asdict(running) if running else {}
    answer = {"running": running is not None, "directory": str(settings.directory.absolute()), **found}
    if as_json:
        output.print_json(answer)
    elif running is None:
        output.print_message(f"No stack runs in {settings.directory}.")
    else:
        shown = ("url", "key", "database_url", "supabase_url", "directory", "pid")
        output.print_record({name: answer[name] for name in shown})


def _welcome(settings: "Settings", running: "Running", *, is_local: bool) -> None:
    """Show what a new stack can do, and how to go on from there."""
    if is_local:
        _demonstrate(settings, running)
    output.print_record({"url": running.url, "key": running.key or "(ALMAGEST_KEY is not set)"})
    output.print_text(_curl(running))
    output.print_message("\nServing until Ctrl-C.")


def _demonstrate(settings: "Settings", running: "Running") -> None:
    import httpx

    from almagest.models.search import SearchResponse
    from infra.local.documents import read_documents, write_documents
    from infra.local.state import StateDirectory

    state = StateDirectory(settings.directory)
    headers = {"Authorization": f"Bearer {running.key}"}
    with httpx.Client(base_url=running.url, headers=headers, timeout=120) as client:
        if state.note(DOCUMENTS_NOTE) is None:
            output.print_message("Reading in this repository's own documents …")
            count = write_documents(client, read_documents())
            state.keep_note(DOCUMENTS_NOTE, str(count))
            output.print_message(f"Read in {count} documents.")
        await_vectors(client)
        answer = client.post("/v1/search", json={"query": QUESTION, "k": 5})
        if answer.is_error:
            raise Problem(answer.status_code, "search_failed", f"The search was refused: {answer.text}")
        print_answer(SearchResponse.model_validate(answer.json()))


def await_vectors(client: "Client") -> None:
    """Wait while the index function gives the documents their vectors, so that the answer is by meaning too."""
    end = time.monotonic() + VECTORS_SECONDS
    told = False
    while time.monotonic() < end:
        answer = client.get("/v1/write/index")
        if answer.is_error or not answer.json()["pending"] + answer.json()["indexing"]:
            return
        if not told:
            output.print_message("Waiting for their vectors …")
            told = True
        time.sleep(POLL_SECONDS)
    output.print_message("Some are still without vectors; they get them in the background.")


def print_answer(response: "SearchResponse") -> None:
    """The demonstration's answer: what was found, and each score in a column of its own."""
    from rich import box
    from rich.table import Table

    output.print_message(f"mode {told_mode(response.mode, response.degraded_reason)}")
    table = Table(title=QUESTION, box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("title", "source"):
        table.add_column(column, overflow="fold")
    for column in ("relevance", "keyword", "vector", "strength", "final"):
        table.add_column(column, justify="right")
    for result in response.results:
        scores = (result.scores.keyword, result.scores.vector, result.scores.strength, result.scores.final)
        cells = ["" if score is None else f"{score:.3f}" for score in scores]
        table.add_row(result.title, result.source_ref, result.relevance, *cells)
    output.print_table(table)


def _curl(running: "Running") -> str:
    return (
        f"curl -s {running.url}/v1/search -H 'Authorization: Bearer {running.key or '$ALMAGEST_KEY'}' "
        f"-H 'Content-Type: application/json' -d '{{\"query\": \"{QUESTION}\"}}'"
    )
