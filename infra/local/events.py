"""A function URL's two translations: an HTTP request to an event, and what a function returns to an HTTP response.

Both follow payload format 2.0 of AWS Lambda's function URLs.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

# AWS says 6 MB, and means this many bytes of the event or of what the function returned.
PAYLOAD_LIMIT = 6_291_556

_TEXT_TYPES = {"application/json", "application/xml", "application/javascript"}


@dataclass(frozen=True)
class UrlRequest:
    """An HTTP request as it arrived: header names in any case, path and query not decoded."""

    method: str
    raw_path: str
    raw_query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source_ip: str
    protocol: str = "HTTP/1.1"


@dataclass(frozen=True)
class UrlResponse:
    """An HTTP response to be sent; `headers` may name `set-cookie` several times."""

    status: int
    headers: tuple[tuple[str, str], ...] = field(default=())
    body: bytes = b""


BAD_GATEWAY = UrlResponse(502, (("content-type", "application/json"),), b'{"Message":"Internal Server Error"}')


def url_event(
    request: UrlRequest, *, url_id: str, domain: str, request_id: str, trace_id: str, now: datetime
) -> dict[str, Any]:
    """Return the event that a function behind a URL receives.

    Parameters
    ----------
    request
        What the client sent.
    url_id, domain
        First label and whole of the URL's host name.
    request_id, trace_id
        Of this invocation.
    now
        Moment of arrival, with a time zone.
    """
    joined = _join((name.lower(), value) for name, value in request.headers)
    cookies = [cookie.strip() for cookie in joined.pop("cookie", "").split(";") if cookie.strip()]
    # Set from the connection, whatever the client claims.
    joined |= {"x-forwarded-for": request.source_ip, "x-forwarded-proto": "http", "x-amzn-trace-id": trace_id}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": request.raw_path,
        "rawQueryString": request.raw_query,
        "headers": joined,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": url_id,
            "domainName": domain,
            "domainPrefix": url_id,
            "http": {
                "method": request.method,
                "path": unquote(request.raw_path),
                "protocol": request.protocol,
                "sourceIp": request.source_ip,
                "userAgent": joined.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": now.astimezone(UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(now.timestamp() * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if request.raw_query:
        event["queryStringParameters"] = _join(parse_qsl(request.raw_query, keep_blank_values=True))
    if request.body:
        event["body"], event["isBase64Encoded"] = _encode(request.body, joined)
    return event


def url_response(payload: bytes) -> UrlResponse:
    """Return the response for what a function returned (JSON), or 502 when it makes no response."""
    try:
        result = json.loads(payload)
    except ValueError:
        return BAD_GATEWAY
    if not isinstance(result, dict) or "statusCode" not in result:
        return UrlResponse(200, (("content-type", "application/json"),), payload)
    try:
        return _declared_response(result)
    except (TypeError, ValueError, AttributeError):
        return BAD_GATEWAY


def _declared_response(result: Mapping[str, Any]) -> UrlResponse:
    status = int(result["statusCode"])
    if not 100 <= status <= 599:
        raise ValueError(status)
    headers = [(name.lower(), _scalar(value)) for name, value in (result.get("headers") or {}).items()]
    if all(name != "content-type" for name, _ in headers):
        headers.append(("content-type", "application/json"))
    headers += [("set-cookie", _scalar(cookie)) for cookie in result.get("cookies") or []]
    body = result.get("body")
    text = "" if body is None else body
    if not isinstance(text, str):
        raise TypeError(text)
    data = base64.b64decode(text, validate=True) if result.get("isBase64Encoded") else text.encode()
    return UrlResponse(status, tuple(headers), data)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(value)


def _join(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Join the values of a name that comes several times by commas."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        # Cookies are told apart by semicolons.
        joined[name] = f"{joined[name]}{';' if name == 'cookie' else ','}{value}" if name in joined else value
    return joined


def _encode(body: bytes, headers: Mapping[str, str]) -> tuple[str, bool]:
    """Return a body as an event carries it, and whether that is base64: text types go as text, all else encoded."""
    if _is_text(headers):
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def _is_text(headers: Mapping[str, str]) -> bool:
    if headers.get("content-encoding", "identity") != "identity":
        return False
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))
