"""What a new stack needs before it can answer: a migrated database, and an org with an owner who has a key."""

from collections.abc import Callable

from pydantic import SecretStr

from almagest.database.migrate import migrate
from almagest.models.identity import KeyCreate, OrgCreate, OwnerCreate
from almagest.operations import identity
from almagest.problems import Problem
from almagest.runtime import Runtime
from almagest.settings import Settings

ORG = "local"
OWNER = "owner@localhost.localdomain"

__all__ = ["create_owner", "migrate"]


def create_owner(settings: Settings, supabase_url: str, supabase_key: str, report: Callable[[str], None]) -> str:
    """Make the org and its owner, and return a new API key of theirs.

    An org that an interrupted first start left behind is taken as it is.
    """
    runtime = Runtime.from_settings(
        settings.model_copy(update={"supabase_url": supabase_url, "supabase_key": SecretStr(supabase_key)})
    )
    try:
        owner = OwnerCreate(email=OWNER, name="Owner")
        try:
            identity.create_org(runtime, None, OrgCreate(slug=ORG, name="Local", owner=owner))
            report(f"Made the org {ORG}.")
        except Problem as problem:
            if problem.status != 409:
                raise
        return identity.create_key(runtime, None, KeyCreate(org=ORG, name="local stack", member=OWNER)).secret
    finally:
        runtime.rpc.close()
