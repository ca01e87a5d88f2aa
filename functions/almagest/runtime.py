"""Settings -> the objects that a container keeps; the one place where they are put together."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from almagest.cache import Clock, TtlCache
from almagest.database.rpc import Rpc
from almagest.models.caller import Caller
from almagest.rate import RateLimit
from almagest.settings import Settings
from almagest.usage import Usage

if TYPE_CHECKING:
    from almagest.embedding.embedder import Embedder
    from almagest.secrets import Secrets
    from almagest.tokens import TokenVerifier


# Counts of a credential that has not come for so long are of another day.
USAGE_SECONDS = 86_400


@dataclass(frozen=True)
class Admission:
    """What is known of a credential that is valid.

    Attributes
    ----------
    caller
        Who carries it.
    rate
        Requests a second that it may send; None for the default.
    usage
        This container's count of its requests.
    """

    caller: Caller
    rate: float | None
    usage: Usage


class Runtime:
    """What operations work with.

    Parameters
    ----------
    settings
        What the process knows from outside.
    rpc
        The request path's door to the database.
    """

    def __init__(self, settings: Settings, rpc: Rpc) -> None:
        self.settings = settings
        self.rpc = rpc
        self.callers: TtlCache[str, Admission] = TtlCache(settings.caller_cache_seconds, clock=Clock())
        self.usage: TtlCache[str, Usage] = TtlCache(USAGE_SECONDS, size=10_000, clock=Clock())
        self.rate_limit = RateLimit(settings.rate_limit)
        self.fits_schema = False

    @classmethod
    def from_settings(cls, settings: Settings) -> "Runtime":
        """Open what the settings name."""
        return cls(settings, Rpc(settings))

    def renew(self, settings: Settings, rpc: Rpc) -> None:
        """Go on with other credentials; the model, the limits and what is known of callers stay."""
        before, self.rpc = self.rpc, rpc
        self.settings = settings
        self.__dict__.pop("tokens", None)
        before.close()

    @cached_property
    def embedder(self) -> "Embedder":
        """Made on first use, since it brings the heaviest imports."""
        from almagest.embedding.embedder import Embedder

        return Embedder(self.settings.model_path, self.settings.model_name, self.settings.threads)

    def renew_embedder(self) -> None:
        """Let the next use load the model from its files again."""
        self.__dict__.pop("embedder", None)

    @cached_property
    def tokens(self) -> "TokenVerifier":
        """Made by the first user who comes with a token; most callers have keys."""
        from almagest.tokens import TokenVerifier

        return TokenVerifier(self.settings)

    @cached_property
    def functions(self) -> Any:
        """AWS' client for invoking other functions; a call that does not answer soon is given up."""
        import boto3
        from botocore.config import Config

        config = Config(connect_timeout=2, read_timeout=3, retries={"total_max_attempts": 1})
        return boto3.client("lambda", config=config)


class Container:
    """Keeps one runtime, and has it go on with new credentials when a secret was rotated.

    Parameters
    ----------
    settings
        Of the environment.
    secrets
        Reads what the settings only refer to; None where they refer to nothing.
    """

    def __init__(self, settings: Settings, secrets: "Secrets | None" = None) -> None:
        self._settings = settings
        self._secrets = secrets
        self._runtime: Runtime | None = None

    def runtime(self) -> Runtime:
        """The runtime, with the credentials that are valid now.

        Raises
        ------
        Problem
            503 `misconfigured` or `secrets_unavailable`.
        """
        settings = self._secrets.complete(self._settings) if self._secrets else self._settings
        if self._runtime is None:
            self._runtime = Runtime(settings, Rpc(settings, self._fresh_key))
        elif self._runtime.settings is not settings:
            self._runtime.renew(settings, Rpc(settings, self._fresh_key))
        return self._runtime

    def _fresh_key(self) -> str | None:
        """The key as the secret has it now, whose rotation was not waited for."""
        key = self._secrets.complete(self._settings, anew=True).supabase_key if self._secrets else None
        return key.get_secret_value() if key else None


@cache
def _container() -> Container:
    settings = Settings()
    if not settings.secrets:
        return Container(settings)
    from almagest.secrets import Secrets

    return Container(settings, Secrets(settings.secrets.split(","), settings.secret_seconds))


def container() -> Runtime:
    """The runtime of this container, made by its first request and kept."""
    return _container().runtime()
