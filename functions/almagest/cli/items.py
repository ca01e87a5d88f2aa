"""Commands about what is known: they act for the holder of ALMAGEST_KEY, or of the local stack's own key."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from almagest.cli import output
from almagest.cli.context import build_request, current_caller, new_call, open_runtime
from almagest.cli.explain import print_trace, print_why_not, trace
from almagest.cli.options import IdempotencyKey, ItemId, Json, examples, number, uuid, whole, whole_within
from almagest.cli.results import print_results

if TYPE_CHECKING:
    from pydantic import BaseModel

    from almagest.models.caller import Caller
    from almagest.models.search import Chunk, Item, Neighbours, SearchResponse
    from almagest.models.traces import Trace
    from almagest.runtime import Runtime

FILTERS = (
    "kind, type, tags, tags_any, folder, folder_tree, project, client, deal, agent, origin, agent_name, "
    "source_ref, mime_type, extension, title, metadata, conversation, tier, created_after, "
    "created_before, updated_after, updated_before, occurred_after, occurred_before, priority_min, "
    "priority_max, any"
)
# Lists of these are separated by commas; in the others, a comma is a comma.
LISTS = (
    "kind", "type", "tags", "tags_any", "folder", "folder_tree", "project", "client", "deal", "agent", "origin",
    "mime_type", "extension", "tier",
)  # fmt: skip

Private = Annotated[bool, typer.Option("--private", help="Only for yourself.")]


def search(
    query: Annotated[str | None, typer.Argument(help="The question, in plain words.")] = None,
    k: Annotated[
        int, typer.Option("--k", "-k", parser=whole, metavar="NUMBER", help="How many results, 1 to 100.")
    ] = 10,
    profile: Annotated[str | None, typer.Option(help="Search profile of the org; user_search by default.")] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            help=f"NAME=VALUE, repeatable; lists are separated by commas, metadata and any are JSON. Names: {FILTERS}.",
        ),
    ] = None,
    include_archived: Annotated[bool, typer.Option("--include-archived", help="Search archived items too.")] = False,
    as_of: Annotated[
        str | None, typer.Option(help="What was known at a time, with offset: 2026-01-31T12:00:00Z.")
    ] = None,
    legs: Annotated[
        list[str] | None, typer.Option("--leg", help="Search by this alone: keyword or vector; repeatable.")
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="item, or chunk: several slices of one item may be in the answer.")
    ] = None,
    cursor: Annotated[
        str | None, typer.Option(help="Go on with an earlier answer, in place of a question; it tells its cursor.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Tell how the answer came about.")] = False,
    why_not: Annotated[
        UUID | None, typer.Option(parser=uuid, metavar="ITEM", help="Tell why an item is not in the answer.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Search for what is known, best answer first."""
    from almagest.models.search import SearchRequest
    from almagest.operations.search import search as operation

    given = {
        "profile": profile,
        "filters": parse_filters(filters or []),
        "as_of": as_of,
        "include_archived": include_archived,
        "legs": legs,
        "level": level,
        "explain": explain,
        "why_not": why_not,
    }
    request = build_request(
        SearchRequest, query=query, k=k, cursor=cursor, **{name: value for name, value in given.items() if value}
    )
    with open_runtime() as runtime:
        caller = current_caller(runtime)
        response = operation(runtime, caller, request, new_call())
        account = _trace(runtime, caller, response) if explain and not as_json else None
    if as_json:
        output.print_json(response)
        return
    print_results(response)
    if account:
        print_trace(account)
    if why_not and response.explain:
        print_why_not(response.explain["why_not"])


def _trace(runtime: "Runtime", caller: "Caller", response: "SearchResponse") -> "Trace | None":
    from almagest.operations.search import get_trace

    return get_trace(runtime, caller, response.trace_id) if response.trace_id else None


def parse_filters(pairs: list[str]) -> dict[str, Any]:
    """Turn `NAME=VALUE` pairs into the fields of `Filters`, which checks them."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--filter")
        if name in fields and name not in LISTS:
            raise typer.BadParameter(f"{name} is given twice", param_hint="--filter")
        found = _filter_value(name, value)
        fields[name] = [*_listed(fields[name]), *_listed(found)] if name in fields else found
    return fields


def _filter_value(name: str, value: str) -> Any:
    if name in ("metadata", "any"):
        return _json_value(value, "--filter")
    if name.startswith("tags") or (name in LISTS and "," in value):
        return value.split(",")
    return _number(value) if name.startswith("priority") else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def remember(
    text: Annotated[str, typer.Argument(help="What was learned; - reads standard input.")] = "-",
    title: Annotated[str | None, typer.Option(help="A title of one line.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="decision, fact, preference, insight, note, …")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag, repeatable.")] = None,
    importance: Annotated[float | None, typer.Option(parser=number, metavar="NUMBER", help="0 to 1.")] = None,
    private: Private = False,
    project: Annotated[str | None, typer.Option(help="Slug of the project that it belongs to.")] = None,
    client: Annotated[str | None, typer.Option(help="Slug of the client that it is about.")] = None,
    deal: Annotated[str | None, typer.Option(help="Slug of the deal that it is about.")] = None,
    origin: Annotated[str | None, typer.Option(help="upload, chat, connector or agent.")] = None,
    source_ref: Annotated[str | None, typer.Option(help="Where it is from: a path, a URL, a name of yours.")] = None,
    agent_name: Annotated[str | None, typer.Option(help="Who learned it, as attribution.")] = None,
    occurred_at: Annotated[str | None, typer.Option(help="When, with offset: 2026-01-31T12:00:00Z.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Id of the conversation; needs --position.")] = None,
    position: Annotated[
        int | None, typer.Option(parser=whole, metavar="NUMBER", help="Place in the conversation, from 0.")
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object of your own.")] = None,
    idempotency_key: IdempotencyKey = None,
    as_json: Json = False,
) -> None:
    """Write down one thing, so that every later session can find it."""
    from almagest.models.write import MemoryWrite
    from almagest.operations.write import write_memory

    request = build_request(
        MemoryWrite,
        content=_standard_input() if text == "-" else text,
        title=title,
        type=type_,
        tags=tags,
        importance=importance,
        private=private,
        project=project,
        client=client,
        deal=deal,
        origin=origin,
        source_ref=source_ref,
        agent_name=agent_name,
        occurred_at=occurred_at,
        conversation=_conversation(conversation, position),
        metadata=None if metadata is None else _json_value(metadata, "--metadata"),
    )
    with open_runtime() as runtime:
        result = write_memory(runtime, current_caller(runtime), request, new_call(idempotency_key))
    _show(result, as_json)


def _standard_input() -> str:
    if sys.stdin.isatty():
        output.print_message("Reading from the terminal; Ctrl-D ends the text.")
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


def _conversation(identifier: str | None, position: int | None) -> dict[str, Any] | None:
    if (identifier is None) != (position is None):
        raise typer.BadParameter("give both, or neither", param_hint="--conversation and --position")
    return None if identifier is None else {"id": identifier, "position": position}


def _json_value(text: str, option: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint=option) from None


def get(
    item: ItemId,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="The slices that search reads, in place of the item.")
    ] = False,
    around: Annotated[
        int | None,
        typer.Option(
            parser=whole_within(0, 2**31 - 1), metavar="POSITION", help="The slice at this place, and those around it."
        ),
    ] = None,
    neighbours: Annotated[
        bool, typer.Option("--neighbours", help="The messages around it in its conversation, in place of the item.")
    ] = False,
    reach: Annotated[
        int | None,
        typer.Option(
            parser=whole_within(0, 5),
            metavar="NUMBER",
            help="How many on each side, 5 at the most: 1 slice, 2 messages by default.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show an item, whole; or slices of it, or what surrounds it."""
    from almagest.models.search import DEFAULT_REACH
    from almagest.operations.search import get_chunks_around, get_item, get_neighbours

    if chunks + neighbours + (around is not None) > 1:
        raise typer.BadParameter("give one of them", param_hint="--chunks, --around and --neighbours")
    if reach is not None and around is None and not neighbours:
        raise typer.BadParameter("needs --around or --neighbours", param_hint="--reach")
    with open_runtime() as runtime:
        caller = current_caller(runtime)
        if around is not None:
            page = get_chunks_around(runtime, caller, item, around, 1 if reach is None else reach)
            _print_chunks(page.chunks, as_json)
            return
        if chunks:
            slices = _all_chunks(runtime, caller, item)
            _print_chunks(slices, as_json)
            return
        if neighbours:
            beside = get_neighbours(runtime, caller, item, DEFAULT_REACH if reach is None else reach)
            _print_neighbours(beside, as_json)
            return
        found = get_item(runtime, caller, item)
    output.print_json(found) if as_json else _print_item(found)


def _all_chunks(runtime: "Runtime", caller: "Caller", item: Any) -> list["Chunk"]:
    from almagest.models.search import MAX_PAGE
    from almagest.operations.search import get_chunks

    page = get_chunks(runtime, caller, item, None, MAX_PAGE)
    slices = page.chunks
    while page.next_cursor:
        page = get_chunks(runtime, caller, item, page.next_cursor, MAX_PAGE)
        slices = slices + page.chunks
    return slices


def _print_chunks(slices: list["Chunk"], as_json: bool) -> None:
    rows = [slice_.model_dump(mode="json") for slice_ in slices]
    if as_json:
        output.print_json({"chunks": rows})
    else:
        output.print_rows(rows, ("position", "start", "end", "text"), empty="The item has no chunks yet.")


def _print_neighbours(beside: "Neighbours", as_json: bool) -> None:
    if as_json:
        output.print_json(beside)
        return
    rows = [
        {"": side, "position": message.conversation.position, "agent": message.agent_name, "text": message.content}
        for side, messages in (("before", beside.before), ("after", beside.after))
        for message in messages
    ]
    output.print_rows(rows, ("", "position", "agent", "text"), empty="There is nothing around it in a conversation.")


def _print_item(item: "Item") -> None:
    fields = item.model_dump(mode="json", exclude={"content"}, exclude_none=True)
    output.print_record({name: value for name, value in fields.items() if value not in ([], {})})
    output.print_text(item.content)


def bootstrap(
    query: Annotated[str | None, typer.Argument(help="What the session is about.")] = None,
    budget: Annotated[
        int, typer.Option(parser=whole, metavar="NUMBER", help="How many tokens the session may read.")
    ] = 4000,
    as_json: Json = False,
) -> None:
    """Print what a session starts from: what every run knows, then what this one should."""
    from almagest.models.bootstrap import BootstrapRequest
    from almagest.operations.bootstrap import bootstrap as operation

    request = build_request(BootstrapRequest, query=query, budget_tokens=budget)
    with open_runtime() as runtime:
        response = operation(runtime, current_caller(runtime), request, new_call())
    if as_json:
        output.print_json(response)
        return
    for part in (response.prefix, response.tail):
        if part:
            output.print_text(part)


def validate(item: ItemId, idempotency_key: IdempotencyKey = None, as_json: Json = False) -> None:
    """Confirm that an item still holds, so that it is trusted as if it were new."""
    from almagest.operations.items import validate_item

    _change(lambda runtime, caller: validate_item(runtime, caller, item, new_call(idempotency_key)), as_json)


def archive(item: ItemId, idempotency_key: IdempotencyKey = None, as_json: Json = False) -> None:
    """Take an item out of everyday search; `restore` brings it back."""
    from almagest.operations.items import archive_item

    _change(lambda runtime, caller: archive_item(runtime, caller, item, new_call(idempotency_key)), as_json)


def restore(item: ItemId, idempotency_key: IdempotencyKey = None, as_json: Json = False) -> None:
    """Bring an archived item back."""
    from almagest.operations.items import restore_item

    _change(lambda runtime, caller: restore_item(runtime, caller, item, new_call(idempotency_key)), as_json)


def erase(
    item: ItemId,
    strict: Annotated[bool, typer.Option("--strict", help="Drop its name from the audit log too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    idempotency_key: IdempotencyKey = None,
    as_json: Json = False,
) -> None:
    """Erase an item everywhere, for ever; that it existed stays in the audit log."""
    from almagest.operations.items import erase_item

    if not yes:
        typer.confirm(f"Erase {item} for ever?", abort=True, err=True)
    _change(lambda runtime, caller: erase_item(runtime, caller, item, strict, new_call(idempotency_key)), as_json)


def pin(
    item: ItemId,
    position: Annotated[
        int | None, typer.Option(parser=whole, metavar="NUMBER", help="Place among the pins, from 0.")
    ] = None,
    private: Private = False,
    idempotency_key: IdempotencyKey = None,
    as_json: Json = False,
) -> None:
    """Put an item whole into the prefix of every run, or of your own runs."""
    from almagest.models.write import Pin
    from almagest.operations.items import pin_item

    request = build_request(Pin, position=position, private=private)
    _change(lambda runtime, caller: pin_item(runtime, caller, item, request, new_call(idempotency_key)), as_json)


def unpin(
    item: ItemId, private: Private = False, idempotency_key: IdempotencyKey = None, as_json: Json = False
) -> None:
    """Take an item out of the prefix again."""
    from almagest.operations.items import unpin_item

    _change(lambda runtime, caller: unpin_item(runtime, caller, item, private, new_call(idempotency_key)), as_json)


def index(as_json: Json = False) -> None:
    """Say how many items wait for the index, are in it right now, or failed."""
    from almagest.operations.indexing import index_status

    _change(index_status, as_json)


def _change(operation: Callable[["Runtime", "Caller"], "BaseModel"], as_json: bool) -> None:
    with open_runtime() as runtime:
        result = operation(runtime, current_caller(runtime))
    _show(result, as_json)


def _show(result: "BaseModel", as_json: bool) -> None:
    output.print_json(result) if as_json else output.print_record(result)


def register(app: typer.Typer) -> None:
    """Give the commands to the app."""
    app.command(
        epilog=examples(
            "almagest search 'why did we choose Postgres?'",
            "almagest search SID-48 -k 3 --filter type=decision --filter tags=auth,login --json",
            "almagest search 'rate limits' --explain",
            "almagest search 'release day' --as-of 2026-01-31T12:00:00Z",
            """almagest search deploy --filter 'any=[{"tags": ["ops"]}, {"type": "playbook"}]'""",
        )
    )(search)
    app.command(
        epilog=examples(
            "almagest remember 'We deploy on Tuesdays, never on Fridays.' --type decision --tag deploy",
            "git log -1 --format=%B | almagest remember - --title 'Last commit' --source-ref HEAD",
        )
    )(remember)
    app.command()(get)
    app.command(epilog=examples("almagest bootstrap 'fix the login' --budget 2000 > context.md"))(bootstrap)
    app.command()(trace)
    for command in (validate, archive, restore, erase, pin, unpin, index):
        app.command()(command)
