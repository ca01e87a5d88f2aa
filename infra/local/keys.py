"""The keys of the local project."""

import secrets
from dataclasses import dataclass
from functools import cached_property

import jwt

LEGACY_ROLES = ("anon", "service_role")


@dataclass(frozen=True)
class Keys:
    """The secrets of one project."""

    secret: str
    publishable: str
    jwt_secret: str

    @classmethod
    def create(cls) -> "Keys":
        """Draw new ones."""
        return cls(
            secret=f"sb_secret_{secrets.token_urlsafe(24)}",
            publishable=f"sb_publishable_{secrets.token_urlsafe(24)}",
            jwt_secret=secrets.token_urlsafe(48),
        )

    def token(self, apikey: str) -> str | None:
        """Return the JWT that an `apikey` stands for; None when it is no key of this project."""
        for known, token in self._tokens:
            if secrets.compare_digest(known.encode(), apikey.encode()):
                return token
        return apikey if self._is_legacy_key(apikey) else None

    @cached_property
    def _tokens(self) -> list[tuple[str, str]]:
        return [(self.secret, self.sign("service_role")), (self.publishable, self.sign("anon"))]

    def sign(self, role: str) -> str:
        """Return a JWT of `role`, such as a legacy key is."""
        return jwt.encode({"iss": "supabase", "role": role}, self.jwt_secret, algorithm="HS256")

    def _is_legacy_key(self, apikey: str) -> bool:
        try:
            return jwt.decode(apikey, self.jwt_secret, algorithms=["HS256"]).get("role") in LEGACY_ROLES
        except jwt.InvalidTokenError:
            return False
