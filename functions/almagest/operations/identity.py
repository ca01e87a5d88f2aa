"""Orgs, members, agents, keys, and what they work on. A caller of None is the system itself, at its own console."""

import secrets
from typing import Any

from almagest.models.base import Request
from almagest.models.caller import Caller
from almagest.models.identity import (
    AdminRequest,
    AgentCreate,
    DealCreate,
    KeyCreate,
    KeyCreated,
    KeyLimit,
    KeyRevoke,
    KeyRotate,
    KeyRotated,
    MemberAdd,
    MemberRemove,
    MemberRoleSet,
    OrgCreate,
    ScopeCreate,
    ScopeGrant,
)
from almagest.operations.authenticate import hash_key
from almagest.runtime import Runtime

KEY_PREFIX = "alm_"
# As much of a key as lets a person tell it from the others: 48 of its 256 bits stay visible.
VISIBLE_CHARACTERS = len(KEY_PREFIX) + 8

Answer = dict[str, Any]


def create_org(runtime: Runtime, caller: Caller | None, request: OrgCreate) -> Answer:
    """Make a tenant and its first owner."""
    return _write(runtime, "create_org", caller, request)


def list_orgs(runtime: Runtime, caller: Caller | None) -> Answer:
    """All orgs; for the system alone."""
    return runtime.rpc.call("list_orgs", caller, {}, retry=True)


def add_member(runtime: Runtime, caller: Caller | None, request: MemberAdd) -> Answer:
    """Let a person join."""
    return _write(runtime, "add_member", caller, request)


def list_members(runtime: Runtime, caller: Caller | None, request: AdminRequest) -> Answer:
    """Who belongs to the org."""
    return _read(runtime, "list_members", caller, request)


def set_member_role(runtime: Runtime, caller: Caller | None, request: MemberRoleSet) -> Answer:
    """Give a member another role."""
    return _write(runtime, "set_member_role", caller, request)


def remove_member(runtime: Runtime, caller: Caller | None, request: MemberRemove) -> Answer:
    """Let a member go, with every key of theirs."""
    return _write(runtime, "remove_member", caller, request)


def create_project(runtime: Runtime, caller: Caller | None, request: ScopeCreate) -> Answer:
    """Make a project, which documents and memories may belong to."""
    return _write(runtime, "create_project", caller, request)


def create_client(runtime: Runtime, caller: Caller | None, request: ScopeCreate) -> Answer:
    """Make a client, whom the org works for."""
    return _write(runtime, "create_client", caller, request)


def create_deal(runtime: Runtime, caller: Caller | None, request: DealCreate) -> Answer:
    """Make a deal, one engagement with a client."""
    return _write(runtime, "create_deal", caller, request)


def list_projects(runtime: Runtime, caller: Caller | None, request: AdminRequest) -> Answer:
    """The org's projects."""
    return _read(runtime, "list_projects", caller, request)


def list_clients(runtime: Runtime, caller: Caller | None, request: AdminRequest) -> Answer:
    """The clients that the caller may see."""
    return _read(runtime, "list_clients", caller, request)


def list_deals(runtime: Runtime, caller: Caller | None, request: AdminRequest) -> Answer:
    """The deals that the caller may see."""
    return _read(runtime, "list_deals", caller, request)


def grant_scope(runtime: Runtime, caller: Caller | None, request: ScopeGrant) -> Answer:
    """Let a member or an agent see a client's or a deal's items."""
    return _write(runtime, "grant_scope", caller, request)


def revoke_scope(runtime: Runtime, caller: Caller | None, request: ScopeGrant) -> Answer:
    """Take that sight away."""
    return _write(runtime, "revoke_scope", caller, request)


def list_scopes(runtime: Runtime, caller: Caller | None, request: AdminRequest) -> Answer:
    """Who works on which clients and deals."""
    return _read(runtime, "list_scopes", caller, request)


def create_agent(runtime: Runtime, caller: Caller | None, request: AgentCreate) -> Answer:
    """Make an agent with a credential of its own."""
    return _write(runtime, "create_agent", caller, request)


def list_agents(runtime: Runtime, caller: Caller | None, request: AdminRequest) -> Answer:
    """The org's agents."""
    return _read(runtime, "list_agents", caller, request)


def create_key(runtime: Runtime, caller: Caller | None, request: KeyCreate) -> KeyCreated:
    """Make an API key of 256 random bits. The secret is in the answer and nowhere else: only its hash is sent."""
    secret, hashed = _new_secret()
    fields = {**request.model_dump(mode="json", exclude_none=True), **hashed}
    answer = runtime.rpc.call("create_key", caller, fields, retry=False)
    return KeyCreated.model_validate({**answer, "secret": secret})


def rotate_key(runtime: Runtime, caller: Caller | None, request: KeyRotate) -> KeyRotated:
    """Make a key in place of another, of the same owner and with the same limits; the other ends after the overlap."""
    secret, hashed = _new_secret()
    fields = {
        **request.model_dump(mode="json", exclude_none=True, exclude={"overlap"}),
        "overlap_seconds": request.overlap.total_seconds(),
        **hashed,
    }
    answer = runtime.rpc.call("rotate_key", caller, fields, retry=False)
    return KeyRotated.model_validate({**answer, "secret": secret})


def limit_key(runtime: Runtime, caller: Caller | None, request: KeyLimit) -> Answer:
    """Give a key another rate or quota; a function may use the old ones for as long as callers are cached."""
    return runtime.rpc.call("limit_key", caller, request.model_dump(mode="json", exclude_unset=True), retry=True)


def list_keys(runtime: Runtime, caller: Caller | None, request: AdminRequest) -> Answer:
    """The org's keys by name and prefix, with what each has used today of its quota, and when it was last used."""
    return _read(runtime, "list_keys", caller, request)


def revoke_key(runtime: Runtime, caller: Caller | None, request: KeyRevoke) -> Answer:
    """End a key; a function may still know it for as long as callers are cached."""
    return _write(runtime, "revoke_key", caller, request)


def _new_secret() -> tuple[str, dict[str, str]]:
    """A key, and what the database may know of it."""
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    return secret, {"key_hash": hash_key(secret), "prefix": secret[:VISIBLE_CHARACTERS]}


def _write(runtime: Runtime, name: str, caller: Caller | None, request: Request) -> Answer:
    # Not made a second time when the connection dies: these calls carry no idempotency key.
    return runtime.rpc.call(name, caller, request.model_dump(mode="json", exclude_none=True), retry=False)


def _read(runtime: Runtime, name: str, caller: Caller | None, request: Request) -> Answer:
    return runtime.rpc.call(name, caller, request.model_dump(mode="json", exclude_none=True), retry=True)
