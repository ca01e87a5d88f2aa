"""What an action is, and what it works with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from almagest import deadline
from almagest.database.remedy import Remedy
from almagest.operations.health.check import Probe

Figures = dict[str, Any]

WAITING = "waiting"


@dataclass(frozen=True)
class Mending(Probe):
    """What an action works with: as a check's probe, on the connection of the run."""

    @cached_property
    def remedy(self) -> Remedy:
        """The database, by the engine's remediation functions."""
        return Remedy(self.connection)

    @property
    def seconds(self) -> float:
        """How much time the action has left."""
        return deadline.remaining(float("inf"))

    def left_to_mend(self, kinds: tuple[str, ...]) -> Figures:
        """How many orphans of some kinds there are; see `orphaned_embeddings`."""
        from almagest.operations.health.orphaned_embeddings import model_in_force

        model = model_in_force(self.runtime)
        return {kind: self.health.count_orphans(kind, model) for kind in kinds}


@dataclass(frozen=True)
class Action:
    """One thing that may mend what a check found; done twice, it does nothing the second time.

    Attributes
    ----------
    name
        Stable.
    sentence
        What it does, for people.
    measure
        What it is about, in figures, before and after: one that is not zero says that there is something to do. None
        where the check alone can tell; it is then made again after this action.
    act
        Does it, as far as its time and its bounds go; what it did, in figures. `WAITING` among them is how much of what
        it began others have to end.
    """

    name: str
    sentence: str
    measure: Callable[[Mending], Figures] | None
    act: Callable[[Mending], Figures]


def of_orphans(name: str, sentence: str, kinds: tuple[str, ...], act: Callable[[Mending], Figures]) -> Action:
    """An action that is about orphans of some kinds."""
    return Action(name, sentence, lambda mending: mending.left_to_mend(kinds), act)


def in_batches(mending: Mending, mend: Callable[[int], int], batch: int, most: int) -> int:
    """How many were mended, batch by batch until there are no more, `most` are, or there is no time."""
    total = 0
    while total < most and mending.seconds > 0:
        done = mend(min(batch, most - total))
        total += done
        if done == 0:
            break
    return total
