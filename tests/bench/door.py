"""The engine in an embedded Postgres of the benchmarks' own, called without HTTP: `api.search` and nothing beside it.

The cluster stays between runs, with what was loaded; a database belongs to a set of migrations and to the code that
decides what is stored, so that a change of either loads anew. Code that only reads is applied again when it changed.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from rich.console import Console
from rich.progress import track

from almagest.database.migrate import migrate
from almagest.embedding.embedder import to_literal
from almagest.ingestion.chunk import chunk
from almagest.ingestion.text import content_hash
from almagest.models.write import MemoryWrite
from almagest.operations.vectors import passage_text
from infra.local.postgres import Postgres
from tests.bench import vectors
from tests.bench.datasets import Collection, Memory, Question
from tests.bench.places import CACHE, SQL

# What decides how an item is stored; other code of the engine only reads it.
STORING = ("migrations/*.sql", "engine/tokenise.sql", "engine/chunks.sql", "engine/neighbours.sql", "engine/write.sql")
BATCH = 500

Connection = psycopg.Connection[Any]
Knobs = dict[str, Any]


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
    caller: dict[str, Any]
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
        self.connections[0].execute(
            "insert into almagest.search_profiles (org_id, name, knobs) values (%s, %s, %s)"
            " on conflict (org_id, name) do update set knobs = excluded.knobs",
            (self.caller["org"], name, Jsonb(knobs)),
        )

    def forget_searches(self) -> None:
        """Drop the traces, which would grow by a gigabyte in an hour of tuning."""
        self.connections[0].execute("truncate almagest.retrievals, almagest.activations")

    def _search(self, connection: Connection, asked: Asked, fields: dict[str, Any]) -> dict[str, Any]:
        request = {
            "query": asked.question.text,
            "embedding": asked.vector,
            "model": vectors.embedder().model,
            "filters": asked.question.filters,
            **fields,
        }
        row = connection.execute("select api.search(%s, %s)", (Jsonb(self.caller), Jsonb(request))).fetchone()
        assert row is not None
        answer: dict[str, Any] = row[0]
        return answer


def _dealt(asked: Sequence[Asked], hands: int) -> list[Sequence[Asked]]:
    return [asked[hand::hands] for hand in range(hands)]


@contextmanager
def cluster(directory: Path, console: Console, settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """Start the Postgres of a directory; a second run waits for the first, whose server it would end otherwise."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"Another run uses {directory}: waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        postgres = Postgres(directory, durable=False, settings=settings)
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop()


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
            yield [load(connections, collection) for collection in collections]


def storing_hash() -> str:
    """Changes when items would be stored in another way."""
    digest = hashlib.sha256()
    for pattern in STORING:
        for path in sorted(SQL.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def database(postgres: Postgres, name: str) -> str:
    """URL of a database with the engine as it is now; made where it is missing. Its name is a stem and a hash."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        _drop_older(connection, name)
        if connection.execute("select from pg_database where datname = %s", (name,)).fetchone() is None:
            connection.execute(f"create database {name} template template1".encode())
    url = postgres.url(database=name)
    with psycopg.connect(postgres.url("supabase_admin", name), autocommit=True) as connection:
        connection.execute("create schema if not exists extensions authorization postgres")
        connection.execute("create extension if not exists vector schema extensions")
    migrate(url, directory=SQL)
    return url


def _drop_older(connection: Connection, name: str) -> None:
    """Keep one before this one of the same stem: while the engine changes, every change leaves a database behind."""
    stem = name.rpartition("_")[0]
    rows = connection.execute(
        "select datname from pg_database where datname ~ %s and datname <> %s order by oid desc offset 1",
        (f"^{stem}_[0-9a-f]+$", name),
    ).fetchall()
    for (old,) in rows:
        connection.execute(f"drop database {old}".encode())


def load(connections: list[Connection], collection: Collection) -> Loaded:
    """An org with the collection in it, found again or written through `api.write_memories`."""
    connection = connections[0]
    slug = f"{collection.name}-{_digest(collection.memories)}"
    row = connection.execute(
        "select jsonb_build_object('org', o.id, 'user', m.user_id, 'role', 'owner')"
        " from almagest.orgs as o join almagest.members as m on m.org_id = o.id where o.slug = %s",
        (slug,),
    ).fetchone()
    if row is None:
        with connection.transaction():
            caller = new_org(connection, slug)
            _write(connection, caller, collection)
        connection.execute("vacuum analyze")
    else:
        caller = row[0]
    questions = collection.questions
    embedded = vectors.of_queries([question.text for question in questions], f"questions of {collection.name}")
    asked = [Asked(q, to_literal(v)) for q, v in zip(questions, embedded.tolist(), strict=True)]
    return Loaded(connections, collection, caller, asked)


def new_org(connection: Connection, slug: str) -> dict[str, Any]:
    request = {"slug": slug, "owner": {"email": f"owner@{slug}"}}
    row = connection.execute("select api.create_org(null, %s)", (Jsonb(request),)).fetchone()
    assert row is not None
    return {"org": row[0]["id"], "user": row[0]["owner"], "role": "owner"}


def _write(connection: Connection, caller: dict[str, Any], collection: Collection) -> None:
    written = [_prepared(memory) for memory in collection.memories]
    pieces = [piece for memory in written for piece in memory["chunks"]]
    embedded = vectors.of_passages([piece.pop("searched") for piece in pieces], collection.name).tolist()
    for piece, vector in zip(pieces, embedded, strict=True):
        piece["embedding"] = to_literal(vector)
    numbers = count()
    for start in track(range(0, len(written), BATCH), f"Loading {collection.name}"):
        request = {
            "memories": written[start : start + BATCH],
            "model": vectors.embedder().model,
            "atomic": True,
            "idempotency": {"key": f"load-{next(numbers)}", "request_hash": "0" * 64},
        }
        connection.execute("select api.write_memories(%s, %s)", (Jsonb(caller), Jsonb(request)))


def _prepared(memory: Memory) -> dict[str, Any]:
    """A memory as the write operation would send it, each chunk with the text that is to be embedded."""
    valid = MemoryWrite.model_validate(memory)
    chunks = [
        {"position": piece.position, "start": piece.start, "end": piece.end, "text": piece.text}
        | {"searched": passage_text(valid.title, piece.text)}
        for piece in chunk(valid.content)
    ]
    return {**valid.model_dump(mode="json"), "content_hash": content_hash(valid.content), "chunks": chunks}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
