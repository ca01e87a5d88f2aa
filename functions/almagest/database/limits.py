"""What a row of an import is held to: that the API could have stored it, and can give it back."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationError, create_model

from almagest.models.errors import errors_of
from almagest.models.fields import (
    INT32_MAX,
    MAX_CONTENT,
    Content,
    ConversationId,
    Flag,
    Fraction,
    Metadata,
    Position,
    SourceRef,
)
from almagest.models.identity import Email

# Each edit takes one: what is left is enough for two edits a second over a decade.
MAX_VERSION = INT32_MAX - 1_000_000_000
# A chunk has at most 1200 characters; older versions, and other ways to cut a text, may have made longer ones.
MAX_CHUNK = 10_000
MAX_MODELS = 10

# As `to_jsonb` writes a time in UTC. Postgres reads much more, and the API can give back less.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _time(value: Any) -> datetime:
    try:
        if isinstance(value, str) and _TIME.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError("must be a time between the years 1 and 9999, such as 2026-01-31T12:00:00+00:00")


def demand_id(value: Any) -> UUID:
    """An id as Postgres writes it; ValueError otherwise."""
    if isinstance(value, str) and len(value) == 36:
        try:
            return UUID(value)
        except ValueError:
            pass
    raise ValueError("must be a UUID, such as 123e4567-e89b-12d3-a456-426614174000")


def _number(value: Any) -> Any:
    # What Postgres reads beside numbers is a text: NaN, Infinity.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return value


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("must not hold the character NUL")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("must not hold half a surrogate pair") from None
    return value


Time = Annotated[datetime, BeforeValidator(_time)]
Id = Annotated[UUID, BeforeValidator(demand_id)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Version = Annotated[int, Field(strict=True, ge=1, le=MAX_VERSION)]
Offset = Annotated[int, Field(strict=True, ge=0, le=MAX_CONTENT)]
_Plain = Annotated[StrictStr, BeforeValidator(_storable)]
Text = Annotated[_Plain, Field(max_length=MAX_CONTENT)]
Name = Annotated[_Plain, Field(max_length=200)]
Title = Annotated[_Plain, Field(max_length=500)]
Tag = Annotated[_Plain, Field(min_length=1, max_length=100)]
ModelName = Annotated[_Plain, Field(min_length=1, max_length=200)]
ChunkText = Annotated[_Plain, Field(min_length=1, max_length=MAX_CHUNK)]

# What a column may hold by its type in Postgres, where nothing below says more of it.
_OF_TYPE: dict[str, Any] = {
    "timestamp with time zone": Time,
    "uuid": Id,
    "uuid[]": list[Id],
    "boolean": Flag,
    "text": Text,
    "text[]": list[Text],
    "jsonb": Metadata,
    "integer": Annotated[int, Field(strict=True, ge=-INT32_MAX, le=INT32_MAX)],
    "bigint": Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)],
    "real": Number,
    "double precision": Number,
}
# What it may hold by its name, in any table: a version has what its item has.
_OF_NAME: dict[str, Any] = {
    "name": Name,
    "title": Title,
    "content": Content,
    "tag": Tag,
    "tags": list[Tag],
    "agent_name": Name,
    "source_ref": SourceRef,
    "conversation_id": ConversationId,
    "conversation_position": Position,
    "version": Version,
    "since_version": Version,
    "priority": Annotated[Fraction, BeforeValidator(_number)],
    "position": Position,
    "start_offset": Offset,
    "end_offset": Offset,
    "email": Email,
    "vectors": Annotated[dict[ModelName, Text], Field(max_length=MAX_MODELS)],
}
_OF_COLUMN: dict[tuple[str, str], Any] = {
    ("chunks", "text"): ChunkText,
    ("audit_log", "name"): Text,
    ("audit_log", "item_id"): Id | None,
}
# A row without one would be no row of an item's; the log is told of what belongs to the org, too.
_NEEDED = {"item_id"}
# Of these, null is refused by Postgres for a reason that is harder to read, or not at all.
_NEVER_NULL = {"vectors", "metadata", "knobs", "detail"}


def _item(row: Mapping[str, Any]) -> str | None:
    is_erased = row.get("state") == "erased"
    if (row.get("content") is None) != is_erased or (row.get("index_status") is None) != is_erased:
        return "has no content or index_status, or has one though it is erased"
    if (row.get("conversation_id") is None) != (row.get("conversation_position") is None):
        return "has a conversation without a position in it, or a position without a conversation"
    return None


def _chunk(row: Mapping[str, Any]) -> str | None:
    if _comes_after(row, "start_offset", "end_offset"):
        return "ends before it starts"
    if _comes_after(row, "since_version", "version"):
        return "ends with a version before its first"
    return None


def _comes_after(row: Mapping[str, Any], first: str, last: str) -> bool:
    # that they may not be null, Postgres says
    start, end = row.get(first), row.get(last)
    return start is not None and end is not None and start > end


# What several columns of a row say together: what is wrong with it, or None.
_TOGETHER: dict[str, Callable[[Mapping[str, Any]], str | None]] = {"items": _item, "chunks": _chunk}


class Limits:
    """What rows of one table are held to.

    Parameters
    ----------
    table
        In schema `almagest`.
    columns
        Type of each column that a line may name, as `format_type` writes it.
    """

    def __init__(self, table: str, columns: Mapping[str, str]) -> None:
        self._together = _TOGETHER.get(table)
        fields: dict[str, Any] = {}
        for number, (column, type_) in enumerate(columns.items()):
            allowed = _OF_COLUMN.get((table, column)) or _OF_NAME.get(column) or _OF_TYPE[type_]
            is_needed = column in _NEEDED and (table, column) not in _OF_COLUMN
            if not is_needed and column not in _NEVER_NULL:
                allowed = allowed | None
            # by an alias, since a column may be called as something of pydantic's own is
            fields[f"column_{number}"] = (allowed, Field(... if is_needed else None, alias=column))
        self._model: type[BaseModel] = create_model(table, __config__=ConfigDict(extra="forbid"), **fields)

    def complaint(self, row: Mapping[str, Any]) -> str | None:
        """What is wrong with a row, as the end of a sentence; None where nothing is."""
        try:
            self._model.model_validate(row)
        except ValidationError as error:
            return complaint_of(error, row)
        return self._together(row) if self._together else None


def complaint_of(error: ValidationError, sent: Any) -> str:
    """What a model raised, as the end of a sentence: of what is wrong, the first."""
    first = errors_of(error, sent)[0]
    return f"{first['field']}: {first['message']}" if first["field"] else first["message"]
