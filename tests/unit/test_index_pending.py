"""The index job: what it does with each item, and when it stops."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from almagest.database.queue import Disconnected, Leased, Queue
from almagest.operations import index_pending as module
from almagest.operations.index_pending import index_pending
from tests.edge import FakeEmbedder, FakeRpc, runtime


def item(content: str = "A text.", title: str | None = None) -> Leased:
    return Leased(uuid4(), uuid4(), 1, title, content)


@dataclass
class FakeQueue:
    """Items that wait, and what became of them."""

    waiting: list[Leased]
    renewals: list[UUID] = field(default_factory=list)
    completed: dict[UUID, Sequence[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[UUID, str] = field(default_factory=dict)
    stale: set[UUID] = field(default_factory=set)
    down: bool = False

    def lease(self, worker: str, batch: int, seconds: int) -> list[Leased]:
        taken, self.waiting = self.waiting[:batch], self.waiting[batch:]
        return taken

    def renew(self, worker: str, item: UUID, seconds: int) -> bool:
        self.renewals.append(item)
        return True

    def complete(self, worker: str, item: Leased, chunks: Sequence[dict[str, Any]], model: str) -> str:
        if self.down:
            raise Disconnected
        self.completed[item.id] = chunks
        return "stale" if item.id in self.stale else "search_ready"

    def fail(self, worker: str, item: Leased, reason: str) -> None:
        self.failed[item.id] = reason


def run(queue: FakeQueue, embedder: FakeEmbedder | None = None, seconds: float = 60) -> dict[str, int]:
    return index_pending(runtime(FakeRpc(), embedder), cast(Queue, queue), seconds)


def test_every_chunk_gets_its_vector_with_the_title() -> None:
    queue = FakeQueue([item("word " * 400, "Words")])
    [wanted] = queue.waiting
    assert run(queue) == {"indexed": 1, "stale": 0, "failed": 0}
    chunks = queue.completed[wanted.id]
    assert [chunk["position"] for chunk in chunks] == [0, 1]
    assert chunks[0]["embedding"].startswith(f"[1,{len('Words') + 1 + len(chunks[0]['text'])}")


def test_goes_on_until_nothing_waits() -> None:
    queue = FakeQueue([item() for _ in range(20)])
    assert run(queue)["indexed"] == 20


def test_stops_in_time() -> None:
    queue = FakeQueue([item() for _ in range(20)])
    assert run(queue, seconds=module.RESERVE_SECONDS) == {"indexed": 0, "stale": 0, "failed": 0}


def test_stops_between_items_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESERVE_SECONDS", 0.5)

    class Slow(FakeEmbedder):
        def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
            time.sleep(0.2)
            return super().embed_passages(texts)

    queue = FakeQueue([item() for _ in range(20)])
    assert 1 <= run(queue, Slow(), seconds=1.5)["indexed"] <= 4


def test_one_bad_item_does_not_stop_the_others() -> None:
    class Picky(FakeEmbedder):
        def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
            if "bad" in texts[0]:
                raise ValueError(texts[0])
            return super().embed_passages(texts)

    queue = FakeQueue([item(), item("bad"), item()])
    bad = queue.waiting[1]
    assert run(queue, Picky()) == {"indexed": 2, "stale": 0, "failed": 1}
    assert queue.failed == {bad.id: "index_failed"}


def test_without_embedder_says_why() -> None:
    """W11."""
    queue = FakeQueue([item(), item()])
    assert run(queue, FakeEmbedder("model_missing"))["failed"] == 2
    assert set(queue.failed.values()) == {"model_missing"}


def test_edited_meanwhile() -> None:
    """W10."""
    queue = FakeQueue([item()])
    queue.stale = {queue.waiting[0].id}
    assert run(queue) == {"indexed": 0, "stale": 1, "failed": 0}


def test_items_are_taken_one_at_a_time() -> None:
    """R10: a job that dies, or runs out of time, holds the lease of the item that it was at and of no other."""

    class Deadly(FakeEmbedder):
        def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
            if "deadly" in texts[0]:
                raise SystemExit
            return super().embed_passages(texts)

    queue = FakeQueue([item(), item("deadly"), item(), item()])
    with pytest.raises(SystemExit):
        run(queue, Deadly())
    assert len(queue.completed) == 1
    assert len(queue.waiting) == 2


def test_long_item_holds_its_lease_and_stops_when_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRIDE", 2)

    class Losing(FakeQueue):
        def renew(self, worker: str, item: UUID, seconds: int) -> bool:
            return super().renew(worker, item, seconds) and len(self.renewals) < 3

    held, lost = FakeQueue([item("word " * 1500)]), Losing([item("word " * 1500)])
    assert run(held)["indexed"] == 1
    assert len(held.renewals) == 3
    assert run(lost) == {"indexed": 0, "stale": 1, "failed": 0}
    assert lost.completed == {}


def test_database_that_went_away_ends_the_run() -> None:
    """R10: leases end by themselves."""
    queue = FakeQueue([item(), item()], down=True)
    with pytest.raises(Disconnected):
        run(queue)
    assert queue.failed == {}
