"""Clients that search and write at once, as agents do, and what became of each of their requests."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from tests.stack import Stack

CLIENTS = 8
TOPICS = ("otters", "deploys", "invoices", "retries", "backups", "queues", "glaciers", "tokens")
PAUSE_SECONDS = 0.2


@dataclass
class Outcome:
    """What became of the requests of all clients.

    Attributes
    ----------
    seconds
        Of each answered request, by its kind: search or write.
    statuses
        How many answers had each status.
    faults
        What no caller may see: a status other than 2xx and 503, a 503 without Retry-After, an answer without JSON.
    acknowledged
        Id -> text of each memory whose write was answered with success.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"search": [], "write": []})
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    acknowledged: dict[str, str] = field(default_factory=dict)

    def quantile(self, share: float) -> float:
        """Seconds within which this share of all requests was answered."""
        ordered = sorted(second for seconds in self.seconds.values() for second in seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def __str__(self) -> str:
        told = {
            name: f"{1000 * self.quantile(share):.0f} ms"
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
        }
        counts = ", ".join(f"{len(seconds)} {kind}" for kind, seconds in self.seconds.items())
        return f"{counts}; {told}; {dict(self.statuses)}"


class Traffic:
    """So many clients, each with a connection of its own, until they are told to stop.

    Parameters
    ----------
    stack
        Whose functions are asked.
    writes
        The share of requests that write, 0..1.
    clients
        How many there are.
    """

    def __init__(self, stack: Stack, writes: float, clients: int = CLIENTS) -> None:
        self.outcome = Outcome()
        self._stack = stack
        self._writes = writes
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(clients)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_until(self, condition: Callable[[Outcome], bool], seconds: float) -> None:
        """Let it go on until something is so.

        Raises
        ------
        AssertionError
            When it is not within the time.
        """
        until = time.monotonic() + seconds
        while not condition(self.outcome):
            assert time.monotonic() < until, f"not within {seconds} s: {self.outcome}"
            time.sleep(0.05)

    def _run(self, number: int) -> None:
        choose = random.Random(number)  # noqa: S311 - no secret
        with httpx.Client(
            base_url=self._stack.url, headers={"Authorization": f"Bearer {self._stack.key}"}, timeout=120
        ) as http:
            while not self._over.is_set():
                topic = choose.choice(TOPICS)
                if choose.random() < self._writes:
                    self._write(http, f"Of {topic}, note {uuid4().hex}.")
                else:
                    self._send(http, "search", "/v1/search", {"query": f"what do we know of {topic}?"})

    def _write(self, http: httpx.Client, text: str) -> None:
        """The same write again after a 503, as callers are told to do, until it is taken or all is over."""
        key = uuid4().hex
        while True:
            found = self._send(http, "write", "/v1/write/memories", {"content": text}, {"Idempotency-Key": key})
            if found is not None:
                self.outcome.acknowledged[found["id"]] = text
                return
            if self._over.wait(PAUSE_SECONDS):
                return

    def _send(
        self, http: httpx.Client, kind: str, path: str, body: Any, headers: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        began = time.monotonic()
        try:
            answer = http.post(path, json=body, headers=headers)
            found: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            self.outcome.faults.append(f"{kind}: {type(error).__name__}")
            return None
        self.outcome.seconds[kind].append(time.monotonic() - began)
        self.outcome.statuses[answer.status_code] += 1
        if answer.is_success:
            return found
        if answer.status_code != 503 or not answer.headers.get("retry-after", "").isdigit():
            self.outcome.faults.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
        time.sleep(PAUSE_SECONDS)
        return None
