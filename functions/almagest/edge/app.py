"""One function URL event in, one response out, whatever happens."""

import json
import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, cast
from uuid import UUID

from aws_lambda_powertools.event_handler import LambdaFunctionUrlResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Route
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError

from almagest import deadline, tracing
from almagest.edge import observe
from almagest.edge.authenticate import authenticate
from almagest.edge.body import MAX_BYTES, parse_json, with_text_body
from almagest.edge.problems import internal, invalid, not_found, render, unknown_parameters
from almagest.models.call import Call
from almagest.models.caller import Caller
from almagest.operations.schema import demand_schema
from almagest.problems import Problem
from almagest.runtime import Admission, Runtime, container

Event = dict[str, Any]

_IDEMPOTENCY_KEY = re.compile(r"[ -~]{1,255}")
# The platform counts the whole answer as JSON, in which one character of a body takes up to 12 bytes.
_MAY_BE_TOO_LARGE = MAX_BYTES // 12


class App(LambdaFunctionUrlResolver):
    """The routes of one function, behind authentication and with every error as a problem.

    Parameters
    ----------
    name
        The function's, for logs and metrics.
    runtime
        Gives the objects that operations work with, on the first request.

    Examples
    --------
    >>> app = App("search")
    >>> @app.get("/v1/search/items/<item>")
    ... def get_item(item: str) -> Item:
    ...     return operations.get_item(app.runtime, app.caller, path_id(item))
    """

    def __init__(self, name: str, runtime: Callable[[], Runtime] = container) -> None:
        super().__init__(
            enable_validation=True,
            response_validation_error_http_code=HTTPStatus.INTERNAL_SERVER_ERROR,
            serializer=_serialize,
            json_body_deserializer=parse_json,
        )
        self.name = name
        self.connect = runtime
        self.mode: str | None = None
        self.exception_handler(Exception)(self._on_error)

    @property
    def routes(self) -> list[Route]:
        """All routes of this function."""
        return self._static_routes + self._dynamic_routes

    @property
    def runtime(self) -> Runtime:
        """What operations work with."""
        return self.connect()

    @property
    def caller(self) -> Caller:
        """Who sent the current request."""
        return cast(Caller, self.context["caller"])

    @property
    def call(self) -> Call:
        """The current request's id and idempotency key."""
        return cast(Call, self.context["call"])

    def handle(self, event: Event, context: Any) -> dict[str, Any]:
        """Answer an event of payload format 2.0.

        Parameters
        ----------
        event
            As a function URL sends it.
        context
            Lambda's; its remaining time bounds every wait.
        """
        started = time.monotonic()
        request_id = event["requestContext"]["requestId"]
        observe.begin(request_id)
        self.mode = None
        with deadline.limit(context.get_remaining_time_in_millis() / 1000), tracing.request(request_id):
            response = self._answer(event, context, request_id)
        response = _within_limit(response, request_id)
        response["headers"]["x-request-id"] = request_id
        observe.finish(self.name, response["statusCode"], time.monotonic() - started, self.mode)
        return response

    def _answer(self, event: Event, context: Any, request_id: str) -> dict[str, Any]:
        try:
            headers = event.get("headers") or {}
            demand_schema(self.runtime)
            admission = authenticate(self.runtime, headers)
            caller = admission.caller
            observe.note(org=caller.org, user=caller.user, agent=caller.agent, key=caller.key)
            self._limit(admission)
            route = self._require_route(event["requestContext"]["http"]["method"], event["rawPath"])
            _require_known(event.get("queryStringParameters") or {}, route)
            self.context.update(caller=caller, call=_call(headers, request_id))
            return self.resolve(with_text_body({**event, "headers": headers}), context)
        except Exception as error:
            return _plain(render(_problem_of(error), request_id))
        finally:
            self.context.clear()

    def _limit(self, admission: Admission) -> None:
        admission.usage.demand()
        self.runtime.rate_limit.take(admission.caller, admission.rate)
        admission.usage.count()

    def _require_route(self, method: str, path: str) -> Route:
        routes = [route for route in self.routes if route.rule.match(path)]
        if not routes:
            raise not_found()
        observe.note(method=method, route=routes[0].path)
        if route := next((route for route in routes if route.method == method), None):
            return route
        allowed = ", ".join(sorted(route.method for route in routes))
        raise Problem(405, "method_not_allowed", f"This path takes {allowed}.", allow=allowed)

    def _on_error(self, error: Exception) -> Response[str]:
        if isinstance(error, RequestValidationError):
            event = self.current_event
            problem = invalid(error.errors(), {"query": event.query_string_parameters, "body": event.json_body})
        else:
            problem = _problem_of(error)
        return render(problem, self.call.request_id)


def path_id(text: str) -> UUID:
    """An id out of a path.

    Raises
    ------
    Problem
        404 for what cannot be an id, as for an id of nothing.
    """
    try:
        return UUID(text)
    except ValueError:
        raise not_found() from None


def _require_known(query: Mapping[str, str], route: Route) -> None:
    """Refuse parameters that a route does not have, as unknown fields of a body are: they would be passed over."""
    known = {parameter.alias for parameter in route.dependant.query_params}
    if unknown := query.keys() - known:
        raise unknown_parameters(unknown)


def _call(headers: dict[str, str], request_id: str) -> Call:
    key = headers.get("idempotency-key")
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        detail = "An Idempotency-Key has 1 to 255 printable ASCII characters."
        raise Problem(400, "invalid_idempotency_key", detail)
    return Call(request_id=request_id, idempotency_key=key)


def _problem_of(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    observe.unexpected(error)
    return internal()


def _serialize(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(response: Response[str]) -> dict[str, Any]:
    return {
        "statusCode": response.status_code,
        "headers": dict(response.headers),
        "body": response.body,
        "isBase64Encoded": False,
        "cookies": [],
    }


def _within_limit(response: dict[str, Any], request_id: str) -> dict[str, Any]:
    body = response["body"]
    if len(body) < _MAY_BE_TOO_LARGE or len(json.dumps(response, ensure_ascii=False).encode()) <= MAX_BYTES:
        return response
    problem = Problem(413, "response_too_large", "The answer is larger than 6 MB; ask for less, or page by page.")
    return _plain(render(problem, request_id))
