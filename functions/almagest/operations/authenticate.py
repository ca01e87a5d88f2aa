"""A credential -> the caller behind it."""

import hashlib
import time
from datetime import UTC, datetime
from typing import Any

from almagest.models.caller import Caller
from almagest.runtime import Admission, Runtime
from almagest.usage import Usage


def authenticate_key(runtime: Runtime, token: str) -> Admission:
    """The caller of an API key, and its limits; only the key's hash leaves this process.

    Raises
    ------
    Problem
        401 when there is no such key, or no longer.
    """
    key_hash = hash_key(token)
    return _authenticate(runtime, f"key:{key_hash}", {"key_hash": key_hash})


def authenticate_token(runtime: Runtime, token: str, org: str | None) -> Admission:
    """The caller of a Supabase user's JWT, who has the default rate and no quota.

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


def _authenticate(runtime: Runtime, name: str, credential: dict[str, Any]) -> Admission:
    known = runtime.callers.get(name)
    if known and not known.usage.is_due():
        return known
    usage = runtime.usage.get(name) or Usage()
    report = usage.report()
    answer = runtime.rpc.call("authenticate", None, {**credential, "usage": report}, retry=True)
    usage.learn(report, answer.get("used_today", 0), answer.get("daily_quota"), answer.get("sources", 1))
    admission = Admission(Caller.model_validate(answer), answer.get("rate"), usage)
    runtime.usage.put(name, usage)
    runtime.callers.put(name, admission, _lifetime(answer.get("expires_at")))
    return admission


def _lifetime(expires_at: str | None) -> float | None:
    return (datetime.fromisoformat(expires_at).astimezone(UTC).timestamp() - time.time()) if expires_at else None
