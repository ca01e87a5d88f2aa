"""Orgs, people, agents, their keys, and what they work on."""

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from almagest.models.base import Request, Result
from almagest.models.caller import Role
from almagest.models.fields import EMAIL, Name, Slug, Timestamp, one_line

MemberRole = Literal["owner", "admin", "solutions_engineer", "project_manager", "member"]
Email = Annotated[str, Field(max_length=320, pattern=EMAIL)]


MemberName = Annotated[
    str,
    AfterValidator(one_line),
    Field(min_length=1, max_length=320, description="The member's id or e-mail address."),
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

    @model_validator(mode="after")
    def _belongs_to_someone(self) -> Self:
        if self.member is None and self.agent is None:
            raise ValueError("name a member, an agent, or both")
        return self


class KeyRevoke(AdminRequest):
    """The end of an API key."""

    id: UUID


class KeyCreated(Result):
    """A new key; its secret is shown this once and stored nowhere."""

    id: UUID
    name: str
    prefix: str
    user: UUID | None = None
    agent: UUID | None = None
    role: Role
    expires_at: AwareDatetime | None = None
    secret: str
