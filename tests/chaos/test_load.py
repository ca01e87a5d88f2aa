"""Eight clients at once, nine searches to a write: no error, and no memory that grows."""

import sys
import time

import pytest

from tests.chaos.parts import memory
from tests.chaos.traffic import Traffic
from tests.stack import Stack

# Of each kind, before memory is looked at: every container has answered several by then, and has what it keeps.
WARM_UP_REQUESTS = 40
WARM_UP_SECONDS = 60.0
# The functions that the traffic asks; one that a schedule starts in between has not been warm yet.
ASKED = ("search", "write")
# Of what a container has when it is warm.
MOST_GROWTH = 0.10


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_no_error_and_no_growth(breakable: Stack, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    # As many of one kind as of the other: with few writes a second container may come late, and be cold when it counts.
    with Traffic(breakable, writes=0.5) as warm_up:
        warm_up.wait_until(
            lambda outcome: all(len(kind) >= WARM_UP_REQUESTS for kind in outcome.seconds.values()), WARM_UP_SECONDS
        )
    warm = memory(breakable, ASKED)
    with Traffic(breakable, writes=0.1) as traffic:
        time.sleep(seconds)
        at_the_end = memory(breakable, ASKED)
    outcome = traffic.outcome
    with capsys.disabled():
        sys.stdout.write(f"\n{seconds} s: {outcome}\n")
    assert not warm_up.outcome.faults + outcome.faults
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
