"""R11: Postgres or PostgREST dies under load; clients are told so, nothing that was acknowledged is lost."""

from collections.abc import Callable

import psutil
import pytest

from tests.chaos.parts import postgres, postgrest
from tests.chaos.traffic import Outcome, Traffic
from tests.stack import Stack

SECONDS = 60
Server = Callable[[Stack], list[psutil.Process]]


def more_writes(outcome: Outcome, number: int = 20) -> int:
    """So many more than are acknowledged now."""
    return len(outcome.acknowledged) + number


def outage(stack: Stack, traffic: Traffic, server: Server) -> None:
    """Kill a server while clients write, and wait until it works again by itself."""
    outcome = traffic.outcome
    goal = more_writes(outcome)
    traffic.wait_until(lambda seen: len(seen.acknowledged) >= goal, SECONDS)
    unavailable = outcome.statuses[503]
    killed = server(stack)
    assert killed
    for process in killed:
        process.kill()
    traffic.wait_until(lambda seen: seen.statuses[503] > unavailable, SECONDS)
    goal = more_writes(outcome)
    traffic.wait_until(lambda seen: len(seen.acknowledged) >= goal, SECONDS)


@pytest.mark.parametrize(
    ("server", "times"),
    [
        (postgres, 1),
        pytest.param(postgres, 5, marks=pytest.mark.slow),
        pytest.param(postgrest, 5, marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(600)
def test_what_was_acknowledged_is_there(breakable: Stack, server: Server, times: int) -> None:
    with Traffic(breakable, writes=0.8) as traffic:
        for _ in range(times):
            outage(breakable, traffic, server)
    outcome = traffic.outcome
    assert not outcome.faults
    assert set(outcome.statuses) == {200, 201, 503}
    stored = dict(breakable.rows("select id::text, content from almagest.items where content like 'Of %%, note %%'"))
    assert outcome.acknowledged.items() <= stored.items()
    # The same write made again after a 503 is one write.
    assert len(set(stored.values())) == len(stored)
