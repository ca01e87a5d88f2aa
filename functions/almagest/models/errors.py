"""What is wrong with a request, field by field, without repeating what it said."""

from collections.abc import Iterable, Mapping
from typing import Any

MAX_ERRORS = 20
MAX_NAME = 100


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Turn pydantic's errors into `{field, message}` pairs.

    Parameters
    ----------
    errors
        As `ValidationError.errors()` gives them.

    Returns
    -------
    list of dict
        At most `MAX_ERRORS` pairs; a value of the request never appears in them.
    """
    return [
        {"field": _field(error["loc"]), "message": _message(error)}
        for error, _ in zip(errors, range(MAX_ERRORS), strict=False)
    ]


def summary(errors: list[dict[str, str]]) -> str:
    """One sentence that names the fields."""
    named = "; ".join(
        f"{error['field']}: {error['message']}" if error["field"] else error["message"] for error in errors
    )
    return f"The request is not valid: {named}."


def _field(location: Iterable[str | int]) -> str:
    return ".".join(str(part)[:MAX_NAME] for part in location)[: 3 * MAX_NAME]


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "missing":
        return "required"
    if error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return "must be a JSON object"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
