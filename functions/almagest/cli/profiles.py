"""Commands about search profiles. They act as the system, with the project's key."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almagest.cli import output
from almagest.cli.context import build_request, open_runtime
from almagest.cli.options import Json, Org, examples, group

if TYPE_CHECKING:
    from pydantic import BaseModel

    from almagest.models.profiles import DescribedProfile, KnobDefinition

app = group("Search profiles: named sets of the knobs that a search turns by.")

Name = Annotated[str, typer.Argument(help="Name of the profile, such as user_search.")]
MODES = "modes"


@app.command("list")
def list_(org: Org = None, as_json: Json = False) -> None:
    """List the profiles that searches may name."""
    from almagest.operations.profiles import list_profiles

    with open_runtime() as runtime:
        answer = list_profiles(runtime, None, org)
    if as_json:
        output.print_json(answer)
    else:
        columns = ("name", "description", "built_in", "own", "updated_at")
        output.print_rows(output.as_data(answer)["profiles"], columns, empty="There are no profiles.")


@app.command()
def get(name: Name, org: Org = None, as_json: Json = False) -> None:
    """Show the knobs of a profile as they count, and what each may be."""
    from almagest.operations.profiles import get_profile

    with open_runtime() as runtime:
        answer = get_profile(runtime, None, name, org)
    if as_json:
        output.print_json(answer)
    else:
        output.print_rows(knob_rows(answer), ("knob", "value", "own", "may be", "description"), empty="")


@app.command(
    "set",
    epilog=examples(
        "almagest profile set injection fused_floor=0.2 strength_low=0.4",
        "almagest profile set user_search modes.lexical.high=0.5 mmr_lambda=",
    ),
)
def set_(
    name: Name,
    values: Annotated[
        list[str], typer.Argument(metavar="KNOB=VALUE...", help="modes.MODE.KNOB=VALUE for one mode; KNOB= resets it.")
    ],
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Turn knobs of a profile; those that are not named stay as they are. A new name makes a new profile."""
    from almagest.models.profiles import ProfileWrite
    from almagest.operations.profiles import get_profile, put_profile
    from almagest.problems import Problem

    with open_runtime() as runtime:
        try:
            own = get_profile(runtime, None, name, org).own or {}
        except Problem as problem:
            if problem.code != "unknown_profile":
                raise
            own = {}
        request = build_request(ProfileWrite, knobs=turned(own, values))
        answer = put_profile(runtime, None, name, request, org)
    _show_own(answer, answer.own, as_json)


@app.command()
def reset(name: Name, org: Org = None, as_json: Json = False) -> None:
    """Take all own knobs out of a profile: back to what is built in."""
    from almagest.operations.profiles import delete_profile

    with open_runtime() as runtime:
        answer = delete_profile(runtime, None, name, org)
    output.print_json(answer) if as_json else output.print_record(answer)


def turned(own: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """Own knobs after `KNOB=VALUE` or `modes.MODE.KNOB=VALUE` pairs; an empty value takes its knob out."""
    knobs: dict[str, Any] = json.loads(json.dumps(own))
    for pair in pairs:
        path, separator, value = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"{pair!r} is not KNOB=VALUE", param_hint="KNOB=VALUE")
        *places, knob = path.split(".", 2) if path.startswith(f"{MODES}.") else [path]
        target = knobs
        for place in places:
            target = target.setdefault(place, {})
        if value:
            target[knob] = _value(value)
        else:
            target.pop(knob, None)
    modes = {mode: differing for mode, differing in knobs.pop(MODES, {}).items() if differing}
    return knobs | ({MODES: modes} if modes else {})


def knob_rows(profile: "DescribedProfile") -> list[dict[str, Any]]:
    """A row for each knob in the order of the definitions, then one for each that differs in a mode."""
    own = profile.own or {}
    rows = []
    for definition in profile.definitions:
        row = {"may be": _range(definition), "description": definition.description}
        rows.append({"knob": definition.knob, **_setting(profile.knobs, own, definition.knob), **row})
    for mode, knobs in profile.knobs.get(MODES, {}).items():
        own_of_mode = own.get(MODES, {}).get(mode, {})
        rows += [{"knob": f"{MODES}.{mode}.{knob}", **_setting(knobs, own_of_mode, knob)} for knob in knobs]
    return rows


def _setting(knobs: dict[str, Any], own: dict[str, Any], knob: str) -> dict[str, Any]:
    return {"value": json.dumps(knobs[knob]).strip('"'), "own": "yes" if knob in own else None}


def _range(definition: "KnobDefinition") -> str:
    if definition.choices:
        return ", ".join(definition.choices)
    if definition.kind == "boolean":
        return "true, false"
    whole = " (whole)" if definition.kind == "integer" else ""
    return f"{definition.minimum:g} to {definition.maximum:g}{whole}"


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _show_own(answer: "BaseModel", own: dict[str, Any] | None, as_json: bool) -> None:
    output.print_json(answer) if as_json else output.print_record(own or {})
