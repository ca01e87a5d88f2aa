"""AWS Lambda, as far as the template asks for it: function URLs, invocations, and the processes behind both.

All URLs share one address: `/v1/<function>/…` belongs to the function of that name. AWS's own `Invoke` API answers
beside them, so that `boto3` with AWS_ENDPOINT_URL_LAMBDA invokes a function here as it would there, and so does
Secrets Manager's `GetSecretValue`.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote
from uuid import uuid4

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from infra.local import cors, secrets
from infra.local.environment import HERE, Runner
from infra.local.errors import StackError
from infra.local.events import BAD_GATEWAY, PAYLOAD_LIMIT, UrlRequest, UrlResponse, url_event, url_response
from infra.local.ports import LOOPBACK, holder
from infra.local.runtime_api import Invocation, Outcome, Worker
from infra.local.template import REGION, Function, function_arn

# What an account may run at once when a function reserves nothing.
ACCOUNT_CONCURRENCY = 1000
# This machine runs that many processes of such a function; further requests wait for one of them.
DEFAULT_WORKERS = 2
ASYNC_LIMIT = 1_048_576
# Lambda tries a failed asynchronous invocation again after these many seconds.
RETRY_DELAYS = (60.0, 120.0)

log = logging.getLogger(__name__)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a fault is the server's: what is no HTTP is answered with 400, and is the client's."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


_server_log = logging.getLogger(f"{__name__}.server")
_server_log.addFilter(_is_ours)


class Throttled(Exception):
    """More invocations at once than the function's concurrency allows."""


class Pool:
    """The processes of one function, started on demand and kept.

    Parameters
    ----------
    function
        What runs.
    lambda_api
        URL of the emulated Lambda API.
    log_file
        Where the processes write.
    runner
        What runs them.
    """

    def __init__(self, function: Function, lambda_api: str, log_file: Path, runner: Runner) -> None:
        self.function = function
        self._lambda_api = lambda_api
        self._log_file = log_file
        self._runner = runner
        self._limit = ACCOUNT_CONCURRENCY if function.concurrency is None else function.concurrency
        self._slots = asyncio.Semaphore(DEFAULT_WORKERS if function.concurrency is None else function.concurrency)
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._in_flight = 0

    async def invoke(self, invocation: Invocation) -> Outcome:
        """Run one invocation in a process that is free.

        Raises
        ------
        Throttled
            When the function is at its concurrency already.
        """
        if self._in_flight >= self._limit:
            raise Throttled
        self._in_flight += 1
        try:
            async with self._slots:
                worker = await self._take()
                try:
                    return await worker.invoke(invocation)
                finally:
                    await self._give_back(worker)
        finally:
            self._in_flight -= 1

    async def warm(self) -> None:
        """Start a process before anybody asks."""
        if self._limit:
            self._idle.append(await self._start())

    async def stop(self) -> None:
        """End every process."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._workers.clear()
        self._idle.clear()

    async def _take(self) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            await self._discard(worker)
        return await self._start()

    async def _start(self) -> Worker:
        worker = Worker(self.function, self._lambda_api, self._log_file, self._runner)
        self._workers.add(worker)
        await worker.start()
        return worker

    async def _give_back(self, worker: Worker) -> None:
        if worker.is_alive:
            self._idle.append(worker)
        else:
            await self._discard(worker)

    async def _discard(self, worker: Worker) -> None:
        self._workers.discard(worker)
        await worker.stop()


class Emulator:
    """The HTTP server.

    Parameters
    ----------
    functions
        By name, as `read_template` gives them.
    logs
        Directory of the functions' logs, one file a function.
    retry_delays
        Pauses, in seconds, before a failed asynchronous invocation is tried again.
    runner
        What runs the functions' processes.
    known_secrets
        What Secrets Manager knows: ARN -> key -> value.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        logs: Path,
        *,
        retry_delays: tuple[float, ...] = RETRY_DELAYS,
        runner: Runner = HERE,
        known_secrets: secrets.Secrets | None = None,
    ) -> None:
        self._functions = functions
        self._logs = logs
        self._retry_delays = retry_delays
        self._program = runner
        self._secrets = known_secrets or {}
        self._pools: dict[str, Pool] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int = 0) -> None:
        """Listen on `port`, 0 for a free one, and warm the functions that have a URL.

        Raises
        ------
        StackError
            When the port is taken.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        app = web.Application(client_max_size=0)
        app.router.add_post("/2015-03-31/functions/{name}/invocations", self._serve_invoke)
        app.router.add_post("/", self._serve_secret)
        app.router.add_route("*", "/v1/{name}", self._serve_url)
        app.router.add_route("*", "/v1/{name}/{rest:.*}", self._serve_url)
        app.router.add_route("*", "/{path:.*}", _serve_nothing)
        # A function URL hands over a compressed body as it came.
        self._runner = web.AppRunner(
            app, access_log=None, logger=_server_log, shutdown_timeout=1, auto_decompress=False
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, LOOPBACK, port).start()
        except OSError as error:
            raise port_taken(port) from error
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"
        for function in self._functions.values():
            self._pools[function.name] = Pool(function, self.url, self._logs / f"{function.name}.log", self._program)
        await asyncio.gather(*(pool.warm() for pool in self._pools.values() if pool.function.has_url))

    async def stop(self) -> None:
        """Stop listening and end every process."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))

    def invoke_later(self, name: str, payload: bytes) -> None:
        """Invoke a function asynchronously: errors and throttles are tried again, then logged."""
        task = asyncio.create_task(self._invoke_until_done(name, payload))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _invoke_until_done(self, name: str, payload: bytes) -> None:
        outcome: Outcome | None = None
        for delay in (*self._retry_delays, None):
            with suppress(Throttled):
                outcome = await self._pools[name].invoke(Invocation.of(payload))
                if not outcome.is_error:
                    return
            if delay is not None:
                await asyncio.sleep(delay)
        reason = outcome.payload.decode(errors="replace") if outcome else "throttled"
        log.warning("An asynchronous invocation of %s was given up: %s", name, reason)

    async def _serve_url(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        function = self._functions.get(name)
        if function is None or not function.has_url:
            return await _serve_nothing(request)
        asked = await _read(request)
        answer = cors.preflight(function.cors, asked) or await self._answer(name, asked)
        return _send(answer, cors.answer_headers(function.cors, asked))

    async def _answer(self, name: str, request: UrlRequest) -> UrlResponse:
        invocation = Invocation.of(b"")
        event = url_event(
            request,
            url_id=name,
            domain=f"{name}.lambda-url.{REGION}.on.aws",
            request_id=invocation.request_id,
            trace_id=invocation.trace_id.partition(";")[0],
            now=datetime.now(UTC),
        )
        payload = json.dumps(event, ensure_ascii=False).encode()
        if len(payload) > PAYLOAD_LIMIT:
            return _message(413, f"Request must be smaller than {PAYLOAD_LIMIT} bytes for the InvokeFunction operation")
        try:
            outcome = await self._pools[name].invoke(
                Invocation(payload, invocation.request_id, invocation.trace_id),
            )
        except Throttled:
            return _message(429, "Rate Exceeded.")
        return BAD_GATEWAY if outcome.is_error else url_response(outcome.payload)

    async def _serve_secret(self, request: web.Request) -> web.Response:
        return await secrets.serve(request, self._secrets)

    async def _serve_invoke(self, request: web.Request) -> web.Response:
        name = unquote(request.match_info["name"]).rpartition(":")[2]
        if name not in self._functions:
            message = f"Function not found: {function_arn(name)}"
            return _api_error(404, "ResourceNotFoundException", message)
        payload = await request.read() or b"{}"
        is_event = request.headers.get("X-Amz-Invocation-Type", "RequestResponse") == "Event"
        if len(payload) > (ASYNC_LIMIT if is_event else PAYLOAD_LIMIT):
            return _api_error(413, "RequestTooLargeException", "The request payload exceeded the limit.")
        try:
            json.loads(payload)
        except ValueError:
            return _api_error(400, "InvalidRequestContentException", "Could not parse request body into json.")
        if is_event:
            self.invoke_later(name, payload)
            return web.Response(status=202)
        try:
            outcome = await self._pools[name].invoke(Invocation.of(payload))
        except Throttled:
            return _api_error(429, "TooManyRequestsException", "Rate Exceeded.")
        headers = {"X-Amz-Executed-Version": "$LATEST"}
        if outcome.is_error:
            headers["X-Amz-Function-Error"] = "Unhandled"
        return web.Response(body=outcome.payload, content_type="application/json", headers=headers)


def port_taken(port: int) -> StackError:
    """Return the error that says who holds a port."""
    who = holder(port)
    by = f" by {who}" if who else ""
    return StackError(f"Port {port} is in use{by}; end that, or set ALMAGEST_PORT to another port.")


async def _read(request: web.Request) -> UrlRequest:
    raw_path, _, raw_query = request.raw_path.partition("?")
    version = request.version
    return UrlRequest(
        method=request.method,
        raw_path=raw_path,
        raw_query=raw_query,
        headers=tuple((name, _as_utf8(value)) for name, value in request.headers.items()),
        body=await request.read(),
        source_ip=request.remote or LOOPBACK,
        protocol=f"HTTP/{version.major}.{version.minor}",
    )


def _as_utf8(value: str) -> str:
    # aiohttp keeps bytes that are no UTF-8 as lone surrogates, which no event can carry.
    return value.encode(errors="surrogateescape").decode(errors="replace")


def _send(answer: UrlResponse, added: cors.Headers) -> web.Response:
    response = web.Response(status=answer.status, body=answer.body)
    response.headers.popall("Content-Type", None)
    for name, value in (*answer.headers, *added):
        # The length is counted here, whatever the function says.
        if name not in ("content-length", "transfer-encoding", "connection"):
            response.headers.add(name, value)
    return response


def _message(status: int, text: str) -> UrlResponse:
    return UrlResponse(status, (("content-type", "application/json"),), json.dumps({"Message": text}).encode())


def _api_error(status: int, kind: str, message: str) -> web.Response:
    return web.json_response(
        {"Type": "User", "Message": message, "message": message}, status=status, headers={"x-amzn-errortype": kind}
    )


async def _serve_nothing(request: web.Request) -> web.Response:
    request_id = str(uuid4())
    return web.json_response(
        {
            "type": "about:blank",
            "title": "Not Found",
            "status": 404,
            "code": "not_found",
            "detail": f"No function answers at {request.path}; paths are /v1/<function>/….",
            "request_id": request_id,
        },
        status=404,
        headers={"x-request-id": request_id},
        content_type="application/problem+json",
    )
