"""Filling a database in bulk: by COPY, terms by the engine itself over two connections, indexes at the end."""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from rich.console import Console
from rich.progress import Progress

from almagest.ingestion.text import content_hash
from infra.local.postgres import Postgres
from tests.bench import vectors
from tests.bench.cluster import Connection, database
from tests.bench.corpus import BLOCK, TOPICS, Base, Block, Halves, Item, blocks, spelt
from tests.bench.door import new_org

WORKERS = 2
FILLED = ("items", "item_tags", "chunks", "lexical", "embeddings", "strength_signals")
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Tenant:
    """An org to be filled, see `corpus.blocks`."""

    slug: str
    chunks: int
    stream: int = 0
    topics: int = TOPICS


def filled(postgres: Postgres, name: str, tenants: Sequence[Tenant], base: Base, console: Console) -> dict[str, float]:
    """Have a database with these tenants, filled now or by an earlier run; returns the seconds that each stage took."""
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        row = admin.execute(
            "select shobj_description(oid, 'pg_database') from pg_database where datname = %s", (name,)
        ).fetchone()
        if row and row[0]:
            database(postgres, name)  # the engine as it is now
            done: dict[str, float] = json.loads(row[0])
            return done
        admin.execute(f"drop database if exists {name} with (force)".encode())
    database(postgres, name)
    seconds = _fill(postgres.url("supabase_admin", name), tenants, base, console)
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        # Half of a corpus is never taken for a whole one: the mark comes last.
        admin.execute(f"comment on database {name} is '{json.dumps(seconds)}'".encode())
    return seconds


def _fill(url: str, tenants: Sequence[Tenant], base: Base, console: Console) -> dict[str, float]:
    seconds: dict[str, float] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        model = connection.execute("select engine.register_model(%s)", (vectors.embedder().model,)).fetchone()
        assert model is not None
        indexes = _drop_indexes(connection)
        with _stage(seconds, "rows"):
            _fill_rows(url, connection, tenants, base, int(model[0]), console)
        for name, definition in indexes:
            with _stage(seconds, name), console.status(f"Index {name}"):
                connection.execute(definition.encode())
        with _stage(seconds, "statistics"), console.status("Statistics"):
            connection.execute("select engine.refresh_statistics()")
        with _stage(seconds, "vacuum"), console.status("Vacuum"):
            connection.execute("vacuum (analyze, freeze)")
    return seconds


def _drop_indexes(connection: Connection) -> list[tuple[str, str]]:
    """Name and definition of every index that is no constraint's."""
    connection.execute("set maintenance_work_mem = '2GB'")
    connection.execute(f"set max_parallel_maintenance_workers = {WORKERS}".encode())
    found = connection.execute(
        "select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) from pg_index as i"
        " where i.indrelid = any(%s::text[]::regclass[])"
        " and not exists (select from pg_constraint as c where c.conindid = i.indexrelid)",
        ([f"almagest.{table}" for table in FILLED],),
    ).fetchall()
    for name, _ in found:
        connection.execute(f"drop index {name}".encode())
    return found


def _fill_rows(
    url: str, connection: Connection, tenants: Sequence[Tenant], base: Base, model: int, console: Console
) -> None:
    total = sum(tenant.chunks for tenant in tenants)
    with Progress(console=console) as progress, ThreadPoolExecutor(WORKERS) as pool:
        bar = progress.add_task(f"Filling {total:,} chunks", total=total)
        connections = [_loader(url) for _ in range(WORKERS)]
        first_chunk = 1
        for tenant in tenants:
            org = UUID(new_org(connection, tenant.slug)["org"])
            waiting = blocks(base, tenant.chunks, stream=tenant.stream, topics=tenant.topics)
            # As many blocks as connections at a time, so that memory stays bounded.
            while some := list(islice(waiting, WORKERS)):
                starts = range(first_chunk, first_chunk + BLOCK * len(some), BLOCK)
                for done in pool.map(_load_block, connections, some, starts, [org] * len(some), [model] * len(some)):
                    progress.advance(bar, done)
                    first_chunk += done
        for each in connections:
            each.close()
    connection.execute("select setval(pg_get_serial_sequence('almagest.chunks', 'id'), %s)", (first_chunk,))


def _loader(url: str) -> Connection:
    """A connection that checks no foreign keys: the rows are right by the way they are made."""
    connection = psycopg.connect(url)
    connection.execute("set session_replication_role = replica")
    connection.commit()
    return connection


def _load_block(connection: Connection, block: Block, first_chunk: int, org: UUID, model: int) -> int:
    """Write one block in a transaction, and return how many chunks it has."""
    _copy_items(connection, block.items, org)
    _copy_chunks(connection, block.items, first_chunk, org)
    owners = [item.id for item in block.items for _ in item.chunks]
    _copy_vectors(connection, owners, block.vectors, first_chunk, org, model)
    ids = [item.id for item in block.items]
    connection.execute(
        "insert into almagest.strength_signals (item_id, org_id, starting_strength)"
        " select id, %s, 0.5 from unnest(%s::uuid[]) as id",
        (org, ids),
    )
    connection.execute(
        "select from almagest.items as i cross join lateral (select engine.refresh_lexical(i)) as made"
        " where i.id = any(%s)",
        (ids,),
    )
    connection.commit()
    return len(owners)


def _copy_items(connection: Connection, items: Sequence[Item], org: UUID) -> None:
    columns = "id, org_id, kind, type, title, content, content_hash, origin, agent_name, conversation_id"
    columns += ", conversation_position, occurred_at, index_status"
    with connection.cursor() as cursor:
        with cursor.copy(f"copy almagest.items ({columns}) from stdin".encode()) as copy:
            for item in items:
                copy.write_row((item.id, org, *_fields(item), "search_ready"))
        with cursor.copy(b"copy almagest.item_tags (item_id, org_id, tag) from stdin") as copy:
            for item in items:
                copy.write_row((item.id, org, spelt(item.topic)))


def _fields(item: Item) -> tuple[Any, ...]:
    """What an item's row says, from kind to occurred_at."""
    content = "\n".join(item.chunks)
    said_at = EPOCH + timedelta(minutes=item.id.int % 1_000_000)
    if item.conversation is None:
        title = " ".join(item.chunks[0].split()[:6])
        return ("page", "document", title, content, content_hash(content), "upload", None, None, None, said_at)
    speaker = ("Ada", "Grace", "Linus", "Edsger")[(item.topic + (item.position or 0)) % 4]
    place = (item.conversation, item.position, said_at)
    return ("memory", "note", None, content, content_hash(content), "chat", speaker, *place)


def _copy_chunks(connection: Connection, items: Sequence[Item], first_chunk: int, org: UUID) -> None:
    columns = "id, item_id, org_id, position, start_offset, end_offset, text"
    number = first_chunk
    with connection.cursor() as cursor, cursor.copy(f"copy almagest.chunks ({columns}) from stdin".encode()) as copy:
        for item in items:
            start = 0
            for position, text in enumerate(item.chunks):
                copy.write_row((number, item.id, org, position, start, start + len(text), text))
                start += len(text) + 1
                number += 1


def _copy_vectors(
    connection: Connection, owners: Sequence[UUID], halves: Halves, first_chunk: int, org: UUID, model: int
) -> None:
    """By the binary protocol, a block of equal rows in one piece: text would take ten times as long."""
    dimension = halves.shape[1]
    row = np.dtype(
        [
            *(("fields", ">i2"), ("l1", ">i4"), ("chunk_id", ">i8"), ("l2", ">i4"), ("model_id", ">i2")),
            *(("l3", ">i4"), ("item_id", "V16"), ("l4", ">i4"), ("org_id", "V16")),
            *(("l5", ">i4"), ("state", "S6"), ("l6", ">i4"), ("dimension", ">i2"), ("unused", ">i2")),
            ("vector", ">f2", (dimension,)),
        ]
    )
    rows = np.zeros(len(owners), row)
    lengths = (8, 2, 16, 16, 6, 4 + 2 * dimension)
    for number, length in enumerate(lengths, 1):
        rows[f"l{number}"] = length
    rows["fields"] = len(lengths)
    rows["chunk_id"] = np.arange(first_chunk, first_chunk + len(owners))
    rows["model_id"] = model
    rows["item_id"] = np.frombuffer(b"".join(owner.bytes for owner in owners), "V16")
    rows["org_id"] = np.void(org.bytes)
    rows["state"] = b"active"
    rows["dimension"] = dimension
    rows["vector"] = halves
    statement = (
        b"copy almagest.embeddings (chunk_id, model_id, item_id, org_id, state, vector) from stdin (format binary)"
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\x00" + bytes(8) + rows.tobytes() + b"\xff\xff")


@contextmanager
def _stage(seconds: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - begun, 1)
