"""The first and the last line of an export as they are read, and how a line that is wrong is named."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from almagest.database.limits import Id, Name, Time, complaint_of, demand_id
from almagest.database.portable import FORMAT
from almagest.models.fields import INT32_MAX, Metadata, Slug
from almagest.models.identity import Email
from almagest.problems import Problem

# What a sentence repeats of a file at the most.
MAX_REPEATED = 500

_Number = Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]
# As it stands there, since rows refer to it by these letters.
_Key = Annotated[StrictStr, BeforeValidator(lambda value: demand_id(value) and value)]
_OrgName = Annotated[Name, Field(min_length=1)]


class _Part(BaseModel):
    """What stands in a frame; a later version may say more, which this one lets through."""

    model_config = ConfigDict(extra="ignore")


class _Format(_Part):
    """What every format has."""

    almagest: Literal["export"]
    format: _Number


class NamedOrg(_Part):
    """The org that a person's export is from."""

    slug: Slug
    name: _OrgName


class WholeOrg(NamedOrg):
    """The org that an export makes."""

    id: Id
    settings: Metadata
    created_at: Time


class Person(_Part):
    """Whose export it is."""

    email: Email | None


class Places(BaseModel):
    """Names of what a person's rows refer to, by the ids that stand in them; a folder's is the path to it."""

    model_config = ConfigDict(extra="forbid")

    projects: dict[_Key, Slug] = Field(default_factory=dict)
    clients: dict[_Key, Slug] = Field(default_factory=dict)
    deals: dict[_Key, Slug] = Field(default_factory=dict)
    agents: dict[_Key, Slug] = Field(default_factory=dict)
    folders: dict[_Key, Annotated[list[Name], Field(min_length=1)]] = Field(default_factory=dict)

    def by_kind(self) -> dict[str, dict[str, Any]]:
        """The same as plain dictionaries."""
        return self.model_dump()


class Header(_Part):
    """The first line.

    Attributes
    ----------
    schema_
        Version of the database that it is from.
    user
        Whose own items it holds; None for an org's.
    places
        Empty for an org's.
    """

    schema_: _Number = Field(alias="schema")
    org: NamedOrg
    user: Person | None
    places: Places = Places()


class _OrgsHeader(Header):
    org: WholeOrg


class _PersonsHeader(Header):
    places: Places


class _End(_Part):
    """The last line."""

    rows: dict[str, Annotated[StrictInt, Field(ge=0)]]


_Model = TypeVar("_Model", bound=BaseModel)


def header_of(value: Mapping[str, Any] | None) -> Header:
    """Read the first line's JSON value; None where there is no line.

    Raises
    ------
    Problem
        422 `invalid_export` where it is no header, or of a format that this version does not read.
    """
    what = "The first line is not the header of an export"
    found = _read(_Format, value or {}, what).format
    if found != FORMAT:
        raise _invalid(f"The export has format {found}, this version reads {FORMAT}")
    assert value is not None  # noqa: S101 - it has a format
    return _read(_OrgsHeader if value.get("user") is None else _PersonsHeader, value, what)


def check_end(number: int, value: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """See that the last line counts the rows that were stored.

    Raises
    ------
    Problem
        422 `invalid_export`.
    """
    said = _read(_End, value, f"Line {number} is not the end of an export").rows
    if {table: rows for table, rows in said.items() if rows} != counts:
        raise _invalid(f"Line {number} counts other rows than the file has: lines are missing")


def wrong(number: int, what: str) -> Problem:
    """The problem of one line; `what` ends the sentence."""
    return Problem(422, "invalid_line", f"Line {number}: {shown(what)}.", line=number)


def shown(repeated: str) -> str:
    """What a sentence can repeat of a file: printable, and not too long."""
    short = repeated if len(repeated) <= MAX_REPEATED else f"{repeated[:MAX_REPEATED]} …"
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in short)


def _read(model: type[_Model], value: Mapping[str, Any], what: str) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid(f"{what}: {complaint_of(error, value)}") from None


def _invalid(sentence: str) -> Problem:
    return Problem(422, "invalid_export", f"{shown(sentence)}.")
