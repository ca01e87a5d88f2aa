"""Who asks: the outcome of authentication."""

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class Role(StrEnum):
    """What a member or an agent may do inside an org."""

    OWNER = "owner"
    ADMIN = "admin"
    SOLUTIONS_ENGINEER = "solutions_engineer"
    PROJECT_MANAGER = "project_manager"
    MEMBER = "member"
    AGENT = "agent"


class Caller(BaseModel):
    """Org, person, agent and role behind a credential; sent to every API function as its first argument."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    org: UUID
    user: UUID | None = None
    agent: UUID | None = None
    role: Role
    key: UUID | None = None
