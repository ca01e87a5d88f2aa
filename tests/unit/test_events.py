"""The translations of a function URL: a request to an event, a result to a response."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from infra.local.events import BAD_GATEWAY, UrlRequest, UrlResponse, url_event, url_response

NOW = datetime(2026, 11, 3, 9, 5, 7, 123000, tzinfo=UTC)


def event(**fields: Any) -> dict[str, Any]:
    request = UrlRequest(
        **{
            "method": "POST",
            "raw_path": "/v1/search",
            "raw_query": "",
            "headers": (),
            "body": b"",
            "source_ip": "127.0.0.1",
        }
        | fields
    )
    return url_event(
        request,
        url_id="search",
        domain="search.lambda-url.us-east-1.on.aws",
        request_id="2f6e",
        trace_id="Root=1-0-0",
        now=NOW,
    )


def test_the_whole_event() -> None:
    found = event(
        raw_path="/v1/search/a%20b",
        raw_query="k=1&k=2&empty=",
        headers=(
            ("Host", "127.0.0.1:8787"),
            ("User-Agent", "curl/8"),
            ("Content-Type", "application/json"),
            ("X-Forwarded-For", "6.6.6.6"),
            ("Accept", "a"),
            ("ACCEPT", "b"),
            ("Cookie", "c=1; d=2"),
            ("cookie", "e=3"),
        ),
        body='{"query": "é"}'.encode(),
    )
    assert found == {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/v1/search/a%20b",
        "rawQueryString": "k=1&k=2&empty=",
        "cookies": ["c=1", "d=2", "e=3"],
        "headers": {
            "host": "127.0.0.1:8787",
            "user-agent": "curl/8",
            "content-type": "application/json",
            "accept": "a,b",
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-proto": "http",
            "x-amzn-trace-id": "Root=1-0-0",
        },
        "queryStringParameters": {"k": "1,2", "empty": ""},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "search",
            "domainName": "search.lambda-url.us-east-1.on.aws",
            "domainPrefix": "search",
            "http": {
                "method": "POST",
                "path": "/v1/search/a b",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "curl/8",
            },
            "requestId": "2f6e",
            "routeKey": "$default",
            "stage": "$default",
            "time": "03/Nov/2026:09:05:07 +0000",
            "timeEpoch": 1793696707123,
        },
        "body": '{"query": "é"}',
        "isBase64Encoded": False,
    }


def test_what_is_absent_is_left_out() -> None:
    assert not event().keys() & {"cookies", "queryStringParameters", "body"}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"content-type": "application/json; charset=utf-8"}, b"{}", ("{}", False)),
        ({"content-type": "TEXT/plain"}, "é".encode(), ("é", False)),
        ({"content-type": "application/problem+json"}, b"{}", ("{}", False)),
        ({"content-type": "application/xml"}, b"<a/>", ("<a/>", False)),
        ({"content-type": "application/octet-stream"}, b"{}", ("e30=", True)),
        ({"content-type": "application/x-www-form-urlencoded"}, b"a=1", ("YT0x", True)),
        ({}, b"{}", ("e30=", True)),
        ({"content-type": "application/json", "content-encoding": "gzip"}, b"{}", ("e30=", True)),
        ({"content-type": "application/json"}, b"\xff", ("/w==", True)),
    ],
)
def test_text_goes_as_text_and_all_else_as_base64(
    headers: dict[str, str], body: bytes, expected: tuple[str, bool]
) -> None:
    found = event(headers=tuple(headers.items()), body=body)
    assert (found["body"], found["isBase64Encoded"]) == expected


def test_a_result_without_status_is_json() -> None:
    json_type = (("content-type", "application/json"),)
    assert url_response(b'{"a": 1}') == UrlResponse(200, json_type, b'{"a": 1}')
    assert url_response(b'"text"') == UrlResponse(200, json_type, b'"text"')
    assert url_response(b"null") == UrlResponse(200, json_type, b"null")


def test_a_declared_response() -> None:
    result = {
        "statusCode": "202",
        "headers": {"X-Number": 1, "X-Flag": True},
        "cookies": ["a=1", "b=2"],
        "body": "AP8=",
        "isBase64Encoded": True,
    }
    assert url_response(json.dumps(result).encode()) == UrlResponse(
        202,
        (
            ("x-number", "1"),
            ("x-flag", "true"),
            ("content-type", "application/json"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ),
        b"\x00\xff",
    )
    assert url_response(b'{"statusCode": 204}').body == b""


@pytest.mark.parametrize(
    "result",
    [
        b"no json",
        b'{"statusCode": "ok"}',
        b'{"statusCode": 99}',
        b'{"statusCode": null}',
        b'{"statusCode": 200, "body": {"a": 1}}',
        b'{"statusCode": 200, "headers": {"a": [1]}}',
        b'{"statusCode": 200, "headers": "a"}',
        b'{"statusCode": 200, "body": "?", "isBase64Encoded": true}',
    ],
)
def test_what_is_no_response_is_502(result: bytes) -> None:
    assert url_response(result) == BAD_GATEWAY
