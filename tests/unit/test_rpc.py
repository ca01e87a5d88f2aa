"""The rpc door against a real socket: what is sent, and what becomes of every way to fail."""

import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from almagest import deadline
from almagest.database.rpc import Rpc
from almagest.models.caller import Caller, Role
from almagest.problems import Problem
from almagest.settings import Settings

CALLER = Caller(org=uuid4(), user=uuid4(), role=Role.MEMBER)

Step = Callable[[socket.socket], None]


@dataclass
class Request:
    line: str
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """Answers one request after another by the steps given, over as many connections as come."""

    steps: list[Step] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        reader = connection.makefile("rb")
        while line := reader.readline():
            headers = {}
            while (header := reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = reader.read(int(headers.get("content-length", 0)))
            self.requests.append(Request(line.decode().strip(), headers, json.loads(body)))
            try:
                self.steps.pop(0)(connection)
            except OSError:
                return
            if connection.fileno() < 0:
                return


def answer(body: Any, status: int = 200, *, then_close: bool = False) -> Step:
    def step(connection: socket.socket) -> None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        if then_close:
            hang_up(connection)

    return step


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(connection.detach())


def half_an_answer(connection: socket.socket) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"half":')
    hang_up(connection)


def silence(seconds: float) -> Step:
    def step(connection: socket.socket) -> None:
        time.sleep(seconds)
        answer({"late": True})(connection)

    return step


def error(code: str | None, message: str = "m", details: Any = None, status: int = 400) -> Step:
    return answer({"code": code, "message": message, "details": details, "hint": None}, status)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def door(server: Server) -> Iterator[Callable[..., Rpc]]:
    opened: list[Rpc] = []

    def open_door(key: str = "sb_secret_x", seconds: float = 5, url: str = "", fresh_key: str | None = None) -> Rpc:
        settings = Settings(supabase_url=url or server.url, supabase_key=key, rpc_timeout_seconds=seconds)  # type: ignore[arg-type]
        opened.append(Rpc(settings, lambda: fresh_key))
        return opened[-1]

    yield open_door
    for rpc in opened:
        rpc.close()


Door = Callable[..., Rpc]


REFUSED = answer({"message": "Unregistered API key"}, 401)


class TestRotation:
    """The gateway refuses a key that was revoked before this container knew the next one."""

    def test_goes_on_with_the_fresh_key(self, server: Server, door: Door) -> None:
        server.steps = [REFUSED, answer({"found": 1}), answer({"found": 2})]
        rpc = door("sb_secret_1", fresh_key="sb_secret_2")
        assert [rpc.call("search", CALLER, {}, retry=False)["found"] for _ in range(2)] == [1, 2]
        assert [request.headers["apikey"] for request in server.requests] == [
            "sb_secret_1",
            "sb_secret_2",
            "sb_secret_2",
        ]

    @pytest.mark.parametrize("fresh", [None, "sb_secret_1"])
    def test_gives_up_where_there_is_no_other(self, server: Server, door: Door, fresh: str | None) -> None:
        server.steps = [REFUSED]
        assert refused(door("sb_secret_1", fresh_key=fresh)) == (503, "misconfigured", 5)

    def test_gives_up_where_the_fresh_one_is_refused_too(self, server: Server, door: Door) -> None:
        server.steps = [REFUSED, REFUSED]
        assert refused(door("sb_secret_1", fresh_key="sb_secret_2")) == (503, "misconfigured", 5)


class TestSending:
    def test_one_call_is_one_post(self, server: Server, door: Door) -> None:
        server.steps = [answer({"found": 1})]
        assert door().call("search", CALLER, {"query": "größe"}, retry=True) == {"found": 1}
        [request] = server.requests
        assert request.line == "POST /rest/v1/rpc/search HTTP/1.1"
        assert request.headers["content-profile"] == "api"
        assert request.body == {
            "caller": {"org": str(CALLER.org), "user": str(CALLER.user), "agent": None, "role": "member", "key": None},
            "request": {"query": "größe"},
        }

    def test_system_is_no_caller(self, server: Server, door: Door) -> None:
        server.steps = [answer({})]
        door().call("list_orgs", None, {}, retry=True)
        assert server.requests[0].body["caller"] is None

    def test_secret_key_goes_into_apikey_alone(self, server: Server, door: Door) -> None:
        """R1."""
        server.steps = [answer({})]
        door("sb_secret_abc").call("search", CALLER, {}, retry=True)
        headers = server.requests[0].headers
        assert headers["apikey"] == "sb_secret_abc"
        assert "authorization" not in headers

    def test_legacy_key_is_a_token_too(self, server: Server, door: Door) -> None:
        server.steps = [answer({})]
        door("eyJ.a.b").call("search", CALLER, {}, retry=True)
        headers = server.requests[0].headers
        assert (headers["apikey"], headers["authorization"]) == ("eyJ.a.b", "Bearer eyJ.a.b")

    def test_connection_is_kept(self, server: Server, door: Door) -> None:
        server.steps = [answer({}), answer({}), answer({})]
        rpc = door()
        for _ in range(3):
            rpc.call("search", CALLER, {}, retry=True)
        assert server.connections == 1

    @pytest.mark.parametrize("settings", [{}, {"supabase_url": "http://x"}, {"supabase_key": "k"}])
    def test_without_a_project(self, settings: dict[str, Any]) -> None:
        with pytest.raises(Problem) as raised:
            Rpc(Settings(**settings))
        assert (raised.value.status, raised.value.code) == (503, "misconfigured")


class TestDeadConnections:
    """R3."""

    @pytest.mark.parametrize("death", [hang_up, reset, half_an_answer])
    def test_are_tried_once_more(self, server: Server, door: Door, death: Step) -> None:
        server.steps = [death, answer({"found": 1})]
        assert door().call("search", CALLER, {}, retry=True) == {"found": 1}
        assert len(server.requests) == 2

    def test_that_died_while_the_container_was_frozen(self, server: Server, door: Door) -> None:
        server.steps = [answer({}, then_close=True), answer({"found": 1})]
        rpc = door()
        rpc.call("search", CALLER, {}, retry=True)
        time.sleep(0.05)
        assert rpc.call("search", CALLER, {}, retry=True) == {"found": 1}

    @pytest.mark.parametrize("death", [hang_up, reset])
    def test_are_not_tried_again_where_that_could_do_it_twice(self, server: Server, door: Door, death: Step) -> None:
        server.steps = [death]
        assert refused(door(), retry=False) == (503, "database_unavailable", 5)
        assert len(server.requests) == 1

    def test_are_not_tried_for_ever(self, server: Server, door: Door) -> None:
        server.steps = [hang_up, reset]
        assert refused(door()) == (503, "database_unavailable", 5)
        assert len(server.requests) == 2

    def test_nobody_listens(self, door: Door) -> None:
        assert refused(door(url="http://127.0.0.1:9")) == (503, "database_unavailable", 5)


class TestTime:
    """R3."""

    def test_slow_database(self, server: Server, door: Door) -> None:
        server.steps = [silence(1)]
        started = time.monotonic()
        assert refused(door(seconds=0.2)) == (503, "database_unavailable", 5)
        assert time.monotonic() - started < 0.8
        assert len(server.requests) == 1  # it may be at work still: asking again would only add to it

    def test_stays_below_what_the_function_has_left(self, server: Server, door: Door) -> None:
        server.steps = [silence(1)]
        started = time.monotonic()
        with deadline.limit(deadline.MARGIN_SECONDS + 0.2):
            assert refused(door(seconds=30)) == (503, "database_unavailable", 5)
        assert time.monotonic() - started < 0.8

    def test_no_time_left(self, server: Server, door: Door) -> None:
        with deadline.limit(deadline.MARGIN_SECONDS):
            assert refused(door()) == (503, "database_unavailable", 5)
        assert server.requests == []


class TestErrors:
    def test_raised_by_the_function(self, server: Server, door: Door) -> None:
        details = json.dumps({"code": "version_conflict", "version": 7})
        server.steps = [error("PT409", "The item is at version 7.", details, 409)]
        with pytest.raises(Problem) as raised:
            door().call("update_item", CALLER, {}, retry=True)
        problem = raised.value
        assert (problem.status, problem.code, problem.detail) == (409, "version_conflict", "The item is at version 7.")
        assert problem.extra == {"version": 7}

    def test_raised_with_a_time_to_wait(self, server: Server, door: Door) -> None:
        server.steps = [error("PT429", "Too many.", '{"code": "rate_limited", "retry_after": 9}', 429)]
        assert refused(door()) == (429, "rate_limited", 9)

    def test_unauthorized(self, server: Server, door: Door) -> None:
        server.steps = [error("PT401", "No.", '{"code": "unauthorized"}', 401)]
        assert refused(door()) == (401, "unauthorized", None)

    @pytest.mark.parametrize(
        ("sqlstate", "status", "expected"),
        [
            ("22P02", 400, (422, "invalid_value", None)),
            ("22021", 400, (422, "invalid_value", None)),
            ("23505", 409, (422, "invalid_value", None)),
            ("54000", 500, (422, "invalid_value", None)),
            ("57014", 500, (503, "database_timeout", 5)),
            ("42501", 403, (503, "misconfigured", 5)),
            ("42883", 404, (503, "misconfigured", 5)),
            ("53300", 503, (503, "database_unavailable", 5)),
            ("57P03", 503, (503, "database_unavailable", 5)),
            ("XX000", 500, (503, "database_unavailable", 5)),
            ("P0001", 400, (503, "database_unavailable", 5)),
            ("PGRST000", 503, (503, "database_unavailable", 5)),
            ("PGRST002", 503, (503, "database_unavailable", 5)),
            ("PGRST003", 504, (503, "database_unavailable", 5)),
            ("PGRST106", 406, (503, "misconfigured", 5)),
            ("PGRST202", 404, (503, "schema_mismatch", 5)),
            ("PGRST301", 401, (503, "misconfigured", 5)),
        ],
    )
    def test_of_the_database(
        self, server: Server, door: Door, sqlstate: str, status: int, expected: tuple[int, str, int | None],
        caplog: pytest.LogCaptureFixture,
    ) -> None:  # fmt: skip
        server.steps = [error(sqlstate, 'select "secret" from t', "Key (x)=(secret)", status)]
        with caplog.at_level(logging.DEBUG, "almagest"):
            assert refused(door()) == expected
        assert "secret" not in caplog.text
        assert any(record.__dict__.get("sqlstate") == sqlstate for record in caplog.records) or status == 401

    @pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
    def test_serialization_is_tried_once_more(self, server: Server, door: Door, sqlstate: str) -> None:
        server.steps = [error(sqlstate), answer({"found": 1}), error(sqlstate), error(sqlstate)]
        rpc = door()
        assert rpc.call("write_memories", CALLER, {}, retry=True) == {"found": 1}
        assert refused(rpc) == (503, "database_unavailable", 5)

    @pytest.mark.parametrize("sqlstate", ["57P01", "PGRST001"])
    def test_lost_connection_behind_the_gateway_is_tried_once_more(
        self, server: Server, door: Door, sqlstate: str
    ) -> None:
        """R3; not where that could do it twice."""
        server.steps = [error(sqlstate), answer({"found": 1}), error(sqlstate), error(sqlstate), error(sqlstate)]
        rpc = door()
        assert rpc.call("search", CALLER, {}, retry=True) == {"found": 1}
        assert refused(rpc) == (503, "database_unavailable", 5)
        assert refused(rpc, retry=False) == (503, "database_unavailable", 5)
        assert len(server.requests) == 5

    @pytest.mark.parametrize(
        ("step", "code"),
        [
            (answer({"message": "Invalid API key"}, 401), "misconfigured"),
            (answer({"message": "No API key found in request"}, 401), "misconfigured"),
            (answer("<html>Bad gateway</html>", 502), "database_unavailable"),
            (answer("<html>Too many requests</html>", 429), "database_unavailable"),
            (answer("<html>Unprocessable</html>", 422), "database_unavailable"),
            (answer("", 503), "database_unavailable"),
            (answer("not json", 200), "database_unavailable"),
            (answer("", 204), "database_unavailable"),
            (answer([], 200), "database_unavailable"),
            (answer("null", 200), "database_unavailable"),
        ],
    )
    def test_of_the_gateway(self, server: Server, door: Door, step: Step, code: str) -> None:
        server.steps = [step]
        assert refused(door())[:2] == (503, code)


def refused(rpc: Rpc, *, retry: bool = True) -> tuple[int, str, int | None]:
    with pytest.raises(Problem) as raised:
        rpc.call("search", CALLER, {}, retry=retry)
    return raised.value.status, raised.value.code, raised.value.retry_after
