"""What surrounds one request: its id, and the key under which its effect happens once."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Call(BaseModel):
    """One request as the edge received it.

    Parameters
    ----------
    request_id
        The id that the response, the logs and the trace carry.
    idempotency_key
        The caller's `Idempotency-Key`, where one was sent.
    """

    model_config = ConfigDict(frozen=True)

    request_id: str
    idempotency_key: str | None = None

    def idempotency(self, operation: str, request: dict[str, Any]) -> dict[str, str]:
        """The key and the hash of what was asked, as the write functions of the database expect them.

        Without a key of the caller's own, the request's id is the key: then a retry inside this request is safe too.
        """
        text = json.dumps([operation, request], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return {
            "key": self.idempotency_key or f"request:{self.request_id}",
            "request_hash": hashlib.sha256(text.encode()).hexdigest(),
        }
