"""One id from the URL to the database: in answer, log and trace, and in what Postgres shows and logs."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.stack import Stack


@pytest.fixture
def ask(stack: Stack) -> Any:
    def ask(method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {stack.key}"}
        return httpx.request(method, stack.url + path, json=body, headers=headers, timeout=60)

    return ask


def log(stack: Stack, name: str) -> str:
    return (Path(stack.environment["ALMAGEST_DIR"]) / name).read_text(errors="replace")


def test_is_in_the_answer_the_log_and_the_trace(stack: Stack, ask: Any) -> None:
    answer = ask("POST", "/v1/search", {"query": "anything at all"})
    request_id = answer.headers["x-request-id"]
    assert f'"request_id":"{request_id}"' in log(stack, "logs/search.log")
    trace = ask("GET", f"/v1/search/traces/{answer.json()['trace_id']}")
    assert trace.json()["request_id"] == request_id != trace.headers["x-request-id"]
    with psycopg.connect(stack.database_url) as database:
        stored = "select request_id from almagest.retrievals where id = %s"
        assert database.execute(stored, (answer.json()["trace_id"],)).fetchall() == [(request_id,)]


def test_is_in_the_databases_log_and_in_the_problem(stack: Stack, ask: Any) -> None:
    answer = ask("POST", "/v1/search", {"query": "x", "profile": "no_such_profile"})
    request_id = answer.headers["x-request-id"]
    assert (answer.status_code, answer.json()["request_id"]) == (422, request_id)
    [line] = [
        line for line in log(stack, "postgres/postgres.log").splitlines() if request_id in line and "ERROR" in line
    ]
    assert f"almagest {request_id}" in line
    assert "There is no search profile of this name." in line


def test_is_seen_while_the_database_works(stack: Stack, ask: Any) -> None:
    ask("GET", "/v1/write/index")  # so that the key is known, and the call that waits is the operation's
    with psycopg.connect(stack.database_url) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute("lock table almagest.chunks in access exclusive mode")
        waiting = pool.submit(ask, "POST", "/v1/search", {"query": "anything at all"})
        seen: list[str] = []
        until = time.monotonic() + 6
        with psycopg.connect(stack.database_url, autocommit=True) as watcher:
            while not seen and time.monotonic() < until:
                time.sleep(0.05)
                rows = watcher.execute(
                    "select application_name from pg_stat_activity"
                    " where wait_event_type = 'Lock' and application_name like 'almagest %'"
                ).fetchall()
                seen = [row[0] for row in rows]
        blocker.rollback()
        answer = waiting.result()
    assert answer.status_code == 200
    assert seen == [f"almagest {answer.headers['x-request-id']}"]


def test_is_forgotten_with_its_request(stack: Stack, ask: Any) -> None:
    """The next one on the same connection has its own, or none."""
    ask("POST", "/v1/search", {"query": "anything at all"})
    with psycopg.connect(stack.database_url) as database:
        names = database.execute(
            "select application_name from pg_stat_activity where usename = 'authenticator' and state = 'idle'"
        ).fetchall()
    assert names
    assert not [name for (name,) in names if name.startswith("almagest ")]
