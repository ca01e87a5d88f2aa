"""Calls that meet each other: several at once, or one that finds another half done."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.database.support import Server

Work = Callable[[Server], Any]
SECONDS = 20


def at_once(server: Server, *works: Work) -> list[Any]:
    """Run several works at the same time, and return their results or the exceptions that they raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(lambda work: _apart(server, work), works))


def overlap(server: Server, first: Work, second: Work, *, commit: bool = True) -> tuple[Any, Any]:
    """Run the second work while the first one's transaction is open, until it waits; then end the first.

    Returns the results of both; for the second, the exception where it raised one.
    """
    with ThreadPoolExecutor(1) as pool:
        server.api.execute("begin")
        try:
            answer = first(server)
            waiting = pool.submit(_apart, server, second)
            _wait_until_blocked(server)
            assert not waiting.done()
        finally:
            server.api.execute("commit" if commit else "rollback")
        return answer, waiting.result(SECONDS)


def _apart(server: Server, work: Work) -> Any:
    with server.another() as other:
        try:
            return work(other)
        except Exception as error:
            return error


def _wait_until_blocked(server: Server) -> None:
    end = time.monotonic() + SECONDS
    query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    while server.value(query) == 0:
        assert time.monotonic() < end, "nobody waits for a lock"
        time.sleep(0.01)
