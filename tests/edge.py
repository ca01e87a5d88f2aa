"""Function URL events, and what stands in for the parts behind the edge in unit tests."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from almagest.database.rpc import Rpc
from almagest.edge.app import App
from almagest.models.caller import Caller
from almagest.problems import Problem
from almagest.runtime import Runtime
from almagest.schema import SCHEMA
from almagest.settings import Settings

KEY = "alm_" + "k" * 43
CALLER = {"org": str(uuid4()), "user": str(uuid4()), "agent": None, "role": "member", "key": str(uuid4())}

Answer = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class FakeRpc:
    """Answers API functions by plain functions, and remembers what was asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, Caller | None, dict[str, Any]]] = field(default_factory=list)
    retries: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers.setdefault("authenticate", authenticate)
        self.answers.setdefault("get_schema", lambda _: {"version": SCHEMA, "serves_since": SCHEMA})

    def call(self, name: str, caller: Caller | None, request: dict[str, Any], *, retry: bool) -> dict[str, Any]:
        self.asked.append((name, caller, request))
        self.retries[name] = retry
        return self.answers[name](request)

    def requests(self, name: str) -> list[dict[str, Any]]:
        """What one function was asked, in order."""
        return [request for asked, _, request in self.asked if asked == name]


def authenticate(request: dict[str, Any]) -> dict[str, Any]:
    """Knows every well-formed key but those of x."""
    if request.get("key_hash") in REFUSED:
        raise Problem(401, "unauthorized", "No such key; and this sentence must not be told.")
    return CALLER


@dataclass
class FakeEmbedder:
    """Vectors without a model; with `reason`, none at all."""

    reason: str | None = None
    model: str = "fake@1"
    window: int = 512

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        from almagest.embedding.embedder import EmbeddingUnavailable

        if self.reason:
            raise EmbeddingUnavailable(self.reason, "as the test says")
        return [len(text.split()) + 2 for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_passages([text])[0]

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        from almagest.embedding.embedder import EmbeddingUnavailable

        if self.reason:
            raise EmbeddingUnavailable(self.reason, "as the test says")
        return [[1.0, float(len(text))] + [0.0] * 382 for text in texts]


class Context:
    """What Lambda passes beside an event."""

    aws_request_id = "lambda-1"

    def __init__(self, milliseconds: int = 30_000) -> None:
        self._milliseconds = milliseconds

    def get_remaining_time_in_millis(self) -> int:
        return self._milliseconds


@dataclass
class Reply:
    """A function's response, with its body parsed."""

    status: int
    headers: dict[str, str]
    body: Any
    text: str


def runtime(rpc: FakeRpc, embedder: FakeEmbedder | None = None, **settings: Any) -> Runtime:
    """A runtime over fakes."""
    made = Runtime(Settings(**settings), cast(Rpc, rpc))
    made.__dict__["embedder"] = embedder or FakeEmbedder()
    return made


def event(
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    key: str | None = KEY,
    encoded: bool = False,
    query: dict[str, str] | None = None,
    request_id: str = "request-1",
) -> dict[str, Any]:
    """An event of payload format 2.0; a body that is no text or bytes is sent as JSON."""
    sent = {"content-type": "application/json"} if body is not None else {}
    if key:
        sent["authorization"] = f"Bearer {key}"
    sent |= headers or {}
    if isinstance(body, bytes):
        text, encoded = base64.b64encode(body).decode(), True
    else:
        text = body if isinstance(body, str) or body is None else json.dumps(body)
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "&".join(f"{name}={value}" for name, value in (query or {}).items()),
        "queryStringParameters": query,
        "headers": {name: value for name, value in sent.items() if value},
        "requestContext": {
            "requestId": request_id,
            "stage": "$default",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"},
        },
        "body": text,
        "isBase64Encoded": encoded,
    }


def send(app: App, sent: dict[str, Any], milliseconds: int = 30_000) -> Reply:
    """Have a function answer an event."""
    response = app.handle(sent, Context(milliseconds))
    return Reply(response["statusCode"], response["headers"], json.loads(response["body"]), response["body"])


def _hash(token: str) -> str:
    from almagest.operations.authenticate import hash_key

    return hash_key(token)


UNKNOWN_KEY = "alm_" + "x" * 43
REFUSED = {_hash(UNKNOWN_KEY)}
