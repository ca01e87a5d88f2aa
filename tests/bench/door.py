"""The engine called without HTTP, one org at a time: `api.search`, `api.write_memories`, and collections in orgs."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb
from rich.console import Console

from almagest.embedding.embedder import to_literal
from almagest.ingestion.text import content_hash
from almagest.models.write import MemoryWrite
from almagest.operations.chunks import cut
from tests.bench import vectors
from tests.bench.cluster import Connection, cluster, database, storing_hash
from tests.bench.datasets import Collection, Memory, Question
from tests.bench.places import CACHE

BATCH = 500

Knobs = dict[str, Any]
Caller = dict[str, Any]


def search(connection: Connection, caller: Caller, text: str, vector: str, **fields: Any) -> dict[str, Any]:
    """The whole answer of `api.search` to a query whose vector is made already; `fields` are the request's others."""
    asked = {"query": text, "embedding": vector, "model": vectors.embedder().model, **fields}
    row = connection.execute("select api.search(%s, %s)", (Jsonb(caller), Jsonb(asked))).fetchone()
    assert row is not None
    answer: dict[str, Any] = row[0]
    return answer


def set_profile(connection: Connection, org: str, name: str, knobs: Knobs) -> None:
    """Give an org a profile of its own."""
    connection.execute(
        "insert into almagest.search_profiles (org_id, name, knobs) values (%s, %s, %s)"
        " on conflict (org_id, name) do update set knobs = excluded.knobs",
        (org, name, Jsonb(knobs)),
    )


@dataclass(frozen=True)
class Asked:
    """A question as the engine takes it."""

    question: Question
    vector: str


@dataclass
class Loaded:
    """A collection in an org of its own.

    Attributes
    ----------
    connections
        To its database; questions are asked over all of them at once.
    collection
        What was loaded.
    caller
        The org's owner.
    asked
        The collection's questions with their vectors.
    """

    connections: list[Connection]
    collection: Collection
    caller: Caller
    asked: list[Asked]

    def search(self, asked: Asked, k: int, profile: str = "user_search", **fields: Any) -> dict[str, Any]:
        """The whole answer of `api.search`; `fields` are further ones of the request."""
        return self._search(self.connections[0], asked, {"k": k, "profile": profile, **fields})

    def answers(self, k: int, knobs: Knobs | None = None, **fields: Any) -> list[dict[str, Any]]:
        """An answer for each question, by the default profile or with knobs laid over it."""
        if knobs is not None:
            self.set_profile("bench", knobs)
        request = {"k": k, "profile": "user_search" if knobs is None else "bench", **fields}
        with ThreadPoolExecutor(len(self.connections)) as pool:
            parts = [
                pool.submit(lambda c, part: [self._search(c, asked, request) for asked in part], connection, part)
                for connection, part in zip(self.connections, _dealt(self.asked, len(self.connections)), strict=True)
            ]
            dealt = [part.result() for part in parts]
        self.forget_searches()
        return [dealt[place % len(dealt)][place // len(dealt)] for place in range(len(self.asked))]

    def rankings(self, k: int, knobs: Knobs | None = None) -> list[list[str]]:
        """Source references, best first, for each question."""
        return [[result["source_ref"] for result in answer["results"]] for answer in self.answers(k, knobs)]

    def set_profile(self, name: str, knobs: Knobs) -> None:
        """Give the org a profile of its own."""
        set_profile(self.connections[0], self.caller["org"], name, knobs)

    def forget_searches(self) -> None:
        """Drop the traces, which would grow by a gigabyte in an hour of tuning."""
        self.connections[0].execute("truncate almagest.retrievals, almagest.activations")

    def _search(self, connection: Connection, asked: Asked, fields: dict[str, Any]) -> dict[str, Any]:
        question = asked.question
        return search(connection, self.caller, question.text, asked.vector, filters=question.filters, **fields)


def _dealt(asked: Sequence[Asked], hands: int) -> list[Sequence[Asked]]:
    return [asked[hand::hands] for hand in range(hands)]


@contextmanager
def open_door(collections: Sequence[Collection], console: Console) -> Iterator[list[Loaded]]:
    """Serve collections, loading those that are not there yet."""
    with cluster(CACHE / "cluster", console) as postgres:
        url = database(postgres, f"quality_{storing_hash()}")
        with ExitStack() as stack:
            connections = [
                stack.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=None))
                for _ in range(os.cpu_count() or 1)
            ]
            yield [load(connections, collection, console) for collection in collections]


def load(connections: list[Connection], collection: Collection, console: Console) -> Loaded:
    """An org with the collection in it, found again or written through `api.write_memories`."""
    connection = connections[0]
    slug = f"{collection.name}-{_digest(collection.memories)}"
    caller = owner_of(connection, slug)
    if caller is None:
        memories = prepare(collection)
        with connection.transaction(), console.status(f"Loading {collection.name}"):
            caller = new_org(connection, slug)
            write(connection, caller, memories)
        connection.execute("vacuum analyze")
    return Loaded(connections, collection, caller, with_vectors(collection))


def with_vectors(collection: Collection) -> list[Asked]:
    """The collection's questions as the engine takes them."""
    questions = collection.questions
    embedded = vectors.of_queries([question.text for question in questions], f"questions of {collection.name}")
    return [Asked(q, to_literal(v)) for q, v in zip(questions, embedded.tolist(), strict=True)]


def owner_of(connection: Connection, slug: str) -> Caller | None:
    """The caller who owns an org; None where there is no such org."""
    row = connection.execute(
        "select jsonb_build_object('org', o.id, 'user', m.user_id, 'role', 'owner')"
        " from almagest.orgs as o join almagest.members as m on m.org_id = o.id where o.slug = %s",
        (slug,),
    ).fetchone()
    return row and row[0]


def new_org(connection: Connection, slug: str) -> Caller:
    """Make an org, and return the caller who owns it."""
    request = {"slug": slug, "owner": {"email": f"owner@{slug}"}}
    row = connection.execute("select api.create_org(null, %s)", (Jsonb(request),)).fetchone()
    assert row is not None
    return {"org": row[0]["id"], "user": row[0]["owner"], "role": "owner"}


def prepare(collection: Collection) -> list[Memory]:
    """The collection's memories as the write operation sends them, cut into chunks and with vectors."""
    ready = [_cut(memory) for memory in collection.memories]
    pieces = [piece for memory in ready for piece in memory["chunks"]]
    embedded = vectors.of_passages([piece.pop("searched") for piece in pieces], collection.name).tolist()
    for piece, vector in zip(pieces, embedded, strict=True):
        piece["embedding"] = to_literal(vector)
    return ready


def write(connection: Connection, caller: Caller, memories: Sequence[Memory]) -> None:
    """Write prepared memories."""
    for start in range(0, len(memories), BATCH):
        request = {
            "memories": memories[start : start + BATCH],
            "model": vectors.embedder().model,
            "atomic": True,
            "idempotency": {"key": str(uuid4()), "request_hash": "0" * 64},
        }
        connection.execute("select api.write_memories(%s, %s)", (Jsonb(caller), Jsonb(request)))


def _cut(memory: Memory) -> Memory:
    """A memory with its chunks, each with the text that is to be embedded."""
    valid = MemoryWrite.model_validate(memory)
    slices = cut(vectors.embedder(), valid.title, valid.content)
    chunks = [{**piece.row, "searched": piece.passage} for piece in slices]
    return {**valid.model_dump(mode="json"), "content_hash": content_hash(valid.content), "chunks": chunks}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
