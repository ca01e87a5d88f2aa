"""What is wrong with a request, field by field, in plain words and without repeating what it said."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from almagest.ingestion.text import clean
from almagest.models.fields import PATTERNS

MAX_ERRORS = 20
MAX_NAME = 100

Path = tuple[str | int, ...]

_ABSENT = object()
_NAMES_ITS_FIELD = ("missing", "extra_forbidden")

_SENTENCES = {
    "extra_forbidden": "unknown field",
    "missing": "required",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "model_attributes_type": "must be a JSON object",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "uuid_type": "must be a string that holds a UUID",
    "uuid_parsing": "must be a UUID, such as 123e4567-e89b-12d3-a456-426614174000",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge:,}",
    "greater_than": "must be greater than {gt:,}",
    "less_than_equal": "must be at most {le:,}",
    "less_than": "must be less than {lt:,}",
    "string_too_short": "must have at least {min_length:,} {unit}",
    "string_too_long": "must have at most {max_length:,} {unit}",
    "too_short": "must have at least {min_length:,} {unit}",
    "too_long": "must have at most {max_length:,} {unit}",
}


@dataclass(frozen=True)
class _Complaint:
    """One error of pydantic.

    Attributes
    ----------
    path
        What leads to the value in the request as it was sent.
    place
        Path of the value that may be of several types; None where there is one type alone.
    tried
        Which of these types pydantic tried.
    fits
        Whether the value is of the type that was tried, and has another fault.
    """

    path: Path
    place: Path | None
    tried: str
    fits: bool
    message: str


def errors_of(error: ValidationError, sent: Any) -> list[dict[str, str]]:
    """`field_errors` of what a model raised for a value."""
    return field_errors(error.errors(include_url=False, include_input=False), sent)


def field_errors(errors: Iterable[Mapping[str, Any]], sent: Any) -> list[dict[str, str]]:
    """Turn pydantic's errors into `{field, message}` pairs, one for each value that is wrong.

    Pydantic puts the types that a value may be of into its locations, and complains once for each of them. Here, only
    what the caller wrote is a part of a path, and of several types the one that was meant is told about.

    Parameters
    ----------
    errors
        As `ValidationError.errors()` gives them; `input` is not needed.
    sent
        The JSON value that was refused.

    Returns
    -------
    list of dict
        At most `MAX_ERRORS` pairs. `field` is a path such as `filters.type[2]`, empty for the request as a whole; a
        value of the request never appears in them.
    """
    messages: dict[str, str] = {}
    for complaint in _without_other_types([_complaint(error, sent) for error in errors]):
        messages.setdefault(_written(complaint.path), complaint.message)
    return [{"field": field, "message": message} for field, message in list(messages.items())[:MAX_ERRORS]]


def summary(errors: list[dict[str, str]]) -> str:
    """One sentence that names the fields."""
    named = "; ".join(
        f"{error['field']}: {error['message']}" if error["field"] else error["message"] for error in errors
    )
    return f"The request is not valid: {named}."


def _complaint(error: Mapping[str, Any], sent: Any) -> _Complaint:
    *parts, last = error["loc"] or [None]
    path: Path = ()
    place, tried = None, ""
    value = sent
    for part in (*parts, last):
        inside = _inside(value, part)
        if inside is not _ABSENT:
            path, value = (*path, part), inside
        elif part is last and error["type"] in _NAMES_ITS_FIELD:
            path, value = (*path, part), None
        elif part is not None and place is None:
            place, tried = path, str(part)
    return _Complaint(path, place, tried, _fits(error["type"], value), _message(error, value))


def _inside(value: Any, part: str | int | None) -> Any:
    """The value at one step of a location; `_ABSENT` where the step is none that the caller wrote."""
    if isinstance(value, list) and isinstance(part, int):
        return value[part] if part < len(value) else _ABSENT
    if isinstance(value, Mapping) and isinstance(part, str):
        if part in value:
            return value[part]
        # Models see keys clean.
        return next((inside for key, inside in value.items() if clean(str(key))[0] == part), _ABSENT)
    return _ABSENT


def _fits(type_: str, value: Any) -> bool:
    return isinstance(value, str) if type_ == "literal_error" else not type_.endswith("_type")


def _without_other_types(complaints: list[_Complaint]) -> Iterator[_Complaint]:
    """Of the complaints about one value, those of the type that fits best: the one that looked into it deepest."""
    for place, group in groupby(complaints, lambda complaint: complaint.place):
        if place is None:
            yield from group
            continue
        tried: dict[str, list[_Complaint]] = {}
        for complaint in group:
            tried.setdefault(complaint.tried, []).append(complaint)
        fit = {type_: max((len(each.path), each.fits) for each in about) for type_, about in tried.items()}
        best = max(fit.values())
        meant = [about for type_, about in tried.items() if fit[type_] == best]
        if best == (len(place), False):
            yield _of_no_type(place, [about[0].message for about in meant])
        else:
            yield from meant[0]


def _of_no_type(place: Path, messages: list[str]) -> _Complaint:
    first, *others = dict.fromkeys(messages)
    return _Complaint(
        place, None, "", False, ", or ".join([first, *(other.removeprefix("must be ") for other in others)])
    )


def _written(path: Path) -> str:
    """A path as a caller would write it."""
    steps = (f"[{part}]" if isinstance(part, int) else f".{part[:MAX_NAME]}" for part in path)
    return "".join(steps).removeprefix(".")[: 3 * MAX_NAME]


def _message(error: Mapping[str, Any], value: Any) -> str:
    context = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch" and context["pattern"] in PATTERNS:
        return f"must be {PATTERNS[context['pattern']]}"
    if error["type"] in _SENTENCES:
        figures = {name: _whole(figure) for name, figure in context.items()}
        return _SENTENCES[error["type"]].format(**figures, unit=_unit(value, context))
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _whole(figure: Any) -> Any:
    return int(figure) if isinstance(figure, float) and figure.is_integer() else figure


def _unit(value: Any, context: Mapping[str, Any]) -> str:
    one = 1 in (context.get("min_length"), context.get("max_length"))
    if isinstance(value, str):
        return "character" if one else "characters"
    return "entry" if one else "entries"
