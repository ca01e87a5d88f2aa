"""Field types that several wire models share, each with its limit and a message that says it."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StringConstraints

MAX_CONTENT = 1_000_000
MAX_QUERY = 100_000
MAX_METADATA_BYTES = 64_000
MAX_METADATA_DEPTH = 20
MAX_METADATA_FILTER_BYTES = 8_000
INT32_MAX = 2**31 - 1

SLUG = r"^[a-z0-9][a-z0-9_-]{0,62}$"
MIME_TYPE = r"^[!-.0-~]{1,100}/[!-.0-~]{1,100}$"
EXTENSION = r"^\.?[^\s./\\][^\s/\\]{0,30}$"
EMAIL = r"^[^@\s]+@[^@\s]+$"
PAGE_CURSOR = r"^[0-9]{1,9}$"
# What each of them takes, for whom a regular expression says nothing: "must be …".
PATTERNS = {
    SLUG: "1 to 63 lower-case letters, digits, - and _, of which the first is a letter or a digit",
    MIME_TYPE: "a MIME type such as text/plain, of at most 100 characters on each side",
    EXTENSION: "the end of a file's name such as md or tar.gz, of at most 31 characters",
    EMAIL: "an e-mail address",
    PAGE_CURSOR: "the next_cursor of the page before",
}


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def one_line(text: str) -> str:
    """The same words with one space between them, so without line ends."""
    return " ".join(text.split())


def _rounded(number: float) -> float:
    return round(number, 6)  # a smaller one is none for a database's single precision, but an error


def _none_if_empty(text: str) -> str | None:
    return text or None


def _timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        moment = _parse_timestamp(value)
    else:
        raise ValueError("must be a string such as 2026-01-31T12:00:00Z")
    if moment.tzinfo is None:
        raise ValueError("must carry an offset, such as 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+02:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie between the years 1 and 9999 in UTC") from None


def _parse_timestamp(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a date and time between the years 1 and 9999, such as 2026-01-31T12:00:00Z") from None


def _json_at_most(limit: int) -> AfterValidator:
    def check(value: dict[str, Any]) -> dict[str, Any]:
        if _depth(value) > MAX_METADATA_DEPTH:
            raise ValueError(f"must not be nested deeper than {MAX_METADATA_DEPTH} levels")
        try:
            size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode())
        except (TypeError, ValueError):
            raise ValueError("must hold JSON values only, and numbers that are finite") from None
        if size > limit:
            raise ValueError(f"must not be larger than {limit} bytes as JSON")
        return value

    return AfterValidator(check)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [child for element in level for child in children(element)]:
        depth += 1
    return depth


def children(value: Any) -> list[Any]:
    """The values directly inside a JSON object or array; nothing for anything else."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _at_most_bytes(limit: int) -> AfterValidator:
    def check(text: str) -> str:
        if len(text.encode()) > limit:
            raise ValueError(f"must not be larger than {limit} bytes as UTF-8")
        return text

    return AfterValidator(check)


def _unique(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _lower(text: str) -> str:
    return text.lower()


def _without_dot(text: str) -> str:
    return text.removeprefix(".")


Content = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT), AfterValidator(_not_blank)]
Query = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY), AfterValidator(_not_blank)]
Title = Annotated[str, AfterValidator(one_line), Field(max_length=500), AfterValidator(_none_if_empty)]
TitlePart = Annotated[str, AfterValidator(one_line), Field(min_length=1, max_length=500)]
Tag = Annotated[str, AfterValidator(one_line), Field(min_length=1, max_length=100)]
Tags = Annotated[list[Tag], Field(max_length=50), AfterValidator(_unique)]
Name = Annotated[str, AfterValidator(one_line), Field(min_length=1, max_length=200)]
# These two are parts of the key that finds duplicates, and an index entry of Postgres holds 2,704 bytes.
SourceRef = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_not_blank), _at_most_bytes(1500)]
ConversationId = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_not_blank), _at_most_bytes(400)]
Slug = Annotated[str, StringConstraints(pattern=SLUG)]
# The name of something set up before. PostgREST says in its status line what it does not find: it must be one line.
Reference = Annotated[
    str, StringConstraints(min_length=1, max_length=100), AfterValidator(_not_blank), AfterValidator(one_line)
]
References = Annotated[list[Reference], Field(max_length=50)]
Slugs = Annotated[list[Slug], Field(max_length=50)]
Names = Annotated[list[Name], Field(max_length=50)]
Metadata = Annotated[dict[str, Any], _json_at_most(MAX_METADATA_BYTES)]
MetadataFilter = Annotated[dict[str, Any], _json_at_most(MAX_METADATA_FILTER_BYTES)]
MimeType = Annotated[str, StringConstraints(pattern=MIME_TYPE), AfterValidator(_lower)]
Extension = Annotated[
    str,
    StringConstraints(pattern=EXTENSION),
    AfterValidator(_lower),
    AfterValidator(_without_dot),
]
Timestamp = Annotated[datetime, BeforeValidator(_timestamp)]
Fraction = Annotated[StrictFloat, Field(ge=0, le=1), AfterValidator(_rounded)]
Position = Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]
Version = Annotated[StrictInt, Field(ge=1, le=INT32_MAX)]
Flag = StrictBool
