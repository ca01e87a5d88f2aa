"""What holds of every search, whatever is stored and asked: a reference in Python, and one thing got in two ways."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from infra.local.postgres import Postgres
from tests.database.bulk import Rows, fill, words
from tests.database.support import (
    Org,
    Server,
    chunks_of,
    digest,
    memory,
    one_hot,
    search,
    serve,
    unique_key,
    write,
    write_one,
)
from tests.database.test_tokenise import bm25, keyword_leg, query_terms
from tests.support import Database, clone

VOCABULARY = [*words(60), "SID-48", "v1.2", "漢字", "a_b", "src/main.py", "camelCase", "café"]
SIZE = 1500


@pytest.fixture(scope="module")
def server(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    with clone(cluster, template_database.name) as copy, serve(copy) as connections:
        yield connections


@pytest.fixture
def org(server: Server) -> Org:
    return Org(server, f"org-{uuid4()}")


# BM25


@pytest.mark.slow
def test_a_thousand_random_queries_score_as_the_reference_has_it(server: Server, org: Org) -> None:
    """To 1e-6, with nothing pruned; a reference reads all rows for each query, so the org is small."""
    rng = random.Random(42)  # noqa: S311
    weights = [1 / place for place in range(1, len(VOCABULARY) + 1)]
    memories = []
    for number in range(40):
        parts = [
            " ".join([*rng.choices(VOCABULARY, weights, k=rng.randint(1, 40)), f"n{number}x{part}"])
            for part in range(rng.choice([1, 1, 1, 3]))
        ]
        turn: dict[str, Any] = (
            {"conversation": {"id": f"chat {number % 3}", "position": number}} if number % 4 == 0 else {}
        )
        memories.append(memory("".join(parts), chunks=chunks_of(parts, [None] * len(parts)), **turn))
    write(server, org.owner, *memories)
    scored = 0
    for _ in range(1000):
        asked = " ".join(rng.choices([*VOCABULARY, "absent"], k=rng.randint(1, 12)))
        terms = query_terms(server, asked)
        how: dict[str, Any] = {"b": rng.choice([0.0, 0.3, 0.75, 1.0]), "message_b": rng.choice([0.0, 0.2, 1.0])}
        expected = bm25(server, org.id, terms, **how)
        assert keyword_leg(server, org, terms, **how) == pytest.approx(expected, abs=1e-6), asked
        scored += len(expected)
    assert scored > 1000


# Pruning


def test_an_answer_that_is_called_exact_is_that_of_reading_everything(server: Server, org: Org) -> None:
    """As a search shows it: in an org so large that the keyword leg leaves common words out."""
    rng = np.random.default_rng(8)
    vocabulary = words(1500)
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    drawn = rng.choice(vocabulary, size=(SIZE, 14), p=weights / weights.sum())
    lengths = rng.integers(2, 15, size=SIZE)
    texts = [
        f"{' '.join(row[:length])} n{place}x" for place, (row, length) in enumerate(zip(drawn, lengths, strict=True))
    ]
    fill(server, Rows(org, texts))
    server.rows("analyze")
    same = {"mmr_lambda": 1, "strength_low": 1, "candidates": 10}
    for name, exhaustive in (("pruned", False), ("whole", True)):
        server.call("put_profile", org.owner, {"name": name, "knobs": {**same, "exhaustive": exhaustive}})

    exact = 0
    for _ in range(60):
        places = [*rng.integers(0, 12, size=rng.integers(0, 5)), *rng.integers(0, 1500, size=rng.integers(1, 6))]
        asked = " ".join(vocabulary[place] for place in places)
        k = int(rng.choice([1, 3, 5]))
        answers = [search(server, org.owner, asked, k=k, profile=name, explain=True) for name in ("pruned", "whole")]
        pruned, whole = ([(r["id"], r["scores"]["final"]) for r in answer["results"]] for answer in answers)
        assert answers[1]["explain"]["exact"] is True
        if answers[0]["explain"]["exact"]:
            exact += 1
            assert [score for _, score in pruned] == [score for _, score in whole], asked
            last = whole[-1][1] if whole else 0
            # of those that score the same as the last, any may stand there
            above = [[entry for entry in ranking if entry[1] > last] for ranking in (pruned, whole)]
            assert sorted(above[0]) == sorted(above[1]), asked
    assert exact > 20


# Neighbours: what stands around a turn or a slice is as if it had been written so from the beginning


@dataclass
class Text:
    """An item as it should be now."""

    id: str
    parts: list[str]
    conversation: str | None
    position: int
    private: bool
    archived: bool = False

    @property
    def content(self) -> str:
        return "".join(self.parts)

    def request(self) -> dict[str, Any]:
        """As it is written."""
        place: dict[str, Any] = (
            {"conversation": {"id": self.conversation, "position": self.position}} if self.conversation else {}
        )
        return memory(self.content, chunks=_chunks(self.parts), private=self.private, **place)


SPOKEN = ["deploy", "rollback", "gateway", "token", "cache", "queue", "shard", "retry"]


def _chunks(parts: list[str]) -> list[dict[str, Any]]:
    """With vectors that depend on the words alone."""
    axes = [sorted({SPOKEN.index(word) for word in part.split() if word in SPOKEN}) for part in parts]
    return chunks_of(parts, [one_hot(*places) if places else one_hot(99) for places in axes])


@dataclass
class History:
    """An org whose items change, and the changes that are still to be seen in what they are now."""

    server: Server
    org: Org
    rng: random.Random
    texts: list[Text] = field(default_factory=list)
    written: int = 0

    def part(self) -> str:
        """A text that no other says."""
        self.written += 1
        return " ".join([*self.rng.choices(SPOKEN, k=self.rng.randint(1, 5)), f"n{self.written}x "])

    def write(self, conversation: str | None, position: int, parts: int = 1) -> None:
        text = Text("", [self.part() for _ in range(parts)], conversation, position, self.rng.random() < 0.15)
        text.id = write_one_of(self.server, self.org, text)
        self.texts.append(text)

    def change(self, what: str) -> None:
        """One change to something in the middle."""
        there = [text for text in self.texts if text.archived == (what == "restore")]
        if not there:
            return
        text = self.rng.choice(there)
        request: dict[str, Any] = {"id": text.id, "idempotency": unique_key()}
        if what == "append":
            taken = {other.position for other in self.texts if other.conversation == text.conversation}
            free = [place for place in range(400) if place not in taken]
            self.write(text.conversation, self.rng.choice(free), 1 if text.conversation else self.rng.randint(1, 5))
        elif what == "edit":
            version = self.server.value("select version from almagest.items where id = %s", text.id)
            text.parts = [self.part() for _ in range(1 if text.conversation else self.rng.randint(1, 6))]
            request |= {"version": version, "changes": {"content": text.content}, "content_hash": digest(text.content)}
            self.server.call("update_item", self.org.owner, {**request, "chunks": _chunks(text.parts), "model": MODEL})
        else:
            self.server.call(f"{what}_item", self.org.owner, request)
            if what == "erase":
                self.texts.remove(text)
            text.archived = what == "archive"

    def rebuilt(self, archived: bool) -> Org:
        """Another org in which the same was written from nothing, in another order, with what is archived or not."""
        org = Org(self.server, f"again-{uuid4()}")
        for text in self.rng.sample(self.texts, k=len(self.texts)):
            if archived or not text.archived:
                item = write_one_of(self.server, org, text)
            if archived and text.archived:
                self.server.call("archive_item", org.owner, {"id": item, "idempotency": unique_key()})
        return org


MODEL = "test-model"
ALL = {"mmr_lambda": 1, "candidates": 500, "vector_threshold": 0.3, "neighbour_slice": 0.3, "metadata_weight": 0.1}


def write_one_of(server: Server, org: Org, text: Text) -> str:
    request = text.request()
    return write_one(server, org.owner, request.pop("content"), **request)


def said(server: Server, org: Org, numbers: list[int], archived: bool) -> list[Any]:
    """All answers, with archived items or without, and without what only says when or as what something was stored."""
    server.call("put_profile", org.owner, {"name": "all", "knobs": ALL})
    answers = []
    for query in (" ".join(SPOKEN[:2]), SPOKEN[2], " ".join(SPOKEN[3:7]), *(f"n{n}x {SPOKEN[7]}" for n in numbers)):
        for vector in (None, one_hot(*(place for place, word in enumerate(SPOKEN) if word in query))):
            answer = search(
                server, org.owner, query, vector, k=100, profile="all", include_archived=archived, explain=True
            )
            found = {
                result["snippet"]: (
                    result["relevance"],
                    [result["scores"][name] for name in ("keyword", "vector", "metadata", "hybrid")],
                )
                for result in answer["results"]
            }
            answers.append((query, answer["mode"], answer["explain"]["found"], found))
    return answers


@pytest.mark.parametrize("seed", range(3))
def test_after_any_changes_answers_are_those_of_writing_it_anew(server: Server, org: Org, seed: int) -> None:
    """Appends, edits, archives, restores and erasures in the middle of conversations and documents."""
    rng = random.Random(seed)  # noqa: S311
    history = History(server, org, rng)
    for number in range(10):
        history.write(f"chat {number % 2}", 20 * number)
    for _ in range(3):
        history.write(None, 0, parts=5)
    changes = ["append", "edit", "archive", "restore", "erase"]
    for step in range(24):
        history.change(changes[step] if step < len(changes) else rng.choice(changes))
        if step % 8 == 7:
            numbers = [rng.randint(1, 60), rng.randint(1, 60)]
            for archived in (False, True):
                now = said(server, org, numbers, archived)
                assert now == said(server, history.rebuilt(archived), numbers, archived)
                assert any(found for *_, found in now)
