"""What lies in Secrets Manager, read by reference and again after a while, so that a rotation needs no deploy."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from almagest.problems import Problem
from almagest.settings import Settings

logger = logging.getLogger(__name__)

# A secret's keys -> the settings that they are.
FIELDS = {"supabase_secret_key": "supabase_key", "jwt_secret": "jwt_secret", "database_url": "database_url"}
# After a failure a container goes on with what it knows, and asks again only after this time.
RETRY_SECONDS = 15.0

Read = Callable[[str, bool], dict[str, Any]]


class IncompleteSecret(Exception):
    """A secret lacks what it had before, as when only one of its values was meant to be changed."""


class Secrets:
    """Completes settings by the secrets that they refer to.

    Parameters
    ----------
    arns
        Of the secrets, each a JSON object of some of `FIELDS`; what is empty in one is as if it were not there.
    seconds
        How long what was read is taken for true.
    read
        ARN, and whether what is remembered does not count -> the object, itself remembering it for `seconds`;
        Powertools Parameters unless something else is given.
    clock
        Monotonic seconds.

    Raises
    ------
    Problem
        From `complete`: 503 `secrets_unavailable` when nothing could be read yet, `misconfigured` when it is no secret
        of this kind.
    """

    def __init__(
        self,
        arns: Sequence[str],
        seconds: int,
        read: Read | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._arns = arns
        self._read = read or _reader(seconds)
        self._clock = clock
        self._found: dict[str, str] | None = None
        self._completed: Settings | None = None
        self._failed_at = float("-inf")
        self._anew_at = float("-inf")

    def complete(self, settings: Settings, *, anew: bool = False) -> Settings:
        """The settings with their secrets; the same object as long as no secret has changed.

        Parameters
        ----------
        settings
            What is to be completed.
        anew
            Whether what was read before is doubted, since a key of it was refused; it is read again then, though not
            more often than is good for Secrets Manager.
        """
        if self._completed is not None and self._clock() - self._failed_at < RETRY_SECONDS:
            return self._completed
        anew = anew and self._clock() - self._anew_at >= RETRY_SECONDS
        if anew:
            self._anew_at = self._clock()
        try:
            found = self._fields(anew)
            _demand_whole(found, self._found or {})
            if self._completed is None or found != self._found:
                given = {name: value for name, value in found.items() if value}
                self._completed = Settings.model_validate({**settings.model_dump(), **given})
                self._found = found
        except Exception as error:
            # Its text may hold parts of the secret, and of what surrounds it.
            logger.error("secrets not read", extra={"error": type(error).__name__})
            self._failed_at = self._clock()
            if self._completed is None:
                raise _problem(error) from None
        return self._completed

    def _fields(self, anew: bool) -> dict[str, str]:
        found = {key: value for arn in self._arns for key, value in self._read(arn, anew).items()}
        # What is no text is refused by the settings.
        return {FIELDS[key]: value for key, value in found.items() if key in FIELDS}


def _demand_whole(found: dict[str, str], before: dict[str, str]) -> None:
    """Refuse a secret that lacks what it had before; only users' tokens can be done without, where it says so."""
    lost = [name for name in before if name not in found or (before[name] and not found[name] and name != "jwt_secret")]
    if lost:
        raise IncompleteSecret(", ".join(lost))


def _problem(error: Exception) -> Problem:
    if isinstance(error, ValidationError | AttributeError):
        return Problem(503, "misconfigured", "The function does not know its database.", retry_after=60)
    detail = "The function cannot read its secrets now."
    return Problem(503, "secrets_unavailable", detail, retry_after=int(RETRY_SECONDS))


def _reader(seconds: int) -> Read:
    # Brings boto3 with it, so only where there are secrets to read.
    from aws_lambda_powertools.utilities.parameters import SecretsProvider
    from botocore.config import Config

    config = Config(connect_timeout=2, read_timeout=3, retries={"total_max_attempts": 2})
    provider = SecretsProvider(boto_config=config)

    def read(arn: str, anew: bool) -> dict[str, Any]:
        value: Any = provider.get(arn, max_age=seconds, transform="json", force_fetch=anew)
        found: dict[str, Any] = value
        return found

    return read
