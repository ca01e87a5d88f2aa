"""Orgs, people, agents, their keys, and what they work on."""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    StrictFloat,
    StrictInt,
    StringConstraints,
    model_validator,
)

from almagest.models.base import Request, Result
from almagest.models.caller import Role
from almagest.models.fields import EMAIL, INT32_MAX, Name, Slug, Timestamp, one_line

MemberRole = Literal["owner", "admin", "solutions_engineer", "project_manager", "member"]
Email = Annotated[str, Field(max_length=320, pattern=EMAIL)]


KeyPrefix = Annotated[str, StringConstraints(pattern=r"^alm_[A-Za-z0-9_-]{8}$")]
# The key's id, or the part of it that lists show.
KeyName = UUID | KeyPrefix
MemberName = Annotated[
    str,
    AfterValidator(one_line),
    Field(min_length=1, max_length=320, description="The member's id or e-mail address."),
]

MAX_OVERLAP = timedelta(days=30)
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a number of s, m, h or d, such as 90m, 24h or 7d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _overlap(value: timedelta) -> timedelta:
    if value > MAX_OVERLAP:
        raise ValueError("must not be longer than 30d")
    return value


Overlap = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_overlap)]
Rate = Annotated[StrictFloat, Field(gt=0, le=10_000, description="Requests a second that a container lets through.")]
DailyQuota = Annotated[
    StrictInt, Field(ge=1, le=INT32_MAX, description="Requests a UTC day, of all containers together.")
]


class AdminRequest(Request):
    """A request about one org: the caller's own, or the one named by whoever runs the system."""

    org: Slug | None = Field(None, description="Only for the system itself; a caller's org is the credential's.")


class OwnerCreate(Request):
    """The first member of a new org."""

    user_id: UUID | None = None
    email: Email
    name: Name | None = None


class OrgCreate(Request):
    """A new tenant."""

    slug: Slug
    name: Name
    owner: OwnerCreate


class MemberAdd(AdminRequest):
    """A person who joins an org."""

    email: Email
    role: MemberRole = "member"
    user_id: UUID | None = None
    name: Name | None = None


class MemberRoleSet(AdminRequest):
    """Another role for a member."""

    member: MemberName
    role: MemberRole


class MemberRemove(AdminRequest):
    """A person who leaves."""

    member: MemberName


class ScopeCreate(AdminRequest):
    """A new project or client."""

    slug: Slug
    name: Name


class DealCreate(ScopeCreate):
    """A new engagement with a client."""

    client: Slug


class ScopeGrant(AdminRequest):
    """One client or deal that a member or an agent works on."""

    member: MemberName | None = None
    agent: Slug | None = None
    client: Slug | None = None
    deal: Slug | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.member is None) == (self.agent is None):
            raise ValueError("name either a member or an agent")
        if (self.client is None) == (self.deal is None):
            raise ValueError("name either a client or a deal")
        return self


class AgentCreate(AdminRequest):
    """An agent with a credential of its own."""

    slug: Slug
    name: Name


class KeyCreate(AdminRequest):
    """A new API key, for a member, an agent, or an agent that works for a member."""

    name: Name
    member: MemberName | None = None
    agent: Slug | None = None
    expires_at: Timestamp | None = None
    rate: Rate | None = Field(None, description="None is the default of the installation.")
    daily_quota: DailyQuota | None = Field(None, description="None is no limit.")

    @model_validator(mode="after")
    def _belongs_to_someone(self) -> Self:
        if self.member is None and self.agent is None:
            raise ValueError("name a member, an agent, or both")
        return self


class KeyRevoke(AdminRequest):
    """The end of an API key."""

    id: KeyName


class KeyLimit(AdminRequest):
    """Other limits of a key: what is left out stays, None is the default rate, or no quota."""

    id: KeyName
    rate: Rate | None = None
    daily_quota: DailyQuota | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set & {"rate", "daily_quota"}:
            raise ValueError("name a rate, a daily quota, or both")
        return self


class KeyRotate(AdminRequest):
    """A new key in place of another; both hold for as long as they overlap."""

    id: KeyName
    overlap: Overlap = timedelta(hours=24)
    expires_at: Timestamp | None = Field(None, description="None is as long a life as the old key was made for.")


class KeyCreated(Result):
    """A new key; its secret is shown this once and stored nowhere."""

    id: UUID
    name: str
    prefix: str
    user: UUID | None = None
    agent: UUID | None = None
    role: Role
    expires_at: AwareDatetime | None = None
    rate: float | None = None
    daily_quota: int | None = None
    secret: str


class ReplacedKey(Result):
    """A key that was rotated, and when it ends."""

    id: UUID
    expires_at: AwareDatetime


class KeyRotated(KeyCreated):
    """A new key in place of another."""

    replaces: ReplacedKey
