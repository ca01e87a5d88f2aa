"""Settings -> the objects that a container keeps; the one place where they are put together."""

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from almagest.cache import TtlCache
from almagest.database.rpc import Rpc
from almagest.models.caller import Caller
from almagest.rate import RateLimit
from almagest.settings import Settings

if TYPE_CHECKING:
    from almagest.embedding.embedder import Embedder
    from almagest.tokens import TokenVerifier


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
        self.callers: TtlCache[str, Caller] = TtlCache(settings.caller_cache_seconds)
        self.rate_limit = RateLimit(settings.rate_limit)
        self.fits_schema = False

    @classmethod
    def from_settings(cls, settings: Settings) -> "Runtime":
        """Open what the settings name."""
        return cls(settings, Rpc(settings))

    @cached_property
    def embedder(self) -> "Embedder":
        """Made on first use, since it brings the heaviest imports."""
        from almagest.embedding.embedder import Embedder

        return Embedder(self.settings.model_path, self.settings.model_name, self.settings.threads)

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


@cache
def container() -> Runtime:
    """The runtime of this container, made by its first request and kept."""
    return Runtime.from_settings(Settings())
