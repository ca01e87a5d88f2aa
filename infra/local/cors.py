"""What a function URL says to pages of other origins; the function itself says nothing."""

from collections.abc import Mapping

from infra.local.events import UrlRequest, UrlResponse
from infra.local.template import Cors

Headers = tuple[tuple[str, str], ...]


def preflight(cors: Cors | None, request: UrlRequest) -> UrlResponse | None:
    """Answer a browser's question whether it may send a request; None for what is no such question.

    `answer_headers` come on top, as on every answer.
    """
    headers = _named(request)
    if cors is None or request.method != "OPTIONS" or "access-control-request-method" not in headers:
        return None
    if not answer_headers(cors, request):
        return UrlResponse(200)
    return UrlResponse(
        200,
        (
            ("access-control-allow-methods", ",".join(cors.methods)),
            ("access-control-allow-headers", ",".join(cors.headers)),
            ("access-control-max-age", str(cors.max_age)),
        ),
    )


def answer_headers(cors: Cors | None, request: UrlRequest) -> Headers:
    """Return what is added to an answer: nothing for a request without an origin, or from one that is not allowed."""
    origin = _named(request).get("origin")
    if cors is None or origin is None or not {"*", origin} & set(cors.origins):
        return ()
    allowed = "*" if "*" in cors.origins else origin
    exposed = (("access-control-expose-headers", ",".join(cors.exposed)),) if cors.exposed else ()
    return (("access-control-allow-origin", allowed), ("vary", "Origin"), *exposed)


def _named(request: UrlRequest) -> Mapping[str, str]:
    return {name.lower(): value for name, value in request.headers}
