"""crud_integrity: a memory is written, read, edited, found, archived, restored and erased, and nothing of it stays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from uuid import UUID, uuid4

from almagest.models.search import SearchRequest
from almagest.models.write import ItemUpdate, MemoryWrite
from almagest.operations.health.check import Check, Found, Probe
from almagest.operations.health.planted import new_call
from almagest.operations.items import archive_item, erase_item, restore_item, update_item
from almagest.operations.search import get_item, search
from almagest.operations.write import write_memory
from almagest.problems import Problem

PREFIX = "health:crud:"
# What is asked stays in the trace of the one who asked, so where nothing may be found, this is asked and not the word.
QUESTION = "which probe does the health check write and take away again"
TEXT = "This probe of the health check, {word}, is written and taken away again."
EDITED = "This probe of the health check, {word}, was edited before it is taken away again."

# Tables that hold the word of a memory as long as it is there.
WHERE_IT_STANDS = {"items", "item_versions", "item_tags", "chunks", "lexical", "retrievals"}


class Broken(Exception):
    """Something did not come about as it should; the message is ours, without content."""


@dataclass
class _Probing:
    """One memory on its way through all that is done to memories."""

    probe: Probe
    word: str = field(default_factory=lambda: f"almagestprobe{uuid4().hex[:12]}x")
    id: UUID = field(default_factory=uuid4)

    def steps(self) -> dict[str, Callable[[], None]]:
        """What is done, in order; each raises where it does not come about."""
        return {
            "write": self.write,
            "read": self.read,
            "edit": self.edit,
            "search_keyword": lambda: self.demand_found(self.word, ["keyword"]),
            "search_vector": lambda: self.demand_found(EDITED.format(word=self.word), ["vector"]),
            "archive": self.archive,
            "restore": self.restore,
            "erase": self.erase,
            "residue": self.demand_no_residue,
        }

    def write(self) -> None:
        request = MemoryWrite(
            content=TEXT.format(word=self.word), title=f"Probe {self.word}", tags=[self.word],
            source_ref=PREFIX + self.word,
        )  # fmt: skip
        written = write_memory(self.probe.runtime, self.probe.caller, request, new_call())
        self.id = written.id
        _demand(written.index_status == "search_ready", "it was stored without its vectors")

    def read(self) -> None:
        item = get_item(self.probe.runtime, self.probe.caller, self.id)
        _demand(item.content == TEXT.format(word=self.word), "it was not read as it was written")

    def edit(self) -> None:
        request = ItemUpdate(version=1, content=EDITED.format(word=self.word))
        update_item(self.probe.runtime, self.probe.caller, self.id, request, new_call())
        item = get_item(self.probe.runtime, self.probe.caller, self.id)
        _demand((item.version, item.content) == (2, EDITED.format(word=self.word)), "the edit did not take effect")

    def demand_found(self, query: str, legs: list[str]) -> None:
        _demand(self.is_found(query, legs), f"the {legs[0]} leg did not find it")

    def archive(self) -> None:
        archive_item(self.probe.runtime, self.probe.caller, self.id, new_call())
        _demand(not self.is_found(QUESTION, None), "it was found in the archive")

    def restore(self) -> None:
        restore_item(self.probe.runtime, self.probe.caller, self.id, new_call())
        _demand(self.is_found(QUESTION, None), "it was not found after it was restored")

    def erase(self) -> None:
        # Else that there is none afterwards would prove nothing.
        _demand(self.residue().keys() >= WHERE_IT_STANDS, "its word was not where it should have been")
        erase_item(self.probe.runtime, self.probe.caller, self.id, True, new_call())
        try:
            get_item(self.probe.runtime, self.probe.caller, self.id)
        except Problem as problem:
            _demand(problem.status == HTTPStatus.NOT_FOUND, f"reading it then failed ({problem.code})")
        else:
            raise Broken("it could still be read")
        _demand(not self.is_found(QUESTION, None), "it was still found")

    def demand_no_residue(self) -> None:
        residue = self.residue()
        _demand(not residue, f"its word still stands in {', '.join(sorted(residue))}")

    def residue(self) -> dict[str, int]:
        return self.probe.health.residue(str(self.probe.caller.org), self.id, self.word)

    def is_found(self, query: str, legs: list[str] | None) -> bool:
        request = SearchRequest.model_validate({"query": query, "k": 20, "legs": legs})
        answer = search(self.probe.runtime, self.probe.caller, request, new_call())
        return any(result.id == self.id for result in answer.results)


def look(probe: Probe) -> Found:
    """Do all that callers do to one memory, as a caller does it. measured: the steps that came about."""
    probe.health.clear_system_items(PREFIX)  # what a check that was killed a while ago has left
    probing = _Probing(probe)
    done: list[str] = []
    trouble: str | None = None
    steps = probing.steps()
    try:
        for name, step in steps.items():
            step()
            done.append(name)
    except Broken as broken:
        trouble = f"{broken}"
    except Problem as problem:
        trouble = problem.code
    finally:
        # Its own alone: another check may be on its way.
        probe.health.clear_system_items(PREFIX + probing.word, item=probing.id, since=timedelta(0))
    failed_at = next((name for name in steps if name not in done), None)
    return Found(
        "failed" if failed_at else "ok",
        f"A memory got as far as {failed_at}: {trouble}."
        if failed_at
        else "A memory went all its way and left nothing.",
        measured=len(done),
        threshold=len(steps),
        unit="steps",
        figures={"done": done, "failed_at": failed_at},
    )


def _demand(came_about: bool, otherwise: str) -> None:
    if not came_about:
        raise Broken(otherwise)


CHECK = Check(
    "crud_integrity", "A memory is written, read, changed, found, archived and erased without rest.", 60, look
)
