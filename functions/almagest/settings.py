"""Environment -> Settings: the only module that reads environment variables."""

import re
import sys
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

MODEL_NAME = "sentence-transformers/all-MiniLM-L6-v2"


def _web_address(url: str) -> str:
    if not re.match(r"https?://[^\s/?#]", url):
        raise ValueError("must be a URL such as https://<ref>.supabase.co")
    return url


def _sendable(key: SecretStr) -> SecretStr:
    if not re.fullmatch("[!-~]+", key.get_secret_value()):
        raise ValueError("must be printable ASCII characters without spaces")
    return key


class Settings(BaseSettings):
    """What a process needs to know from outside; every field names its variables.

    Raises
    ------
    pydantic.ValidationError
        When a variable has an impossible value; the message names it.
    """

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True)

    supabase_url: Annotated[str, AfterValidator(_web_address)] | None = Field(None, validation_alias="SUPABASE_URL")
    supabase_key: Annotated[SecretStr, AfterValidator(_sendable)] | None = Field(
        None,
        validation_alias=AliasChoices("SUPABASE_SECRET_KEY", "SUPABASE_SERVICE_ROLE_KEY", "SUPABASE_KEY"),
        description="A secret key (sb_secret_…) or a legacy service_role JWT.",
    )
    database_url: SecretStr | None = Field(None, validation_alias="DATABASE_URL")
    jwt_secret: SecretStr | None = Field(None, validation_alias="SUPABASE_JWT_SECRET")
    jwt_issuer: str | None = Field(None, validation_alias="SUPABASE_JWT_ISSUER")

    secrets: str | None = Field(
        None,
        validation_alias="ALMAGEST_SECRETS",
        description="ARNs, with commas between them, of secrets that hold the key, the URL and the secret above.",
    )
    secret_seconds: int = Field(300, ge=1, le=3600, validation_alias="ALMAGEST_SECRET_SECONDS")

    directory: Path = Field(Path(".almagest"), validation_alias="ALMAGEST_DIR")
    port: int = Field(8787, ge=1, le=65535, validation_alias="ALMAGEST_PORT")
    api_key: SecretStr | None = Field(None, validation_alias="ALMAGEST_KEY")

    model_name: str = Field(MODEL_NAME, validation_alias="ALMAGEST_MODEL")
    model_directory: Path | None = Field(None, validation_alias="ALMAGEST_MODEL_DIR")
    threads: int = Field(2, ge=1, le=64, validation_alias="ALMAGEST_THREADS")

    inline_chunks: int = Field(64, ge=0, validation_alias="ALMAGEST_INLINE_CHUNKS")
    stack: str = Field("local", validation_alias="ALMAGEST_STACK", description="Name of the stack, in its metrics.")
    index_function: str | None = Field(None, validation_alias="ALMAGEST_INDEX_FUNCTION")
    rate_limit: float = Field(100, gt=0, validation_alias="ALMAGEST_RATE_LIMIT")
    caller_cache_seconds: float = Field(30, ge=0, le=30, validation_alias="ALMAGEST_CALLER_CACHE_SECONDS")
    rpc_timeout_seconds: float = Field(25, gt=0, validation_alias="ALMAGEST_RPC_TIMEOUT_SECONDS")
    task_root: Path | None = Field(None, validation_alias="LAMBDA_TASK_ROOT")

    @cached_property
    def model_path(self) -> Path:
        """The folder of the model's plain files: given, in the Lambda package, or in this Python's environment."""
        if self.model_directory:
            return self.model_directory
        base = self.task_root if self.task_root else Path(sys.prefix) / "share" / "almagest"
        return base / "model"
