"""A Supabase user's JWT -> the user's id, where the token is genuine."""

import base64
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from threading import Lock
from typing import Any
from uuid import UUID

import httpx
import jwt

from almagest import deadline
from almagest.cache import Clock
from almagest.problems import Problem
from almagest.settings import Settings

logger = logging.getLogger(__name__)

AUDIENCE = "authenticated"
# What Supabase issues has one or two thousand.
MAX_CHARACTERS = 8000
KEYS_SECONDS = 600.0
# An unknown key id may mean that keys were rotated; asking again is limited, since anybody can send one.
UNKNOWN_KEY_SECONDS = 30.0
# A key set that could not be read is asked for again only after a while, for the same reason.
RETRY_SECONDS = 5.0
# While none can be read, the last one counts for so long: a key that was withdrawn meanwhile is refused at last.
WITHOUT_SECONDS = 3600.0
# A key decides its algorithm; what a token claims about it can only agree or be refused.
ALGORITHMS = {("EC", "P-256"): "ES256", ("RSA", None): "RS256"}


class TokenVerifier:
    """Verifies tokens of one Supabase project.

    Parameters
    ----------
    settings
        Names the project, the issuer where it differs, and the legacy secret where there is one.
    fetch
        Gets the JSON of the project's key set.
    clock
        Monotonic seconds, which go on while the container is frozen; a `Clock` where none is given.
    """

    def __init__(
        self,
        settings: Settings,
        fetch: Callable[[str], dict[str, Any]] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        base = (settings.supabase_url or "").rstrip("/")
        self._issuer = settings.jwt_issuer or f"{base}/auth/v1"
        self._keys_url = f"{base}/auth/v1/.well-known/jwks.json"
        self._secret = settings.jwt_secret.get_secret_value() if settings.jwt_secret else None
        self._fetch = fetch or _fetch
        self._clock = clock or Clock()
        self._lock = Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked_at = float("-inf")
        self._failed_at = float("-inf")

    def user_of(self, token: str) -> str:
        """Id of the user whose token this is.

        Raises
        ------
        Problem
            401 for a token that is not genuine or not of a user; 503 `identity_unavailable` when that cannot be told.
        """
        try:
            _require_plain(token)
            header = jwt.get_unverified_header(token)
            key, algorithm = self._key(header)
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=AUDIENCE,
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            return str(UUID(claims["sub"]))
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise _not_genuine() from None

    def _key(self, header: dict[str, Any]) -> tuple[Any, str]:
        if header.get("alg") == "HS256":
            if self._secret is None:
                raise _not_genuine()
            return self._secret, "HS256"
        if header.get("alg") not in ALGORITHMS.values():
            raise _not_genuine()
        key = self._published_key(str(header["kid"]))
        if key is None:
            raise _not_genuine()
        return key.key, _algorithm(key)

    def _published_key(self, kid: str) -> jwt.PyJWK | None:
        with self._lock:
            age = self._clock() - self._asked_at
            if age > KEYS_SECONDS or (kid not in self._keys and age > UNKNOWN_KEY_SECONDS):
                self._refresh()
            return self._keys.get(kid)

    def _refresh(self) -> None:
        if self._clock() - self._failed_at < RETRY_SECONDS:
            return self._do_without()
        try:
            published = self._fetch(self._keys_url)["keys"]
            if not isinstance(published, list):
                raise TypeError
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            logger.error("key set not read", extra={"error": type(error).__name__})
            self._failed_at = self._clock()
            return self._do_without()
        self._keys = dict(filter(None, map(_read_key, published)))
        self._asked_at = self._clock()

    def _do_without(self) -> None:
        """Go on with the keys that are known; without any, no token can be told from a forged one."""
        if not self._keys or self._clock() - self._asked_at > WITHOUT_SECONDS:
            detail = "The identity service is not available."
            raise Problem(503, "identity_unavailable", detail, retry_after=int(RETRY_SECONDS))


def _require_plain(token: str) -> None:
    """Refuse what a genuine token never is: larger than the edge reads, or with a name twice, which readers differ on.

    Raises
    ------
    ValueError
        Also for what is no JSON.
    """
    if len(token) > MAX_CHARACTERS:
        raise ValueError
    for part in token.split(".")[:2]:
        json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _not_genuine() -> Problem:
    return Problem(401, "unauthorized", "The token is not a valid one.")


def _read_key(published: Any) -> tuple[str, jwt.PyJWK] | None:
    """A key of a key set with its id; None for one that signs nothing here, or that is none: the others still count."""
    try:
        algorithm = ALGORITHMS.get((published["kty"], published.get("crv")))
        if algorithm is None or published.get("alg", algorithm) != algorithm or published.get("use", "sig") != "sig":
            return None
        return str(published["kid"]), jwt.PyJWK(published, algorithm)
    except (jwt.PyJWTError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.error("key of the key set not read", extra={"error": type(error).__name__})
        return None


def _algorithm(key: jwt.PyJWK) -> str:
    return ALGORITHMS["EC", "P-256"] if key.key_type == "EC" else ALGORITHMS["RSA", None]


def _fetch(url: str) -> dict[str, Any]:
    response = httpx.get(url, timeout=max(0.1, deadline.remaining(3)))
    if response.status_code == HTTPStatus.NOT_FOUND:
        return {"keys": []}  # a project without asymmetric keys: whoever signs with one is no user of it
    response.raise_for_status()
    document: dict[str, Any] = response.json()
    return document
