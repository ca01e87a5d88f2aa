"""One container's life in a process of its own: `python -m tests.bench.container FUNCTION BEGUN KEY WARM`.

Prints the seconds of each stage since BEGUN, a time of the clock, and of WARM requests after the first. Nothing heavy
is imported but by the stage that would import it on AWS.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import uuid4

PATHS = {"search": "/v1/search", "write": "/v1/write/memories", "bootstrap": "/v1/bootstrap"}


def request_of(function: str, number: int, key: str) -> dict[str, Any]:
    """A request of a function as its URL sends it; each number is another one."""
    from tests.edge import event

    words = f"number {number} about otters, webhooks and the {number % 7}th of the month"
    body = {
        "search": {"query": f"what do we know of {words}?"},
        "write": {"content": f"The note of {words}, written at {time.time_ns()}."},
        "bootstrap": {"query": f"a session {words}"},
    }[function]
    return event("POST", PATHS[function], body, key=key, request_id=str(uuid4()))


class Container:
    """Stages of a container, each timed."""

    def __init__(self, function: str, key: str) -> None:
        self.seconds: dict[str, float] = {}
        self._function = function
        self._key = key
        self._handler: Any = None

    def live(self, warm: int) -> list[float]:
        """Go through the stages, and return the seconds of each further request."""
        self._handler = self._stage("imports", lambda: import_module(f"almagest.handlers.{self._function}"))
        from almagest.runtime import container

        runtime = self._stage("settings", container)
        if self._function == "index":
            self._stage("connection", lambda: self._connect(runtime))
        else:
            self._stage("model", lambda: runtime.embedder.embed_query("ready"))
            self._stage("connection", lambda: runtime.rpc.call("get_schema", None, {}, retry=True))
        import_module("tests.edge")  # no stage's cost: the benchmark's own
        self._stage("first request", lambda: self._ask(-1))
        return [_timed(lambda number=number: self._ask(number))[0] for number in range(warm)]

    def _stage(self, name: str, action: Callable[[], Any]) -> Any:
        self.seconds[name], result = _timed(action)
        return result

    def _connect(self, runtime: Any) -> None:
        from almagest.database.session import connect

        with connect(runtime.settings, autocommit=True) as connection:
            connection.execute("select 1")

    def _ask(self, number: int) -> None:
        from tests.edge import Context, send

        if self._function == "index":
            self._handler.handler({}, Context(60_000))
            return
        reply = send(self._handler.app, request_of(self._function, number, self._key))
        if reply.status >= 300:
            raise ValueError(reply.text)


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = action()
    return time.perf_counter() - begun, result


def main() -> None:
    """Live once, and print what it took as the last line."""
    function, begun, key, warm = sys.argv[1:]
    interpreter = time.time() - float(begun)
    container = Container(function, key)
    requests = container.live(int(warm))
    print(json.dumps({"stages": {"interpreter": interpreter} | container.seconds, "warm": requests}))


if __name__ == "__main__":
    main()
