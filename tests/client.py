"""A caller of the function URLs, as tests and benchmarks need one."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import httpx

BATCH = 500
POLL_SECONDS = 0.2


class Client:
    """Writes memories, waits for their index, and searches; every answer that is not a success raises.

    Parameters
    ----------
    url
        Of the function URLs.
    key
        An API key.
    """

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def write(self, memories: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write at most 500 memories, and return a result for each.

        Raises
        ------
        ValueError
            When one of them was refused.
        """
        answer = self._send("POST", "/v1/write/memories/batch", {"memories": list(memories)})
        results: list[dict[str, Any]] = answer["results"]
        refused = [result for result in results if "id" not in result]
        if refused:
            raise ValueError(f"{len(refused)} memories refused, first: {refused[0]}")
        return results

    def wait_for_index(self, timeout: float = 120) -> None:
        """Return when nothing waits to be indexed.

        Raises
        ------
        TimeoutError
            When that takes longer than ``timeout`` seconds.
        ValueError
            When an item could not be indexed.
        """
        deadline = time.monotonic() + timeout
        while True:
            status = self._send("GET", "/v1/write/index")
            if status["failed"]:
                raise ValueError(f"not indexed: {status}")
            if not status["pending"] and not status["indexing"]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"still not indexed: {status}")
            time.sleep(POLL_SECONDS)

    def search(self, query: str, k: int, **fields: Any) -> dict[str, Any]:
        """Search, and return the whole answer."""
        return self._send("POST", "/v1/search", {"query": query, "k": k, **fields})

    def _send(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self._http.request(method, path, json=body)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found
