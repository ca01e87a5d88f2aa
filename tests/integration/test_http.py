"""The contract for callers, over real sockets: the emulator, and the functions in processes of their own."""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.stack import Stack

Headers = dict[str, str]


@pytest.fixture(scope="module")
def http(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        yield client


@pytest.fixture
def bearer(stack: Stack) -> Headers:
    return {"authorization": f"Bearer {stack.key}"}


def code(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["request_id"] == response.headers["x-request-id"]
    return response.status_code, response.json()["code"]


class TestBody:
    """R6: never a 5xx that a caller caused."""

    @pytest.mark.parametrize(
        ("content", "content_type", "expected"),
        [
            (b"\xff\xfe\x00", "application/json", (400, "invalid_utf8")),
            (b"\xff\xfe\x00", "application/octet-stream", (415, "unsupported_media_type")),
            (b"{", "application/json", (400, "invalid_json")),
            (b"[" * 200_000, "application/json", (400, "too_deep")),
            (b'{"a":' * 200_000, "application/json", (400, "too_deep")),
            (b"[]", "application/json", (422, "invalid")),
            (b"", "application/json", (422, "invalid")),
            (b'{"query": "x"}', "text/plain", (415, "unsupported_media_type")),
            (b"query=x", "application/x-www-form-urlencoded", (415, "unsupported_media_type")),
            (b"--b\r\n\r\n--b--", "multipart/form-data; boundary=b", (415, "unsupported_media_type")),
            (b'{"query": "x"}', "application/json; charset=utf-16", (415, "unsupported_media_type")),
        ],
    )
    def test_that_cannot_be_read(
        self, http: httpx.Client, bearer: Headers, content: bytes, content_type: str, expected: tuple[int, str]
    ) -> None:
        headers = {**bearer, "content-type": content_type}
        assert code(http.post("/v1/search", content=content, headers=headers)) == expected

    def test_as_binary_by_its_type_is_read_all_the_same(self, http: httpx.Client, bearer: Headers) -> None:
        """A function URL hands over what it does not take for text as base64."""
        headers = {**bearer, "content-type": "application/vnd.almagest+json"}
        response = http.post("/v1/search", content='{"query": "größe"}'.encode(), headers=headers)
        assert response.status_code == 200

    @pytest.mark.parametrize("field", ["type", "profile"])
    def test_with_line_ends_in_a_name_that_the_answer_repeats(
        self, http: httpx.Client, bearer: Headers, field: str
    ) -> None:
        path, body = {
            "type": ("/v1/write/memories", {"content": "x"}),
            "profile": ("/v1/search", {"query": "x"}),
        }[field]
        response = http.post(path, json={**body, field: "no\r\nX-Header: 1\r\n\r\nsuch"}, headers=bearer)
        assert code(response) == (422, f"unknown_{field}")

    def test_compressed(self, http: httpx.Client, bearer: Headers) -> None:
        headers = {**bearer, "content-type": "application/json", "content-encoding": "gzip"}
        for content in (gzip.compress(b'{"query": "x"}'), b"no gzip"):
            assert code(http.post("/v1/search", content=content, headers=headers)) == (415, "unsupported_media_type")

    def test_larger_than_the_platform_takes(self, http: httpx.Client, bearer: Headers) -> None:
        headers = {**bearer, "content-type": "application/json"}
        response = http.post("/v1/search", content=b" " * (6 * 1024 * 1024 + 1), headers=headers)
        assert response.status_code == 413

    def test_unknown_fields_are_named(self, http: httpx.Client, bearer: Headers) -> None:
        """P4: an org in the body is an unknown field."""
        for field in ("org", "org_id", "user", "role"):
            response = http.post("/v1/search", json={"query": "x", field: str(uuid4())}, headers=bearer)
            assert code(response) == (422, "invalid")
            assert response.json()["errors"] == [{"field": field, "message": "unknown field"}]


class TestPaths:
    @pytest.mark.parametrize(
        ("method", "path", "expected"),
        [
            ("GET", "/v1/search", (405, "method_not_allowed")),
            ("PUT", "/v1/write/memories", (405, "method_not_allowed")),
            ("TRACE", "/v1/bootstrap", (405, "method_not_allowed")),
            ("GET", "/v1/search/nothing", (404, "not_found")),
            ("GET", "/v1/search/items/1", (404, "not_found")),
            ("GET", "/v1/search/items/%00", (404, "not_found")),
            ("GET", "/v1/search/items/%FF", (404, "not_found")),
            ("DELETE", "/v1/write/items/..%2f..", (404, "not_found")),
        ],
    )
    def test_refused(
        self, http: httpx.Client, bearer: Headers, method: str, path: str, expected: tuple[int, str]
    ) -> None:
        response = http.request(method, path, headers=bearer)
        assert code(response) == expected
        assert ("allow" in response.headers) == (response.status_code == 405)


class TestCredentials:
    def test_all_401s_look_alike(self, http: httpx.Client) -> None:
        attempts: list[Headers] = [
            {},
            {"authorization": "Bearer nonsense"},
            {"authorization": "Bearer alm_" + "x" * 43},
            {"authorization": "Basic dXNlcjpwYXNz"},
            {"authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."},
        ]
        seen = set()
        for headers in attempts:
            for content in (b'{"query": "x"}', b"\xff", b""):
                response = http.post("/v1/search", content=content, headers=headers)
                assert code(response) == (401, "unauthorized")
                assert response.headers["www-authenticate"] == "Bearer"
                seen.add(json.dumps({**response.json(), "request_id": ""}))
        assert len(seen) == 1

    def test_in_bytes_that_are_no_text(self, http: httpx.Client) -> None:
        response = http.post("/v1/search", json={"query": "x"}, headers={"authorization": b"Bearer \xff"})
        assert code(response) == (401, "unauthorized")

    def test_cors_by_the_url_alone(self, http: httpx.Client, bearer: Headers) -> None:
        """R7: a header of the function's own would be a second one."""
        headers = {**bearer, "origin": "https://example.com"}
        response = http.post("/v1/search", json={"query": "x"}, headers=headers)
        assert response.headers.get_list("access-control-allow-origin") == ["*"]
        assert response.headers.get_list("access-control-expose-headers") == ["x-request-id,retry-after"]


class TestLimits:
    """W8, S10."""

    def test_content(self, http: httpx.Client, bearer: Headers) -> None:
        largest = http.post("/v1/write/memories", json={"content": f"{uuid4()} " + "ab " * 333_000}, headers=bearer)
        assert (largest.status_code, largest.json()["index_status"]) == (201, "text_ready")
        # else the index function would be busy with it for a minute, and others' memories would wait
        assert http.delete(f"/v1/write/items/{largest.json()['id']}", headers=bearer).status_code == 200
        larger = http.post("/v1/write/memories", json={"content": "x" * 1_000_001}, headers=bearer)
        assert code(larger) == (422, "invalid")
        assert len(larger.content) < 1000

    def test_text_of_a_batch(self, http: httpx.Client, bearer: Headers) -> None:
        body = {"memories": [{"content": f"{number} " + "ab " * 80_000} for number in range(5)]}
        response = http.post("/v1/write/memories/batch", json=body, headers=bearer)
        assert code(response) == (413, "too_much_text")

    @pytest.mark.slow
    def test_largest_content_of_any_script(self, http: httpx.Client, bearer: Headers) -> None:
        draw = random.Random(1)  # noqa: S311 - a fixed draw, not a secret
        signs = "".join(chr(draw.randint(0x4E00, 0x9FFF)) for _ in range(1_000_000))
        response = http.post("/v1/write/memories", json={"content": signs}, headers=bearer, timeout=60)
        assert (response.status_code, response.json().get("index_status")) == (201, "text_ready")
        found = http.post("/v1/search", json={"query": signs[500_000:500_008], "k": 1}, headers=bearer).json()
        assert [result["id"] for result in found["results"]] == [response.json()["id"]]
        assert http.delete(f"/v1/write/items/{response.json()['id']}", headers=bearer).status_code == 200

    def test_cleaned_and_said_so(self, http: httpx.Client, bearer: Headers) -> None:
        response = http.post(
            "/v1/write/memories", content=b'{"content": "n\\u0000ul and \\ud800 surrogate"}',
            headers={**bearer, "content-type": "application/json"},
        )  # fmt: skip
        assert (response.status_code, response.json()["cleaned"]) == (201, True)

    @pytest.mark.parametrize("query", ["ab", "the of and", "?!…", "😀", "x" * 100_000, "word " * 20_000])
    def test_query_has_an_answer(self, http: httpx.Client, bearer: Headers, query: str) -> None:
        assert http.post("/v1/search", json={"query": query}, headers=bearer).status_code == 200

    @pytest.mark.parametrize(
        "body", [{"query": ""}, {"query": " "}, {"query": "x" * 100_001}, {"query": "x", "k": 101}]
    )
    def test_query_refused(self, http: httpx.Client, bearer: Headers, body: Any) -> None:
        assert code(http.post("/v1/search", json=body, headers=bearer)) == (422, "invalid")

    @pytest.mark.parametrize("count", [0, 501])
    def test_batch(self, http: httpx.Client, bearer: Headers, count: int) -> None:
        body = {"memories": [{"content": f"{number}"} for number in range(count)]}
        assert code(http.post("/v1/write/memories/batch", json=body, headers=bearer)) == (422, "invalid")

    def test_idempotency_key(self, http: httpx.Client, bearer: Headers) -> None:
        headers = {**bearer, "idempotency-key": "k" * 256}
        response = http.post("/v1/write/memories", json={"content": "x"}, headers=headers)
        assert code(response) == (400, "invalid_idempotency_key")


class TestIdempotency:
    """W1."""

    @pytest.fixture
    def write(self, http: httpx.Client, bearer: Headers) -> Callable[[str], httpx.Response]:
        headers = {**bearer, "idempotency-key": str(uuid4())}
        return lambda content: http.post("/v1/write/memories", json={"content": content}, headers=headers)

    def test_same_request(self, write: Callable[[str], httpx.Response]) -> None:
        content = f"Once only: {uuid4()}"
        one, two = write(content), write(content)
        assert (one.status_code, two.status_code) == (201, 201)
        assert one.json() == two.json()

    def test_another_request(self, write: Callable[[str], httpx.Response]) -> None:
        write(f"One: {uuid4()}")
        assert code(write(f"Two: {uuid4()}")) == (409, "idempotency_conflict")
