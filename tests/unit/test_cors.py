"""CORS as a function URL answers it, before and after the function. R7."""

from infra.local.cors import answer_headers, preflight
from infra.local.events import UrlRequest
from infra.local.template import Cors

CORS = Cors(("https://a.example",), ("GET", "POST"), ("authorization",), ("x-request-id",), 60)


def request(method: str = "GET", **headers: str) -> UrlRequest:
    named = tuple((name.replace("_", "-").title(), value) for name, value in headers.items())
    return UrlRequest(method, "/v1/search", "", named, b"", "127.0.0.1")


def test_an_allowed_origin_is_named() -> None:
    assert dict(answer_headers(CORS, request(origin="https://a.example"))) == {
        "access-control-allow-origin": "https://a.example",
        "access-control-expose-headers": "x-request-id",
        "vary": "Origin",
    }
    anybody = Cors(("*",))
    assert dict(answer_headers(anybody, request(origin="https://b.example")))["access-control-allow-origin"] == "*"


def test_nobody_else_is_told_anything() -> None:
    assert answer_headers(CORS, request(origin="https://b.example")) == ()
    assert answer_headers(CORS, request()) == ()
    assert answer_headers(None, request(origin="https://a.example")) == ()


def test_a_browsers_question_never_reaches_the_function() -> None:
    asked = request("OPTIONS", origin="https://a.example", access_control_request_method="POST")
    answer = preflight(CORS, asked)
    assert answer is not None
    assert answer.status == 200
    assert dict(answer.headers)["access-control-allow-methods"] == "GET,POST"
    stranger = preflight(CORS, request("OPTIONS", origin="https://b.example", access_control_request_method="POST"))
    assert stranger is not None
    assert stranger.headers == ()
    assert preflight(CORS, request("OPTIONS", origin="https://a.example")) is None
    assert preflight(None, asked) is None
