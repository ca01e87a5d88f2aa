"""The HTTP edge: who is let in, what is read, and what is told when it goes wrong."""

import json
from collections.abc import Callable
from io import StringIO
from logging import StreamHandler
from typing import Any
from uuid import uuid4

import pytest

from almagest.edge import observe
from almagest.edge.app import App
from almagest.handlers import bootstrap, search, write
from almagest.problems import Problem
from almagest.rate import RateLimit
from tests.edge import CALLER, KEY, UNKNOWN_KEY, FakeEmbedder, FakeRpc, Reply, event, runtime, send

ITEM = "3f1c2a94-5a1e-4c8f-9a6b-0d2e7c41b8f5"
Ask = Callable[..., Reply]


@pytest.fixture
def rpc() -> FakeRpc:
    empty = {"mode": "hybrid", "degraded_reason": None, "results": [], "trace_id": None}
    return FakeRpc({"search": lambda request: empty})


@pytest.fixture
def ask(rpc: FakeRpc, monkeypatch: pytest.MonkeyPatch) -> Ask:
    made = runtime(rpc, FakeEmbedder())
    for module in (search, write, bootstrap):
        monkeypatch.setattr(module.app, "connect", lambda: made)

    def ask(method: str, path: str, body: Any = None, **options: Any) -> Reply:
        milliseconds = options.pop("milliseconds", 30_000)
        return send(app_of(path), event(method, path, body, **options), milliseconds)

    return ask


@pytest.fixture
def read_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What was logged and measured since the last look."""
    stream = StringIO()
    handler = observe.logger.registered_handler
    assert isinstance(handler, StreamHandler)
    monkeypatch.setattr(handler, "stream", stream)

    def read_log() -> str:
        logged = stream.getvalue()
        stream.truncate(0)
        return logged + capsys.readouterr().out

    return read_log


def app_of(path: str) -> App:
    if path.startswith("/v1/write"):
        return write.app
    return bootstrap.app if path.startswith("/v1/bootstrap") else search.app


class TestCredentials:
    BAD: tuple[dict[str, str], ...] = (
        {},
        {"authorization": ""},
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {KEY} {KEY}"},
        {"authorization": f"Bearer {KEY},Bearer {KEY}"},
        {"authorization": f"Bearer {UNKNOWN_KEY}"},
        {"authorization": f"Bearer {KEY[:-1]}"},
        {"authorization": "Bearer alm_ß" + "k" * 42},
        {"authorization": "Bearer a.b.c"},
        {"authorization": "Bearer " + "." * 7000},
    )

    @pytest.mark.parametrize("headers", BAD)
    def test_all_401s_look_alike(self, ask: Ask, headers: dict[str, str]) -> None:
        reply = ask("POST", "/v1/search", {"query": "x"}, key=None, headers=headers)
        assert reply.status == 401
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert reply.body == {
            "type": "about:blank",
            "title": "Unauthorized",
            "status": 401,
            "code": "unauthorized",
            "detail": "A valid credential is required: Authorization: Bearer <token>.",
            "request_id": "request-1",
        }

    @pytest.mark.parametrize("body", [b"\xff", "{", '{"query": 1}', "[" * 100_000, None])
    @pytest.mark.parametrize(
        ("method", "path"), [("POST", "/v1/search"), ("PUT", "/v1/search"), ("GET", "/v1/nothing")]
    )
    def test_come_before_everything_else(self, ask: Ask, method: str, path: str, body: Any) -> None:
        assert ask(method, path, body, key=None, headers={"content-type": "text/x"}).status == 401

    def test_scheme_may_have_any_case(self, ask: Ask) -> None:
        assert (
            ask("POST", "/v1/search", {"query": "x"}, key=None, headers={"authorization": f"bearer {KEY}"}).status
            == 200
        )

    def test_caller_is_remembered_for_a_while(self, ask: Ask, rpc: FakeRpc) -> None:
        for _ in range(3):
            ask("POST", "/v1/search", {"query": "x"})
        assert len(rpc.requests("authenticate")) == 1

    def test_refusal_is_not_remembered(self, ask: Ask, rpc: FakeRpc) -> None:
        for _ in range(3):
            ask("POST", "/v1/search", {"query": "x"}, key=UNKNOWN_KEY)
        assert len(rpc.requests("authenticate")) == 3

    def test_database_without_an_answer_is_no_401(self, ask: Ask, rpc: FakeRpc) -> None:
        rpc.answers["authenticate"] = raising(Problem(503, "database_unavailable", "Not there.", retry_after=5))
        reply = ask("POST", "/v1/search", {"query": "x"})
        assert (reply.status, reply.body["code"], reply.headers["Retry-After"]) == (503, "database_unavailable", "5")

    def test_caller_comes_from_the_credential_alone(self, ask: Ask, rpc: FakeRpc) -> None:
        """P4."""
        for field in ("org", "org_id", "user", "user_id", "role", "caller"):
            reply = ask("POST", "/v1/search", {"query": "x", field: str(uuid4())})
            assert (reply.status, reply.body["errors"]) == (422, [{"field": field, "message": "unknown field"}])
        ask("POST", "/v1/search", {"query": "x"})
        name, caller, _ = rpc.asked[-1]
        assert name == "search"
        assert caller is not None
        assert str(caller.org) == CALLER["org"]


class TestBody:
    """R6: a body that cannot be read is a 4xx with a code."""

    @pytest.mark.parametrize(
        ("body", "options", "expected"),
        [
            (b"\xff\xfe", {}, (400, "invalid_utf8")),
            (b'{"query": "\xc3"}', {}, (400, "invalid_utf8")),
            ('{"query": "\ud800"}', {}, (400, "invalid_utf8")),
            ("not base64!", {"encoded": True}, (400, "invalid_base64")),
            ("{", {}, (400, "invalid_json")),
            ("\x1c", {}, (400, "invalid_json")),
            ("\u00a0", {}, (400, "invalid_json")),
            ("\v{}", {}, (400, "invalid_json")),
            ('{"query": "x",}', {}, (400, "invalid_json")),
            ("\ufeff{}", {}, (400, "invalid_json")),
            ('{"query": "a", "query": "b"}', {}, (400, "invalid_json")),
            ('{"query": NaN}', {}, (422, "invalid")),
            ('{"query": -Infinity}', {}, (422, "invalid")),
            ('{"query": 1e999}', {}, (422, "invalid")),
            ('{"query": ' + "9" * 10_000 + "}", {}, (422, "invalid")),
            ("[" * 100_000, {}, (400, "too_deep")),
            ('{"a":' * 100_000, {}, (400, "too_deep")),
            ('{"query": ' + "[" * 65 + "]" * 65 + "}", {}, (400, "too_deep")),
            ("[]", {}, (422, "invalid")),
            ('[{"query": "x"}]', {}, (422, "invalid")),
            ('"query"', {}, (422, "invalid")),
            ("null", {}, (422, "invalid")),
            (None, {}, (422, "invalid")),
            ("   ", {}, (422, "invalid")),
            ("x" * (6 * 1024 * 1024 + 1), {}, (413, "too_large")),
            (b"x" * (6 * 1024 * 1024 + 1), {}, (413, "too_large")),
        ],
    )  # fmt: skip
    def test_that_cannot_be_read(self, ask: Ask, body: Any, options: dict[str, Any], expected: tuple[int, str]) -> None:
        reply = ask("POST", "/v1/search", body, **options)
        assert (reply.status, reply.body["code"]) == expected
        assert reply.headers["Content-Type"] == "application/problem+json"

    @pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
    def test_that_is_compressed(self, ask: Ask, encoding: str) -> None:
        reply = ask("POST", "/v1/search", b"\x1f\x8b\x08", headers={"content-encoding": encoding})
        assert (reply.status, reply.body["code"]) == (415, "unsupported_media_type")
        assert "Content-Encoding" in reply.body["detail"]

    def test_that_is_not_compressed_may_say_so(self, ask: Ask) -> None:
        assert ask("POST", "/v1/search", {"query": "x"}, headers={"content-encoding": "Identity"}).status == 200

    @pytest.mark.parametrize(
        "content_type",
        ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
         "application/json; charset=latin-1", "json", ";"],
    )  # fmt: skip
    def test_of_another_type(self, ask: Ask, content_type: str) -> None:
        reply = ask("POST", "/v1/search", {"query": "x"}, headers={"content-type": content_type})
        assert (reply.status, reply.body["code"]) == (415, "unsupported_media_type")

    @pytest.mark.parametrize(
        "content_type",
        ["application/json", "Application/JSON", "application/json; charset=UTF-8", 'application/json;charset="utf-8"',
         "application/vnd.almagest+json"],
    )  # fmt: skip
    def test_of_any_json_type(self, ask: Ask, content_type: str) -> None:
        assert ask("POST", "/v1/search", {"query": "x"}, headers={"content-type": content_type}).status == 200

    def test_in_base64(self, ask: Ask, rpc: FakeRpc) -> None:
        assert ask("POST", "/v1/search", json.dumps({"query": "größe"}).encode()).status == 200
        assert rpc.requests("search")[0]["query"] == "größe"

    def test_of_64_levels_is_read(self, ask: Ask) -> None:
        reply = ask("POST", "/v1/search", '{"query": ' + "[" * 63 + "]" * 63 + "}")
        assert (reply.status, reply.body["errors"][0]["field"]) == (422, "query")

    def test_may_be_left_out_where_no_field_is_required(self, ask: Ask, rpc: FakeRpc) -> None:
        rpc.answers["archive_item"] = lambda request: {"id": request["id"], "state": "archived", "version": 1}
        assert ask("POST", f"/v1/write/items/{ITEM}/archive").status == 200

    def test_without_fields_refuses_unknown_ones(self, ask: Ask) -> None:
        reply = ask("POST", f"/v1/write/items/{ITEM}/archive", {"reason": "old"})
        assert (reply.status, reply.body["errors"][0]["field"]) == (422, "reason")


class TestPaths:
    @pytest.mark.parametrize(
        "path", ["/", "/v1", "/v1/search/", "/v1/search/items", "/v1/write/x", "/v1/search/\n", "/v1/%00"]
    )
    def test_unknown(self, ask: Ask, path: str) -> None:
        reply = ask("GET", path)
        assert (reply.status, reply.body["code"]) == (404, "not_found")

    @pytest.mark.parametrize(
        ("method", "path", "allow"),
        [
            ("GET", "/v1/search", "POST"),
            ("HEAD", "/v1/search", "POST"),
            ("OPTIONS", "/v1/search", "POST"),
            ("PUT", f"/v1/write/items/{ITEM}", "DELETE, PATCH"),
            ("GET", f"/v1/write/items/{ITEM}/pin", "DELETE, POST"),
            ("POST", f"/v1/search/items/{ITEM}", "GET"),
        ],
    )
    def test_method_not_allowed(self, ask: Ask, method: str, path: str, allow: str) -> None:
        reply = ask(method, path)
        assert (reply.status, reply.body["code"], reply.headers["Allow"]) == (405, "method_not_allowed", allow)

    @pytest.mark.parametrize("item", ["x", "1", "%00", "a" * 36, "../..", "ITEM'--", ITEM + "0"])
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/v1/search/items/{}"),
            ("GET", "/v1/search/items/{}/chunks"),
            ("DELETE", "/v1/write/items/{}"),
            ("POST", "/v1/write/items/{}/archive"),
            ("POST", "/v1/write/items/{}/restore"),
            ("POST", "/v1/write/items/{}/pin"),
            ("DELETE", "/v1/write/items/{}/pin"),
        ],
    )
    def test_that_hold_no_id(self, ask: Ask, method: str, path: str, item: str) -> None:
        reply = ask(method, path.format(item))
        assert (reply.status, reply.body["code"]) == (404, "not_found")

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"limit": "0"}, "limit"),
            ({"limit": "101"}, "limit"),
            ({"limit": "x"}, "limit"),
            ({"cursor": "x"}, "cursor"),
            ({"cursor": "٣"}, "cursor"),
        ],
    )
    def test_query_out_of_bounds(self, ask: Ask, query: dict[str, str], field: str) -> None:
        reply = ask("GET", f"/v1/search/items/{ITEM}/chunks", query=query)
        assert (reply.status, reply.body["errors"][0]["field"]) == (422, field)


class TestRate:
    def test_too_many_are_told_when_to_come_again(self, rpc: FakeRpc, monkeypatch: pytest.MonkeyPatch) -> None:
        made = runtime(rpc, FakeEmbedder())
        made.rate_limit = RateLimit(1)
        monkeypatch.setattr(search.app, "connect", lambda: made)
        replies = [send(search.app, event("POST", "/v1/search", {"query": "x"})) for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 200, 429, 429]
        assert (replies[-1].body["code"], replies[-1].headers["Retry-After"]) == ("rate_limited", "1")


class TestIdempotencyKey:
    @pytest.mark.parametrize("key", ["ß", "a\tb", "k" * 256, "\x7f"])
    def test_that_is_not_printable_or_too_long(self, ask: Ask, key: str) -> None:
        reply = ask("POST", "/v1/write/memories", {"content": "x"}, headers={"idempotency-key": key})
        assert (reply.status, reply.body["code"]) == (400, "invalid_idempotency_key")


class TestProblems:
    def test_keeps_what_the_operation_says(self, ask: Ask, rpc: FakeRpc) -> None:
        rpc.answers["search"] = raising(Problem(429, "rate_limited", "Too many.", retry_after=7, limit=10))
        reply = ask("POST", "/v1/search", {"query": "x"})
        assert (reply.status, reply.headers["Retry-After"]) == (429, "7")
        assert (reply.body["code"], reply.body["detail"], reply.body["limit"]) == ("rate_limited", "Too many.", 10)

    def test_nothing_to_see_looks_alike(self, ask: Ask, rpc: FakeRpc) -> None:
        """P3: the answer for what is not there, what may not be seen and what is no id, is one."""
        rpc.answers["get_item"] = raising(Problem(404, "not_found", "Private to somebody else."))
        hidden = ask("GET", f"/v1/search/items/{ITEM}")
        assert hidden.body == ask("GET", "/v1/search/items/x").body

    def test_names_fields_without_repeating_values(self, ask: Ask) -> None:
        secret = "hunter2" * 20
        reply = ask(
            "POST", "/v1/search", {"query": {"a": secret}, "k": secret, "filters": {"kind": secret}, secret * 9: 1}
        )
        assert reply.status == 422
        assert {error["field"][:12] for error in reply.body["errors"]} == {
            "query", "k", "filters.kind", (secret * 9)[:12],
        }  # fmt: skip
        assert len(reply.text) < 2000
        assert secret not in reply.text.replace(secret * 9, "").replace((secret * 9)[:100], "")

    def test_names_only_so_many_fields(self, ask: Ask) -> None:
        reply = ask("POST", "/v1/search", {"query": "x", **{f"field_{number}": 1 for number in range(1000)}})
        assert (reply.status, len(reply.body["errors"])) == (422, 20)

    @pytest.mark.parametrize("error", [RuntimeError, KeyError, RecursionError, MemoryError, ValueError])
    def test_unexpected_leaks_nothing(
        self, ask: Ask, rpc: FakeRpc, error: type[Exception], read_log: Callable[[], str]
    ) -> None:
        """P7."""
        rpc.answers["search"] = raising(error("select secret_value from almagest.items"))
        reply = ask("POST", "/v1/search", {"query": "the private question"})
        assert reply.body == {
            "type": "about:blank",
            "title": "Internal Server Error",
            "status": 500,
            "code": "internal",
            "detail": "Something went wrong here; the request id helps to find it.",
            "request_id": "request-1",
        }
        log = read_log()
        assert error.__name__ in log
        assert "test_edge.py" in log  # where it was raised
        assert "secret_value" not in log
        assert "private question" not in log

    def test_answer_of_the_database_that_is_no_answer(self, ask: Ask, rpc: FakeRpc) -> None:
        rpc.answers["search"] = lambda request: {"mode": "nonsense"}
        assert ask("POST", "/v1/search", {"query": "x"}).body["code"] == "internal"

    def test_answer_too_large_for_the_platform(self, ask: Ask, rpc: FakeRpc) -> None:
        rpc.answers["get_chunks"] = lambda request: {
            "chunks": [{"position": 0, "start": 0, "end": 1, "text": '"' * 4_000_000}],
            "next_cursor": None,
        }
        reply = ask("GET", f"/v1/search/items/{ITEM}/chunks")
        assert (reply.status, reply.body["code"]) == (413, "response_too_large")

    def test_largest_content_can_be_answered(self, ask: Ask, rpc: FakeRpc) -> None:
        text = "😀" * 1_000_000
        rpc.answers["get_chunks"] = lambda request: {
            "chunks": [{"position": 0, "start": 0, "end": 1, "text": text}], "next_cursor": None,
        }  # fmt: skip
        assert ask("GET", f"/v1/search/items/{ITEM}/chunks").body["chunks"][0]["text"] == text

    def test_no_time_left(self, ask: Ask) -> None:
        """R3: the answer comes before the platform ends the function."""
        assert ask("POST", "/v1/search", {"query": "x"}, milliseconds=1).status == 200  # fakes take no time


class TestResponses:
    def test_carry_the_request_id_and_no_cors(self, ask: Ask) -> None:
        """R7."""
        for reply in (
            ask("POST", "/v1/search", {"query": "x"}, request_id="r-7"),
            ask("POST", "/v1/search", {}, request_id="r-7", headers={"origin": "https://example.com"}),
            ask("GET", "/nothing", request_id="r-7"),
            ask("GET", "/nothing", request_id="r-7", key=None),
        ):
            assert reply.headers["x-request-id"] == "r-7"
            assert not [name for name in reply.headers if name.lower().startswith("access-control")]

    def test_logs_hold_ids_only(self, ask: Ask, read_log: Callable[[], str]) -> None:
        """P7."""
        ask("POST", "/v1/search", {"query": "the private question"})
        ask("GET", "/v1/search/the-private-path", headers={"idempotency-key": "the-private-key"})
        log = read_log()
        assert CALLER["org"] in log
        assert '"latency"' in log
        assert "private" not in log
        assert KEY not in log

    def test_logs_forget_the_request_before(self, ask: Ask, read_log: Callable[[], str]) -> None:
        """P7: clear_state."""
        ask("POST", "/v1/search", {"query": "x"})
        assert str(CALLER["org"]) in read_log()
        ask("POST", "/v1/search", {"query": "x"}, key=None)
        assert str(CALLER["org"]) not in read_log()


def raising(error: Exception) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        raise error

    return answer


class TestWhatIsNamed:
    """A 422 names the fields, wherever they are."""

    @pytest.mark.parametrize(
        ("body", "field", "message"),
        [
            ('{"query": "x", "k": NaN}', "k", "must be a finite number"),
            ('{"query": "x", "k": 1e999}', "k", "must be a finite number"),
            ('{"query": "x", "filters": {"tags": ["a", -Infinity]}}', "filters.tags[1]", "must be a finite number"),
            (
                '{"query": "x", "filters": {"metadata": {"a": 1' + "0" * 300 + "}}}",
                "filters.metadata.a", "must be a whole number of fewer digits",
            ),
        ],
    )  # fmt: skip
    def test_a_number_that_is_none(self, ask: Ask, body: str, field: str, message: str) -> None:
        reply = ask("POST", "/v1/search", body)
        assert (reply.status, reply.body["code"]) == (422, "invalid")
        assert reply.body["errors"] == [{"field": field, "message": message}]
        assert reply.body["detail"] == f"The request is not valid: {field}: {message}."

    def test_some_of_many_numbers(self, ask: Ask) -> None:
        reply = ask("POST", "/v1/search", '{"query": [' + ",".join(["NaN"] * 10_000) + "]}")
        assert [error["field"] for error in reply.body["errors"]] == [f"query[{place}]" for place in range(20)]

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("POST", "/v1/search", {"query": "x"}), ("GET", f"/v1/search/items/{ITEM}/neighbours", None),
            ("GET", f"/v1/search/items/{ITEM}", None), ("POST", "/v1/bootstrap", {}),
            ("POST", "/v1/write/memories", {"content": "x"}), ("DELETE", f"/v1/write/items/{ITEM}", None),
        ],
    )  # fmt: skip
    def test_a_parameter_that_the_route_does_not_have(self, ask: Ask, method: str, path: str, body: Any) -> None:
        reply = ask(method, path, body, query={"k": "1", "foo" * 100: "2"})
        assert (reply.status, reply.body["code"]) == (422, "invalid")
        told = {error["field"]: error["message"] for error in reply.body["errors"]}
        assert told == dict.fromkeys([("foo" * 100)[:100], "k"], "unknown parameter")
        assert "2" not in reply.body["detail"]
