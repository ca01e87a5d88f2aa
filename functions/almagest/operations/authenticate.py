"""A credential -> the caller behind it."""

import hashlib
import time
from datetime import UTC, datetime
from typing import Any

from almagest.models.caller import Caller
from almagest.runtime import Runtime


def authenticate_key(runtime: Runtime, token: str) -> Caller:
    """The caller of an API key; only the key's hash leaves this process.

    Raises
    ------
    Problem
        401 when there is no such key, or no longer.
    """
    key_hash = hash_key(token)
    return _authenticate(runtime, f"key:{key_hash}", {"key_hash": key_hash})


def authenticate_token(runtime: Runtime, token: str, org: str | None) -> Caller:
    """The caller of a Supabase user's JWT.

    Parameters
    ----------
    org
        Slug or id of one of the user's orgs; None where there is one only.

    Raises
    ------
    Problem
        401 when the token is not genuine, or its user no member of such an org.
    """
    user_id = runtime.tokens.user_of(token)
    return _authenticate(runtime, f"user:{user_id}:{org or ''}", {"user_id": user_id, "org": org})


def hash_key(token: str) -> str:
    """SHA-256 of an API key, hex: what is stored of it."""
    return hashlib.sha256(token.encode()).hexdigest()


def _authenticate(runtime: Runtime, name: str, credential: dict[str, Any]) -> Caller:
    known = runtime.callers.get(name)
    if known:
        return known
    answer = runtime.rpc.call("authenticate", None, credential, retry=True)
    caller = Caller.model_validate(answer)
    runtime.callers.put(name, caller, _lifetime(answer.get("expires_at")))
    return caller


def _lifetime(expires_at: str | None) -> float | None:
    return (datetime.fromisoformat(expires_at).astimezone(UTC).timestamp() - time.time()) if expires_at else None
