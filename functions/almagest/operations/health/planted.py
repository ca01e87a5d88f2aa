"""Sets of memories in the system's own org: planted once for each version and model, and planted again on demand."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from almagest.models.call import Call
from almagest.models.search import SearchRequest, SearchResponse
from almagest.models.write import BatchWrite
from almagest.operations.health.check import Probe
from almagest.operations.health.paraphrases import Pair
from almagest.operations.search import search
from almagest.operations.write import write_memories


class NotPlanted(Exception):
    """The memories could not be put in place."""


class PlantedSet:
    """A set of memories with their questions.

    Parameters
    ----------
    probe
        The check's, or the remediation's.
    name
        Of the set; its items' `source_ref` is `health:<name>:<planting>:<number>`.
    version
        Of its texts.
    pairs
        The memories and their questions.
    """

    def __init__(self, probe: Probe, name: str, version: int, pairs: Sequence[Pair]) -> None:
        self._probe = probe
        self._name = name
        self._version = version
        self._pairs = pairs

    @property
    def noted(self) -> dict[str, Any] | None:
        """What was noted when it was planted; None where that was of another version or model, or never.

        Raises
        ------
        EmbeddingUnavailable
            When it cannot be told which model is in force.
        """
        noted = self._probe.health.planted(self._name)
        if not noted or len(noted["similarities"]) != len(self._pairs):
            return None
        return noted if (noted["version"], noted["model"]) == self._key else None

    def items(self) -> list[UUID | None]:
        """The item of each pair, None where it is not there, or not found by meaning."""
        noted = self._probe.health.planted(self._name) or {}
        return self._items(noted.get("planting", ""))

    def missing(self) -> Counter[str]:
        """How many do not come back by what has become of them: `archived`, `not indexed`, `gone`, another state."""
        planting = (self._probe.health.planted(self._name) or {}).get("planting", "")
        states = self._probe.health.system_states(f"{self._prefix}{planting}:")
        found = (states.get(self._ref(planting, number)) for number in range(len(self._pairs)))
        return Counter(
            "gone" if each is None else "not indexed" if each[0] == "active" else each[0]
            for each in found
            if each != ("active", "search_ready")
        )

    def is_whole(self) -> bool:
        """Whether it was planted as it is now, and all of it is there.

        Raises
        ------
        EmbeddingUnavailable
            As `noted`.
        """
        return self.noted is not None and None not in self.items()

    def looked_at(self) -> AbstractContextManager[None]:
        """A while in which nobody plants the set anew; what is read in it belongs together."""
        self._clear_strays()
        return self._locked(alone=False)

    def _clear_strays(self) -> None:
        """Take out what was not noted: a write that was given up may be done later, and would be found in its place."""
        planting = (self._probe.health.planted(self._name) or {}).get("planting")
        if planting is None or not self._strays(planting):
            return
        with self._locked(alone=True):
            # Somebody may have planted it anew while this one waited.
            planting = (self._probe.health.planted(self._name) or {}).get("planting")
            self._probe.health.clear_system_items(self._prefix, kept=f"{self._prefix}{planting}:", since=timedelta(0))

    def _strays(self, planting: str) -> set[str]:
        kept = f"{self._prefix}{planting}:"
        return {ref for ref in self._probe.health.system_states(self._prefix) if not ref.startswith(kept)}

    def plant(self, unless: Callable[[], bool] = lambda: False) -> None:
        """Put all memories in place, and note for each how near its question is; then those before them go.

        When it breaks off, those before are still the ones that count. Others who plant or look at the set meanwhile
        wait, and are waited for; the lock is that of a transaction, so it ends with who holds it.

        Parameters
        ----------
        unless
            Asked once nobody else plants: then nothing is done where it is true.

        Raises
        ------
        NotPlanted
            When some were not stored with their vectors.
        EmbeddingUnavailable
            Without an embedder.
        """
        with self._locked(alone=True):
            if not unless():
                self._put()

    def _put(self) -> None:
        version, model = self._key
        similarities = [self._similarity(pair) for pair in self._pairs]
        planting = uuid4().hex[:8]
        memories = [
            {"content": pair.memory, "type": "note", "source_ref": self._ref(planting, number)}
            for number, pair in enumerate(self._pairs)
        ]
        write_memories(self._probe.runtime, self._probe.caller, BatchWrite(memories=memories), new_call())
        if None in self._items(planting):
            raise NotPlanted
        self._probe.health.note_planted(
            self._name, {"version": version, "model": model, "similarities": similarities, "planting": planting}
        )
        self._probe.health.clear_system_items(self._prefix, kept=f"{self._prefix}{planting}:", since=timedelta(0))

    def ask(self, number: int, k: int) -> SearchResponse:
        """Ask the question of one pair, as any caller asks."""
        request = SearchRequest(query=self._pairs[number].question, k=k)
        return search(self._probe.runtime, self._probe.caller, request, new_call())

    def _locked(self, *, alone: bool) -> AbstractContextManager[None]:
        # The request path does not see who acts if they are made in the transaction.
        _ = self._probe.caller
        return self._probe.health.planted_locked(self._name, alone=alone)

    @property
    def _key(self) -> tuple[int, str]:
        return self._version, self._probe.runtime.embedder.model

    @property
    def _prefix(self) -> str:
        return f"health:{self._name}:"

    def _ref(self, planting: str, number: int) -> str:
        return f"{self._prefix}{planting}:{number:02}"

    def _items(self, planting: str) -> list[UUID | None]:
        there = self._probe.health.system_items(f"{self._prefix}{planting}:")
        return [there.get(self._ref(planting, number)) for number in range(len(self._pairs))]

    def _similarity(self, pair: Pair) -> float:
        embedder = self._probe.runtime.embedder
        [passage] = embedder.embed_passages([pair.memory])
        return round(cosine(embedder.embed_query(pair.question), passage), 4)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of the angle between two vectors, -1..1; 0 where one has no length."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def new_call() -> Call:
    """What surrounds one request of a check."""
    return Call(request_id=f"health-{uuid4()}")
