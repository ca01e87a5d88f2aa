"""The body of an event -> JSON, or a 4xx that says what is wrong with it."""

import base64
import binascii
import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from almagest.models.base import MAX_DEPTH
from almagest.models.errors import MAX_ERRORS, Path, field_errors, summary
from almagest.models.fields import children
from almagest.problems import Problem

MAX_BYTES = 6 * 1024 * 1024

# JSON's own; what else Unicode takes for a space is no empty body.
_WHITESPACE = " \t\r\n"
_NO_OBJECT = {"field": "", "message": "must be a JSON object"}
# Stands for a whole number of more digits: nothing here counts that far, and Python itself stops at some thousands.
_TOO_LONG = object()
_MAX_DIGITS = 300


def with_text_body(event: dict[str, Any]) -> dict[str, Any]:
    """The same event with its body as text, typed as JSON; an absent one reads as an empty object.

    Raises
    ------
    Problem
        400 `invalid_base64` or `invalid_utf8`, 413 `too_large`, 415 `unsupported_media_type`.
    """
    raw = _bytes(event)
    if raw.strip(_WHITESPACE.encode()):
        _require_json(event["headers"].get("content-type", ""))
        _require_plain(event["headers"].get("content-encoding", "identity"))
    headers = {**event["headers"], "content-type": "application/json"}
    return {**event, "headers": headers, "body": _text(raw).strip(_WHITESPACE) or "{}", "isBase64Encoded": False}


def parse_json(text: str) -> dict[str, Any]:
    """Parse a body, strictly.

    Raises
    ------
    Problem
        400 `invalid_json` or `too_deep`, 422 `invalid` where it is no object, or holds numbers that are none.
    """
    try:
        # NaN and the infinities are read, to be refused by the names of their fields.
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise _invalid_json(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    _check_depth(value)
    if not isinstance(value, dict):
        raise Problem(422, "invalid", "The body must be a JSON object.", errors=[_NO_OBJECT])
    if errors := field_errors(islice(_bad_numbers(value), MAX_ERRORS), value):
        raise Problem(422, "invalid", summary(errors), errors=errors)
    return value


def _bytes(event: dict[str, Any]) -> bytes:
    body = event.get("body") or ""
    encoded = event.get("isBase64Encoded")
    try:
        raw = base64.b64decode(body, validate=True) if encoded else body.encode()
    except (binascii.Error, ValueError):
        raise Problem(400, "invalid_base64" if encoded else "invalid_utf8", "The body cannot be decoded.") from None
    if len(raw) > MAX_BYTES:
        raise Problem(413, "too_large", "The body is larger than 6 MB.")
    return raw


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Problem(400, "invalid_utf8", "The body is not valid UTF-8.") from None


def _require_json(content_type: str) -> None:
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charset = next((p.removeprefix("charset=").strip('"') for p in parameters if p.startswith("charset=")), "utf-8")
    is_json = media_type == "application/json" or (media_type.startswith("application/") and media_type[-5:] == "+json")
    if not is_json or charset not in ("utf-8", "utf8"):
        raise Problem(415, "unsupported_media_type", "Send the body as Content-Type: application/json, in UTF-8.")


def _require_plain(encoding: str) -> None:
    if encoding.strip().lower() != "identity":
        raise Problem(415, "unsupported_media_type", "Send the body as it is, without Content-Encoding.")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for element in level for child in children(element)]
        if not level:
            return
    raise _too_deep()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _invalid_json("an object names one key twice")
    return value


def _integer(text: str) -> Any:
    return int(text) if len(text) <= _MAX_DIGITS else _TOO_LONG


def _bad_numbers(value: Any, path: Path = ()) -> Iterator[dict[str, Any]]:
    """Where a body holds what is no finite number, or one of too many digits, in pydantic's words."""
    if value is _TOO_LONG:
        yield {"loc": path, "type": "int_parsing_size"}
    elif isinstance(value, float) and not math.isfinite(value):
        yield {"loc": path, "type": "finite_number"}
    elif isinstance(value, dict):
        for key, inside in value.items():
            yield from _bad_numbers(inside, (*path, key))
    elif isinstance(value, list):
        for place, inside in enumerate(value):
            yield from _bad_numbers(inside, (*path, place))


def _invalid_json(reason: str) -> Problem:
    return Problem(400, "invalid_json", f"The body is not valid JSON: {reason}.")


def _too_deep() -> Problem:
    return Problem(400, "too_deep", f"The body is nested deeper than {MAX_DEPTH} levels.")
