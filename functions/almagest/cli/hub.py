"""Commands about the Hub. They act for the holder of ALMAGEST_KEY, or of the local stack's own key."""

import json
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from almagest.cli import output
from almagest.cli.context import current_caller, open_runtime
from almagest.cli.options import Json, examples, uuid

if TYPE_CHECKING:
    from almagest.models.caller import Caller
    from almagest.models.hub import HubEntry, HubState, Mark
    from almagest.runtime import Runtime

app = typer.Typer(
    help="The Hub: what the system found, could not mend, and tells people.",
    epilog=examples("almagest hub", "almagest hub --all --json", "almagest hub dismiss ID"),
)

EntryId = Annotated[
    UUID, typer.Argument(parser=uuid, metavar="ID", help="The entry's id, as `almagest hub` prints it.")
]
Undo = Annotated[bool, typer.Option("--undo", help="Take it back.")]


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is closed, and what you have dismissed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what people are told: the worst first, with what to do about it."""
    if context.invoked_subcommand:
        if everything or as_json:
            raise typer.BadParameter("give it behind the command", param_hint="--all and --json")
        return
    with open_runtime() as runtime:
        entries = _all_entries(runtime, current_caller(runtime), everything)
    if as_json:
        output.print_json({"entries": [output.as_data(entry) for entry in entries]})
    elif entries:
        output.print_text("\n\n".join(_told(entry) for entry in entries))
    else:
        output.print_message("Nothing to tell.")


@app.command()
def read(entry: EntryId, undo: Undo = False, as_json: Json = False) -> None:
    """Mark an entry as read, for yourself."""
    _mark(entry, "read", undo, as_json)


@app.command()
def dismiss(entry: EntryId, undo: Undo = False, as_json: Json = False) -> None:
    """Put an entry away, for yourself; it comes back when it becomes worse."""
    _mark(entry, "dismissed", undo, as_json)


def _all_entries(runtime: "Runtime", caller: "Caller", everything: bool) -> list["HubEntry"]:
    from almagest.models.search import MAX_PAGE
    from almagest.operations.hub import list_hub

    state: HubState = "all" if everything else "open"
    entries: list[HubEntry] = []
    cursor = None
    while True:
        page = list_hub(runtime, caller, state=state, include_dismissed=everything, cursor=cursor, limit=MAX_PAGE)
        entries += page.entries
        if (cursor := page.next_cursor) is None:
            return entries


def _mark(entry: UUID, mark: "Mark", undo: bool, as_json: bool) -> None:
    from almagest.operations.hub import mark_hub

    with open_runtime() as runtime:
        marked = mark_hub(runtime, current_caller(runtime), entry, mark, taken_back=undo)
    output.print_json(marked) if as_json else output.print_text(_told(marked))


def _told(entry: "HubEntry") -> str:
    """An entry as people read it: a line that names it, then one for each thing said."""
    since = f"since {entry.opened_at:%Y-%m-%d %H:%M} UTC"
    marks = [
        word
        for word, at in (("closed", entry.closed_at), ("dismissed", entry.dismissed_at), ("read", entry.read_at))
        if at
    ]
    lines = [f"{entry.severity.upper()}  {entry.title}  ({', '.join([since, *marks])})", f"  found  {entry.found}"]
    lines += [f"  tried  {_attempt(each)}" for each in entry.tried]
    return "\n".join([*lines, f"  to do  {entry.to_do}", f"  id     {entry.id}"])


def _attempt(tried: Any) -> str:
    """What was done, what became of it, and when; in full where it is told in another way."""
    if not isinstance(tried, dict) or "what" not in tried:
        return tried if isinstance(tried, str) else json.dumps(tried, ensure_ascii=False)
    when = f", {tried['when'][:16].replace('T', ' ')} UTC" if tried.get("when") else ""
    return f"{tried['what']} ({tried.get('outcome') or 'outcome not known'}{when})"
