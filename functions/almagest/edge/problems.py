"""Problems -> `application/problem+json`, the same from every function."""

import json
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from almagest.models.errors import MAX_ERRORS, MAX_NAME, field_errors, summary
from almagest.problems import Problem

CONTENT_TYPE = "application/problem+json"


def unauthorized() -> Problem:
    """The one answer to every credential that is missing, malformed, unknown, expired or revoked."""
    return Problem(401, "unauthorized", "A valid credential is required: Authorization: Bearer <token>.")


def not_found() -> Problem:
    """The one answer for what does not exist and for what the caller may not see."""
    return Problem(404, "not_found", "There is nothing here.")


def invalid(errors: Sequence[Mapping[str, Any]], sent: Mapping[str, Any]) -> Problem:
    """A request that the models refuse.

    Parameters
    ----------
    errors
        As Powertools reports them: each location begins with `body` or `query`.
    sent
        The same two parts of the request, as they came.
    """
    fields = [
        field
        for part, value in sent.items()
        for field in field_errors(
            ({**each, "loc": each["loc"][1:]} for each in errors if each["loc"][0] == part), value
        )
    ]
    return Problem(422, "invalid", summary(fields), errors=fields)


def unknown_parameters(names: Collection[str]) -> Problem:
    """A query that holds parameters which the route does not have."""
    errors = [{"field": name[:MAX_NAME], "message": "unknown parameter"} for name in sorted(names)[:MAX_ERRORS]]
    return Problem(422, "invalid", summary(errors), errors=errors)


def internal() -> Problem:
    """Something that no caller can cause or help."""
    return Problem(500, "internal", "Something went wrong here; the request id helps to find it.")


def render(problem: Problem, request_id: str) -> Response[str]:
    """The response that tells of a problem.

    Parameters
    ----------
    problem
        `unauthorized` and `not_found` look alike whatever their cause was.
    request_id
        As in the logs.
    """
    problem = {"unauthorized": unauthorized(), "not_found": not_found()}.get(problem.code, problem)
    body = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "request_id": request_id,
        **problem.extra,
    }
    return Response(problem.status, CONTENT_TYPE, json.dumps(body, ensure_ascii=False), headers=_headers(problem))


def _headers(problem: Problem) -> dict[str, str]:
    headers: dict[str, str] = {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if "allow" in problem.extra:
        headers["Allow"] = str(problem.extra["allow"])
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    return headers
