"""Eight clients at once, nine searches to a write: no error, and no memory that grows."""

import sys
import time

import pytest

from tests.chaos.parts import memory
from tests.chaos.traffic import Traffic
from tests.stack import Stack

# A container has seen each kind of request several times by then, and has what it keeps.
WARM_UP_SECONDS = 5.0
# Of what a container has when it is warm.
MOST_GROWTH = 0.10


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_no_error_and_no_growth(breakable: Stack, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    with Traffic(breakable, writes=0.1) as traffic:
        time.sleep(WARM_UP_SECONDS)
        warm = memory(breakable)
        time.sleep(seconds - WARM_UP_SECONDS)
        at_the_end = memory(breakable)
    outcome = traffic.outcome
    with capsys.disabled():
        sys.stdout.write(f"\n{seconds} s: {outcome}\n")
    assert not outcome.faults
    assert set(outcome.statuses) == {200, 201}
    assert len(outcome.seconds["search"]) > 5 * len(outcome.seconds["write"]) > 0
    stayed = warm.keys() & at_the_end.keys()
    assert stayed
    grown = {pid: at_the_end[pid] / warm[pid] - 1 for pid in stayed}
    assert max(grown.values()) < MOST_GROWTH, grown
    listed = breakable.rows(
        "select count(*) from almagest.items where id = any(%s::uuid[])", list(outcome.acknowledged)
    )
    assert listed == [len(outcome.acknowledged)]
