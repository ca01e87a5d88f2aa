"""Execution environments: a function's process, and the Runtime API that it asks for work.

Every process has a Runtime API on a loopback port of its own, because `awslambdaric` takes no path in
AWS_LAMBDA_RUNTIME_API, and by its port a process is told from the others.
"""

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from aiohttp import web

from infra.local.environment import HERE, Runner, function_environment
from infra.local.events import PAYLOAD_LIMIT
from infra.local.ports import LOOPBACK
from infra.local.template import Function

API = "/2018-06-01/runtime"
# Lambda gives an initialisation 10 s, and then another chance within the function's own timeout.
INIT_SECONDS = 10


@dataclass(frozen=True)
class Outcome:
    """What came of an invocation: JSON, and whether it is the function's result or an error."""

    payload: bytes
    is_error: bool = False

    @classmethod
    def error(cls, kind: str, message: str) -> "Outcome":
        """Return an error that the platform, not the function, reports."""
        return cls(json.dumps({"errorType": kind, "errorMessage": message}).encode(), is_error=True)


@dataclass(frozen=True)
class Invocation:
    """One event on its way to a function; `payload` is JSON."""

    payload: bytes
    request_id: str
    trace_id: str

    @classmethod
    def of(cls, payload: bytes) -> "Invocation":
        """Give a payload the ids of a new invocation."""
        root = uuid4().hex
        return cls(payload, str(uuid4()), f"Root=1-{int(time.time()):08x}-{root[:24]};Parent={root[16:]};Sampled=0")


class Worker:
    """One process of a function, which takes one invocation at a time.

    Parameters
    ----------
    function
        What runs in it.
    lambda_api
        URL of the emulated Lambda API.
    log
        File that its output is appended to.
    runner
        What runs the process.
    """

    def __init__(self, function: Function, lambda_api: str, log: Path, runner: Runner = HERE) -> None:
        self.function = function
        self._lambda_api = lambda_api
        self._log = log
        self._program = runner
        self._runner: web.AppRunner | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._next: asyncio.Queue[tuple[Invocation, int]] = asyncio.Queue()
        self._ready: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._running: tuple[str, asyncio.Future[Outcome]] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_spent = False

    @property
    def is_alive(self) -> bool:
        """Whether it can take another invocation."""
        return self._process is not None and self._process.returncode is None and not self._is_spent

    async def start(self) -> None:
        """Start the process; `invoke` waits until it is initialised."""
        app = web.Application(client_max_size=0)
        app.add_routes(
            [
                web.get(f"{API}/invocation/next", self._give_next),
                web.post(f"{API}/invocation/{{id}}/response", self._take_response),
                web.post(f"{API}/invocation/{{id}}/error", self._take_error),
                web.post(f"{API}/init/error", self._take_init_error),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0).start()
        address = f"{LOOPBACK}:{self._runner.addresses[0][1]}"
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._program.command, self.function.handler),
                env=function_environment(self.function, address, self._lambda_api, self._program),
                cwd=self.function.code,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watcher = asyncio.create_task(self._watch())

    async def invoke(self, invocation: Invocation) -> Outcome:
        """Run one invocation; a process that takes too long is ended, and the worker with it."""
        failed = await self._initialise()
        if failed is not None:
            return failed
        result: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._running = (invocation.request_id, result)
        deadline = int((time.time() + self.function.timeout) * 1000)
        self._next.put_nowait((invocation, deadline))
        try:
            return await asyncio.wait_for(result, self.function.timeout)
        except TimeoutError:
            message = f"{invocation.request_id} Task timed out after {self.function.timeout:.2f} seconds"
            await self.stop()
            return Outcome.error("Sandbox.Timedout", message)
        finally:
            self._running = None

    async def stop(self) -> None:
        """End the process and its Runtime API."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._watcher is not None:
            await asyncio.wait([self._watcher])
        if self._runner is not None:
            await self._runner.cleanup()

    async def _initialise(self) -> Outcome | None:
        """Wait for the first call of `next`; return the error when there will be none."""
        seconds = INIT_SECONDS + self.function.timeout
        try:
            return await asyncio.wait_for(asyncio.shield(self._ready), seconds)
        except TimeoutError:
            await self.stop()
            return Outcome.error("Sandbox.Timedout", f"Initialisation timed out after {seconds:.2f} seconds")

    async def _watch(self) -> None:
        assert self._process is not None  # noqa: S101 - the task starts after the process
        status = await self._process.wait()
        gone = Outcome.error("Runtime.ExitError", f"Runtime exited with status {status}")
        if not self._ready.done():
            self._ready.set_result(gone)
        self._finish(gone)

    def _finish(self, outcome: Outcome) -> None:
        if self._running and not self._running[1].done():
            self._running[1].set_result(outcome)

    async def _give_next(self, _: web.Request) -> web.Response:
        if not self._ready.done():
            self._ready.set_result(None)
        invocation, deadline = await self._next.get()
        return web.Response(
            body=invocation.payload,
            content_type="application/json",
            headers={
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(deadline),
                "Lambda-Runtime-Invoked-Function-Arn": self.function.arn,
                "Lambda-Runtime-Trace-Id": invocation.trace_id,
            },
        )

    async def _take_response(self, request: web.Request) -> web.Response:
        payload = await request.read()
        if len(payload) <= PAYLOAD_LIMIT:
            return self._take(request, Outcome(payload))
        message = f"Response payload size exceeded maximum allowed payload size ({PAYLOAD_LIMIT} bytes)."
        self._is_spent = True  # the runtime takes the refusal for its end
        self._take(request, Outcome.error("Function.ResponseSizeTooLarge", message))
        return web.json_response({"errorType": "RequestEntityTooLarge", "errorMessage": message}, status=413)

    async def _take_error(self, request: web.Request) -> web.Response:
        return self._take(request, Outcome(await request.read(), is_error=True))

    async def _take_init_error(self, request: web.Request) -> web.Response:
        if not self._ready.done():
            self._ready.set_result(Outcome(await request.read(), is_error=True))
        return _accepted()

    def _take(self, request: web.Request, outcome: Outcome) -> web.Response:
        if self._running is None or self._running[0] != request.match_info["id"]:
            message = {"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"}
            return web.json_response(message, status=400)
        self._finish(outcome)
        return _accepted()


def _accepted() -> web.Response:
    return web.json_response({"status": "OK"}, status=202)
