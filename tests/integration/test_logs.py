"""P7: whatever is sent, logs and metrics hold ids and figures; no content, question, name or key."""

import base64
import io
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from almagest.database.importer import import_
from almagest.problems import Problem
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
        send("GET", f"/v1/search/items/{written['id']}", 200)
        send("GET", f"/v1/search/items/{written['id']}", 422, params={MARK: MARK})
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

        every_route(http, bearer, ids)
        with psycopg.connect(stack.database_url, autocommit=True) as database:
            failing_routes(http, bearer, ids, database)
    failing_imports(stack.database_url)
    return ids


def failing_imports(database_url: str) -> None:
    """Files that the import refuses itself, and such as Postgres refuses a row of, or cannot read."""
    org = {
        "id": str(uuid4()), "slug": "imported", "name": MARK, "settings": {},
        "created_at": "2026-01-31T12:00:00+00:00",
    }  # fmt: skip
    item = {
        "id": str(uuid4()), "kind": "memory", "type": "note", "content": f"The {MARK} of an import.", "title": MARK,
        "origin": "agent", "index_status": "pending", "priority": 0.5, "metadata": {MARK: MARK},
    }  # fmt: skip
    for broken in (
        {"priority": 9}, {"kind": MARK}, {"metadata": {MARK: "\0"}}, {"title": f"{MARK}\ud800"},
        {"client_id": str(uuid4())}, {"slug": MARK * 1000, "id": None}, {"created_at": MARK},
        {"metadata": {f"{MARK}\ud800": MARK}}, {"content": f"{MARK}\0"},
    ):  # fmt: skip
        refuse_import(database_url, org, item | broken)
    refuse_import(database_url, org | {"settings": {MARK: "\0"}}, item)
    refuse_import(database_url, org | {"created_at": MARK}, item)


def refuse_import(database_url: str, org: dict[str, Any], item: dict[str, Any]) -> None:
    header = {"almagest": "export", "format": 1, "schema": 1, "vectors": True, "org": org, "user": None}
    file = "".join(f"{json.dumps(line)}\n" for line in (header, {"table": "items", "row": item}))
    with psycopg.connect(database_url) as database, pytest.raises(Problem, match=r"invalid_(line|export)"):
        import_(database, io.BytesIO(file.encode()))


def every_route(http: httpx.Client, bearer: dict[str, str], ids: set[str]) -> None:
    """The mark in path, query, headers and body of each."""
    document = json.loads((Path(__file__).parents[2] / "openapi.json").read_text())
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            of_route = {each["name"]: MARK for each in operation.get("parameters", []) if each.get("in") == "query"}
            for thing, params in product((MARK, str(uuid4())), (of_route, {}, {MARK: MARK})):
                own = {f"x-{MARK}": MARK, "x-almagest-org": MARK, "idempotency-key": f"{MARK}{path}{method}"}
                response = http.request(
                    method, re.sub(r"\{\w+\}", thing, path), params=params, headers={**bearer, **own},
                    json={MARK: MARK, "query": MARK, "name": MARK, "knobs": {MARK: MARK}},
                )  # fmt: skip
                assert response.status_code < 500, response.text
                ids.add(response.headers["x-request-id"])
    knobs = {"knobs": {MARK: 1, "keyword_weight": MARK}}
    response = http.put(f"/v1/search/profiles/{MARK}", headers=bearer, json=knobs)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_knobs")
    assert MARK in response.text


def wait_for(http: httpx.Client, path: str, bearer: dict[str, str]) -> None:
    """Until the database is itself again."""
    until = time.monotonic() + 30
    while http.get(path, headers=bearer).status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.2)


def failing_routes(
    http: httpx.Client, bearer: dict[str, str], ids: set[str], database: psycopg.Connection[Any]
) -> None:
    """A database that is too slow, that is restarted, and whose answers are none."""
    stored = {"content": f"Words of a {MARK}, {MARK}y and {MARK}z stand here.", "title": MARK}
    item = http.post("/v1/write/memories", headers=bearer, json=stored).json()["id"]

    def search() -> int:
        asked = {"query": f"{MARK} {MARK}y {MARK}z", "filters": {"title": MARK}, "explain": True}
        response = http.post("/v1/search", headers=bearer, json=asked)
        ids.add(response.headers["x-request-id"])
        return response.status_code

    statuses = set()
    for milliseconds in range(1, 25, 2):
        database.execute(f"alter role service_role set statement_timeout = '{milliseconds}ms'".encode())
        database.execute("notify pgrst, 'reload config'")
        time.sleep(0.3)
        statuses |= {search() for _ in range(4)}
    database.execute("alter role service_role reset statement_timeout")
    database.execute("notify pgrst, 'reload config'")
    assert 503 in statuses

    ending = (
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'authenticator' and state = 'active'"
    )
    with ThreadPoolExecutor(1) as pool:
        searches = pool.submit(lambda: {search() for _ in range(40)})
        while not searches.done():
            database.execute(ending.encode())
            time.sleep(0.01)
        assert searches.result() <= {200, 503}
    wait_for(http, f"/v1/search/items/{item}", bearer)

    database.execute("alter function api.get_item(jsonb, jsonb) rename to get_item_away")
    for answer, expected in ((f'return \'{{"id": "{MARK}"}}\'::jsonb', 500), ("raise exception 'no'", 503)):
        database.execute(
            "create or replace function api.get_item(caller jsonb, request jsonb) returns jsonb language plpgsql"
            f" security definer set search_path = '' as $$ begin {answer}; end $$".encode()
        )
        database.execute("notify pgrst, 'reload schema'")
        response = http.get(f"/v1/search/items/{item}", headers=bearer)
        assert response.status_code == expected, response.text
        ids.add(response.headers["x-request-id"])
    database.execute("drop function api.get_item(jsonb, jsonb)")
    database.execute("alter function api.get_item_away(jsonb, jsonb) rename to get_item")
    database.execute("notify pgrst, 'reload schema'")
    wait_for(http, f"/v1/search/items/{item}", bearer)
    assert http.delete(f"/v1/write/items/{item}", headers=bearer).status_code == 200


def logs(stack: Stack) -> dict[str, str]:
    """Of the functions, PostgREST, the stack with its gateway and emulator, and Postgres."""
    directory = Path(stack.environment["ALMAGEST_DIR"])
    files = [*(directory / "logs").iterdir(), directory / "postgres" / "postgres.log"]
    return {path.name: path.read_text(errors="replace") for path in files}


def test_requests_are_in_the_logs(stack: Stack, request_ids: set[str]) -> None:
    """Else the other tests would find nothing in whatever was logged."""
    written = logs(stack)
    functions = {"search.log", "write.log", "bootstrap.log", "index.log"}
    assert functions | {"postgrest.log", "stack.log", "postgres.log"} <= written.keys()
    assert "canceling statement due to statement timeout" in written["postgres.log"]
    assert "terminating connection due to administrator command" in written["postgres.log"]
    assert "There is no item type of this name." in written["postgres.log"]
    assert [request_id for request_id in request_ids if request_id not in "".join(written.values())] == []
    assert '"indexed":' in written["index.log"]
    assert '"latency"' in written["search.log"]


@pytest.mark.parametrize("secret", ["mark", "key", "service key", "database password", "jwt secret"])
def test_nothing_of_what_was_sent_is(stack: Stack, request_ids: set[str], secret: str) -> None:
    status = stack.status()
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
        "counted", "retokenised", "_aws", "requests", "latency", "item", "xray_trace_id", "errors",
    }  # fmt: skip
    texts = [text for name, text in logs(stack).items() if name != "postgres.log"]
    lines = "\n".join(texts).splitlines()
    own = [json.loads(line) for line in lines if any(request_id in line for request_id in request_ids)]
    assert len(own) >= len(request_ids)
    assert {name for line in own for name in line} <= known
    # What was not expected: where it came from, and not its message.
    described = [error for line in own for error in line.get("errors", [])]
    assert described
    assert {name for error in described for name in error} == {"type", "frames"}
