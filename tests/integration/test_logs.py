"""P7: whatever is sent, logs and metrics hold ids and figures; no content, question, name or key."""

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stack import Stack

# In every place of a request that a caller fills, and nowhere else.
MARK = "zqmarker"
INDEX_SECONDS = 90


@pytest.fixture(scope="module")
def request_ids(stack: Stack) -> set[str]:
    """Send the mark in every way; ids of the requests."""
    bearer = {"authorization": f"Bearer {stack.key}"}
    ids = set()
    with httpx.Client(base_url=stack.url, headers={"user-agent": MARK, "cookie": f"c={MARK}"}, timeout=60) as http:

        def send(method: str, path: str, expected: int, headers: dict[str, str] | None = None, **body: Any) -> Any:
            response = http.request(method, path, headers={**bearer, **(headers or {})}, **body)
            assert response.status_code == expected, response.text
            ids.add(response.headers["x-request-id"])
            return response.json()

        memory = {
            "content": f"The {MARK} content.", "title": f"{MARK} title", "tags": [MARK], "source_ref": MARK,
            "conversation": {"id": MARK, "position": 1}, "agent_name": MARK, "metadata": {MARK: MARK},
        }  # fmt: skip
        written = send("POST", "/v1/write/memories", 201, {"idempotency-key": MARK}, json=memory)
        send("POST", "/v1/write/memories", 409, {"idempotency-key": MARK}, json={"content": f"Another {MARK}."})
        large = f"A {MARK} sentence that the index function is given. " * 1500
        deferred = send("POST", "/v1/write/memories", 201, json={"content": large, "title": MARK})
        assert deferred["index_status"] == "text_ready"
        send("POST", "/v1/write/memories/batch", 207, json={"memories": [MARK, memory, {MARK: MARK}]})
        item = f"/v1/write/items/{written['id']}"
        send("PATCH", item, 200, json={"version": 1, "content": f"Edited {MARK}.", "title": MARK})
        send("PATCH", item, 409, json={"version": 1, "title": f"{MARK} again"})
        send("POST", f"{item}/pin", 200)
        filters = {"tags": [MARK], "title": MARK, "agent_name": MARK, "source_ref": MARK, "conversation": MARK}
        for query in ({"query": f"where is {MARK}?"}, {"query": MARK, "filters": filters, "explain": True}):
            send("POST", "/v1/search", 200, json=query)
        send("POST", "/v1/bootstrap", 200, json={"query": f"what of {MARK}?"})
        send("GET", f"/v1/search/items/{written['id']}", 200, params={MARK: MARK})
        send("GET", f"/v1/search/items/{MARK}", 404)
        send("GET", f"/v1/search/{MARK}", 404)
        # refused by the edge, and by the database
        send("POST", "/v1/search", 422, json={"query": {"a": MARK}, "k": MARK, MARK: MARK})
        send("POST", "/v1/search", 400, {"content-type": "application/json"}, content=f'{{"query": "{MARK}')
        send("POST", "/v1/search", 415, {"content-type": f"text/{MARK}"}, content=MARK)
        send("POST", "/v1/search", 422, json={"query": MARK, "profile": MARK})
        for field in ("type", "project", "client", "deal"):
            send("POST", "/v1/write/memories", 422, json={"content": MARK, field: MARK})
        send("DELETE", item, 200, params={"strict": "true"})
        claims = base64.urlsafe_b64encode(json.dumps({"sub": MARK}).encode()).decode().rstrip("=")
        for credential in (MARK, "alm_" + MARK * 5 + "xyz", f"eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.{claims}.{MARK}"):
            send("GET", "/v1/write/index", 401, {"authorization": f"Bearer {credential}", "x-almagest-org": MARK})
        until = time.monotonic() + INDEX_SECONDS
        while send("GET", f"/v1/search/items/{deferred['id']}", 200)["index_status"] != "search_ready":
            assert time.monotonic() < until
            time.sleep(0.5)
        send("DELETE", f"/v1/write/items/{deferred['id']}", 200)
    return ids


def logs(stack: Stack) -> dict[str, str]:
    directory = Path(stack.environment["ALMAGEST_DIR"]) / "logs"
    return {path.name: path.read_text(errors="replace") for path in directory.iterdir()}


def test_requests_are_in_the_logs(stack: Stack, request_ids: set[str]) -> None:
    """Else the other tests would find nothing in whatever was logged."""
    written = logs(stack)
    assert {"search.log", "write.log", "bootstrap.log", "index.log"} <= written.keys()
    assert [request_id for request_id in request_ids if request_id not in "".join(written.values())] == []
    assert '"indexed":' in written["index.log"]
    assert '"latency"' in written["search.log"]


@pytest.mark.parametrize("secret", ["mark", "key", "service key", "database password", "jwt secret"])
def test_nothing_of_what_was_sent_is(stack: Stack, request_ids: set[str], secret: str) -> None:
    status = json.loads(stack.almagest("stack", "status", "--json"))
    [password] = re.findall(r":([^:@]+)@", status["database_url"])
    wanted = {
        "mark": MARK, "key": stack.key[8:], "service key": status["supabase_key"], "database password": password,
        "jwt secret": status["jwt_secret"],
    }[secret]  # fmt: skip
    assert wanted
    found = {name: line for name, text in logs(stack).items() for line in text.splitlines() if wanted in line}
    assert found == {}


def test_lines_of_functions_are_of_known_members(stack: Stack, request_ids: set[str]) -> None:
    """What is logged is a choice: a member that nobody has thought about is noticed here."""
    known = {
        "level", "location", "message", "timestamp", "service", "request_id", "org", "user", "agent", "key", "method",
        "route", "function", "status", "milliseconds", "mode", "rpc", "sqlstate", "error", "indexed", "stale", "failed",
        "counted", "retokenised", "_aws", "requests", "latency", "item", "xray_trace_id",
    }  # fmt: skip
    lines = "\n".join(logs(stack).values()).splitlines()
    own = [json.loads(line) for line in lines if any(request_id in line for request_id in request_ids)]
    assert len(own) >= len(request_ids)
    assert {name for line in own for name in line} <= known
