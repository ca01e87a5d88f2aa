"""The headers of an event -> the caller and their limits; before anything else of the event is looked at."""

import re
from collections.abc import Mapping

from almagest.edge.problems import unauthorized
from almagest.operations.authenticate import authenticate_key, authenticate_token
from almagest.runtime import Admission, Runtime

_BEARER = re.compile(r"bearer +([!-~]+)", re.IGNORECASE)
_API_KEY = re.compile(r"alm_[A-Za-z0-9_-]{43}")
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_ORG = re.compile(r"[A-Za-z0-9_-]{1,63}")


def authenticate(runtime: Runtime, headers: Mapping[str, str]) -> Admission:
    """Who sends this request, and what of it is left to them.

    Parameters
    ----------
    headers
        With names in lower case: `authorization`, and `x-almagest-org` where a user belongs to several orgs.

    Raises
    ------
    Problem
        401, or 503 where the credential cannot be checked.
    """
    bearer = _BEARER.fullmatch(headers.get("authorization", ""))
    if not bearer:
        raise unauthorized()
    token = bearer[1]
    if _API_KEY.fullmatch(token):
        return authenticate_key(runtime, token)
    org = headers.get("x-almagest-org")
    if not _JWT.fullmatch(token) or (org is not None and not _ORG.fullmatch(org)):
        raise unauthorized()
    return authenticate_token(runtime, token, org)
