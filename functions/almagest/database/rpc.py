"""The door of request paths: one call of an API function through the unmodified supabase client."""

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import httpx
from postgrest.exceptions import APIError
from supabase import create_client
from supabase.lib.client_options import SyncClientOptions

from almagest import deadline, tracing
from almagest.models.caller import Caller
from almagest.problems import RETRY_AFTER_SECONDS, Problem
from almagest.schema import mismatch
from almagest.settings import Settings

logger = logging.getLogger(__name__)

MISCONFIGURED = (503, "misconfigured", "The function and its database do not fit together.")
# A name that no proxy on the way writes or takes for its own; `engine.note_request` reads it.
REQUEST_ID_HEADER = "x-almagest-request-id"
# Postgres took its transaction back for the sake of another one; the same call succeeds when it is made again.
SERIALIZATION = {"40001", "40P01"}
# PostgREST's own connection had died, or was ended while it worked.
CONNECTION_LOST = {"57P01", "PGRST001"}
# Classes of errors that a value caused: data exceptions, integrity constraints, program limits.
CAUSED_BY_A_VALUE = re.compile(r"(22|23|54)\w{3}")
# The database has no such function: its migrations and code are older than this code.
FUNCTION_MISSING = "PGRST202"
# What no caller can cause: a function, a right or a schema is missing, or the key is another project's.
UNEXPECTED_BY_THE_DATABASE = re.compile(r"42\w{3}|PGRST[123]\d\d")


class _KeyRefused(Problem):
    """The gateway does not take this function's key; nothing was done."""


class Rpc:
    """Calls of `api.<name>(caller, request)` over PostgREST.

    Parameters
    ----------
    settings
        Names the project's URL and its secret key.
    fresh_key
        Gives the key that is to be used instead of one that was refused, for it may have been rotated; None where there
        is no other.

    Raises
    ------
    Problem
        503 `misconfigured` when the settings name no project.
    """

    def __init__(self, settings: Settings, fresh_key: Callable[[], str | None] = lambda: None) -> None:
        if not settings.supabase_url or not settings.supabase_key:
            detail = "The function does not know its database."
            raise Problem(503, "misconfigured", detail, retry_after=RETRY_AFTER_SECONDS)
        self._seconds = settings.rpc_timeout_seconds
        self._fresh_key = fresh_key
        self._http = httpx.Client(
            # HTTP/1.1 only: a frozen container's HTTP/2 connection dies in a way that takes every stream with it.
            http2=False,
            limits=httpx.Limits(max_keepalive_connections=4, keepalive_expiry=60),
            event_hooks={"request": [self._limit_time, _name_request], "response": [_refuse_wrong_key]},
        )
        self._url = settings.supabase_url
        self._use(settings.supabase_key.get_secret_value())

    def call(self, name: str, caller: Caller | None, request: dict[str, Any], *, retry: bool) -> dict[str, Any]:
        """Run one API function: one round trip, one transaction.

        Parameters
        ----------
        name
            The function's name in schema `api`.
        caller
            Who asks; None for the system itself.
        request
            JSON values.
        retry
            Whether the call may be made a second time when a connection on its way died: it reads only, or it carries
            an idempotency key.

        Raises
        ------
        Problem
            What the function raised, or 503 where the database could not answer.
        """
        arguments = {"caller": caller and caller.model_dump(mode="json"), "request": request}
        try:
            return self._twice(name, arguments, retry)
        except _KeyRefused:
            key = self._fresh_key()
            if not key or key == self._key:
                raise
            self._use(key)
            return self._twice(name, arguments, retry)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _use(self, key: str) -> None:
        self._key, self._api = key, _postgrest(self._url, key, self._http)

    def _twice(self, name: str, arguments: dict[str, Any], retry: bool) -> dict[str, Any]:
        try:
            return self._attempt(name, arguments)
        except httpx.TransportError as error:
            if not retry or isinstance(error, httpx.TimeoutException):
                raise _unavailable(name, error) from error
            logger.warning("retrying after a dead connection", extra={"rpc": name, "error": type(error).__name__})
        except APIError as error:
            if error.code not in SERIALIZATION and not (retry and error.code in CONNECTION_LOST):
                raise problem_of(name, error) from error
            logger.warning("retrying what the database gave up", extra={"rpc": name, "sqlstate": error.code})
        try:
            return self._attempt(name, arguments)
        except httpx.TransportError as error:
            raise _unavailable(name, error) from error
        except APIError as error:
            raise problem_of(name, error) from error

    def _attempt(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        data = self._api.rpc(name, arguments).execute().data
        if not isinstance(data, dict):
            raise APIError({"message": f"answered {type(data).__name__}", "code": None})
        if data.keys() == {"problem"}:
            raise _answered(data["problem"])
        return data

    def _limit_time(self, request: httpx.Request) -> None:
        seconds = deadline.remaining(self._seconds)
        if seconds <= 0:
            raise httpx.PoolTimeout("no time is left for this request", request=request)
        request.extensions["timeout"] = httpx.Timeout(seconds, connect=min(seconds, 3)).as_dict()


def _postgrest(url: str, key: str, http: httpx.Client) -> Any:
    options = SyncClientOptions(schema="api", httpx_client=http, auto_refresh_token=False, persist_session=False)
    client = create_client(url, key, options)
    if key.startswith("sb_"):
        # These keys are not JWTs: they belong into `apikey` alone, and in `Authorization` are refused.
        client.options.headers.pop("Authorization", None)
    return client.schema("api")


def _name_request(request: httpx.Request) -> None:
    if request_id := tracing.request_id():
        request.headers[REQUEST_ID_HEADER] = request_id


def _refuse_wrong_key(response: httpx.Response) -> None:
    """Tell the gateway's 401, which our own key caused, from the 401 that `api.authenticate` raises."""
    if response.status_code == 401 and b'"PT401"' not in response.read():
        logger.error("the database refuses this function's key")
        raise _KeyRefused(*MISCONFIGURED, retry_after=RETRY_AFTER_SECONDS)


def problem_of(name: str, error: APIError) -> Problem:
    """What a caller may know of an error that PostgREST reported.

    Parameters
    ----------
    name
        The API function, for the log.
    error
        With PostgREST's or Postgres' code; its text goes to no caller unless the function meant it to.
    """
    code = str(error.code or "")
    if re.fullmatch(r"PT[45]\d\d", code):
        return _raised(int(code[2:]), error)
    logger.error("database error", extra={"rpc": name, "sqlstate": code})
    if CAUSED_BY_A_VALUE.fullmatch(code):
        return Problem(422, "invalid_value", "A value of the request cannot be stored.")
    if code == FUNCTION_MISSING:
        return mismatch(f"the database has no function api.{name}: run `almagest migrate`")
    if code == "57014":
        return Problem(503, "database_timeout", "The database took too long.", retry_after=RETRY_AFTER_SECONDS)
    if UNEXPECTED_BY_THE_DATABASE.fullmatch(code):
        return Problem(*MISCONFIGURED, retry_after=RETRY_AFTER_SECONDS)
    return Problem(503, "database_unavailable", "The database is not available.", retry_after=RETRY_AFTER_SECONDS)


def _raised(status: int, error: APIError) -> Problem:
    details = json.loads(error.details) if error.details else {}
    code = details.pop("code", "error")
    return Problem(status, code, error.message or code, retry_after=details.pop("retry_after", None), **details)


def _answered(problem: dict[str, Any]) -> Problem:
    """A problem that the function answered instead of raising it, since the database logs what is raised."""
    return Problem(problem.pop("status"), problem.pop("code"), problem.pop("detail"), **problem)


def _unavailable(name: str, error: Exception) -> Problem:
    logger.error("database not reached", extra={"rpc": name, "error": type(error).__name__})
    detail = "The database is not available."
    return Problem(503, "database_unavailable", detail, retry_after=RETRY_AFTER_SECONDS)
