"""Search profiles: named sets of the knobs that a search turns by."""

from typing import Any, Literal

from pydantic import AwareDatetime, Field

from almagest.models.base import Request, Result

Knobs = dict[str, Any]


class ProfileWrite(Request):
    """An org's own knobs in a profile, in place of those it had. What is left out is as it is built in."""

    knobs: Knobs = Field(
        description="Values by name, as `definitions` describes them; in `modes`, for one mode of answering alone: "
        '`{"modes": {"lexical": {"high": 0.5}}}`.'
    )


class ProfileEntry(Result):
    """A profile in a list."""

    name: str
    description: str | None = None
    built_in: bool
    own: bool = Field(description="Whether the org has knobs of its own in it.")
    updated_at: AwareDatetime | None = None


class ProfileList(Result):
    """All profiles that searches may name."""

    profiles: list[ProfileEntry]


class KnobDefinition(Result):
    """What a knob is, and what it may be."""

    knob: str
    kind: Literal["number", "integer", "boolean", "choice"]
    minimum: float | None = None
    maximum: float | None = None
    choices: list[str] | None = None
    description: str


class Profile(Result):
    """A profile as the next search will use it."""

    name: str
    description: str | None = None
    built_in: bool
    own: Knobs | None = Field(None, description="What the org has set; null where it has set nothing.")
    updated_at: AwareDatetime | None = None
    knobs: Knobs = Field(description="All knobs as they count, and in `modes` what differs in one mode.")


class DescribedProfile(Profile):
    """The same, with what each knob may be."""

    definitions: list[KnobDefinition]


class ProfileReset(Result):
    """A profile without the org's own knobs: as it is built in, or gone."""

    name: str
    built_in: bool
