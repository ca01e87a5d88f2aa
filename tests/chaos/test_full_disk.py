"""The disk is full: writes are a clear 503, nothing that was acknowledged is lost, and all is well once there is room.

On a small file system of its own where this process may mount one, and by a quota that stands in for it anywhere.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.disks import Disk, Quota, small_file_system
from tests.chaos.traffic import Traffic
from tests.stack import Stack, own_stack

SECONDS = 90
# A new cluster with its log, and some more.
MEGABYTES = 400


@pytest.fixture(params=["small file system", "quota"])
def full(request: pytest.FixtureRequest) -> Iterator[tuple[Stack, Disk]]:
    """A stack, and the disk that its Postgres lies on."""
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="almagest-"))) / "stack"
        disk: Disk = Quota()
        if request.param != "quota":
            disk = opened.enter_context(small_file_system(directory / "postgres", MEGABYTES))
        yield opened.enter_context(own_stack(directory)), disk


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_writes_are_refused_and_taken_again(full: tuple[Stack, Disk]) -> None:
    stack, disk = full
    with Traffic(stack, writes=0.8) as traffic:
        outcome = traffic.outcome
        traffic.wait_until(lambda seen: len(seen.acknowledged) >= 20, SECONDS)
        disk.fill(stack)
        try:
            traffic.wait_until(lambda seen: seen.statuses[503] >= 20, SECONDS)
        finally:
            disk.clear(stack)
        goal = len(outcome.acknowledged) + 20
        traffic.wait_until(lambda seen: len(seen.acknowledged) >= goal, SECONDS)
    assert not outcome.faults
    assert set(outcome.statuses) == {200, 201, 503}
    stored = dict(stack.rows("select id::text, content from almagest.items where content like 'Of %%, note %%'"))
    assert outcome.acknowledged.items() <= stored.items()
