"""The job that makes old terms again: how it goes on, and when it stops."""

from typing import Any, cast

import pytest

from almagest.database.queue import Queue
from almagest.operations import retokenise as module
from almagest.operations.retokenise import RESERVE_SECONDS, retokenise


class FakeQueue:
    """So many chunks with old terms, numbered from 1."""

    def __init__(self, chunks: int) -> None:
        self.left = chunks
        self.asked: list[int | None] = []

    def retokenise(self, before: int | None, batch: int) -> tuple[int, int | None]:
        self.asked.append(before)
        made = min(batch, self.left)
        self.left -= made
        return made, self.left + 1 if made == batch else None


def run(queue: FakeQueue, seconds: float = 60) -> int:
    return retokenise(cast(Queue, queue), seconds)


def test_goes_on_from_batch_to_batch_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 10)
    queue = FakeQueue(25)
    assert run(queue) == 25
    assert queue.asked == [None, 16, 6]


def test_one_look_where_there_is_nothing_to_do() -> None:
    queue = FakeQueue(0)
    assert run(queue) == 0
    assert queue.asked == [None]


def test_stops_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(FakeQueue(10_000), RESERVE_SECONDS) == 0
    monkeypatch.setattr(module, "MOST_SECONDS", 0.0)
    assert run(FakeQueue(10_000), 900) == 0


def test_a_run_that_broke_off_goes_on_behind_its_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 10)

    class Progress:
        def __init__(self, checkpoint: dict[str, Any] | None = None) -> None:
            self.checkpoint = checkpoint
            self.saved: list[dict[str, Any]] = []

        def save(self, checkpoint: dict[str, Any]) -> None:
            self.saved.append(checkpoint)

    first = Progress()
    assert retokenise(cast(Queue, FakeQueue(25)), 60, first) == 25
    assert first.saved == [{"made": 10, "before": 16}, {"made": 20, "before": 6}]
    queue = FakeQueue(15)
    assert retokenise(cast(Queue, queue), 60, Progress(first.saved[0])) == 25
    assert queue.asked == [16, 6]
