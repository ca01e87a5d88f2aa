"""Many rows in little time: what `api.write_memories` would have stored, by COPY and one statement a table."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from tests.database.support import MODEL, Caller, Org, Server, literal, one_hot, write_one

Vectors = NDArray[np.floating[Any]]

STAGE = """
create temp table staged (
    place int, item_id uuid default gen_random_uuid(), org_id uuid, user_id uuid, project_id uuid, type text,
    tags text[], content text, vector extensions.halfvec(384)
);
"""
STORE = (
    "insert into almagest.items (id, org_id, user_id, project_id, kind, type, content, content_hash, origin,"
    " index_status) select item_id, org_id, user_id, project_id, 'memory', type, content, md5(content), 'agent',"
    " case when vector is null then 'text_ready' else 'search_ready' end from staged order by place",
    "insert into almagest.strength_signals (item_id, org_id, user_id, starting_strength)"
    " select item_id, org_id, user_id, 0.5 from staged",
    "insert into almagest.item_tags (item_id, org_id, user_id, tag)"
    " select item_id, org_id, user_id, tag from staged cross join unnest(tags) as tag",
    "insert into almagest.chunks (item_id, org_id, user_id, position, start_offset, end_offset, text)"
    " select item_id, org_id, user_id, 0, 0, length(content), content from staged order by place",
    # by the engine's own function, so that no test has to know what the terms of a chunk are stored as
    "select count(engine.refresh_lexical(i)) from almagest.items as i join staged on staged.item_id = i.id",
    "insert into almagest.embeddings (chunk_id, model_id, item_id, org_id, user_id, state, vector)"
    " select k.id, (select m.id from almagest.embedding_models as m where m.name = %s), s.item_id, s.org_id, s.user_id,"
    " 'active', s.vector from staged as s join almagest.chunks as k on k.item_id = s.item_id"
    " where s.vector is not null order by k.id",
    "drop table staged",
)
INDEX = "embeddings_vector_1"


@dataclass
class Rows:
    """Rows of one org, in the order in which they are stored.

    Attributes
    ----------
    texts
        What the items say; no two of an org the same.
    vectors
        One a row, or None for rows that have none yet.
    types, tags, projects, users
        One a row, or empty for the same everywhere; a project by its id.
    """

    org: Org
    texts: Sequence[str]
    vectors: Vectors | None = None
    types: Sequence[str] = ()
    tags: Sequence[Sequence[str]] = ()
    projects: Sequence[str | None] = ()
    users: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def org_of(self, place: int) -> Org:
        """The org of one row."""
        return self.org


def fill(server: Server, *groups: Rows) -> None:
    """Store rows, and build the vector index once instead of row by row; statistics are left as they are."""
    owner = groups[0].org_of(0).owner
    # The first model to write has number 1, and the index.
    first = write_one(server, owner, "the first to have a vector", one_hot(383))
    server.call("erase_item", owner, {"id": first, "strict": True})
    definition = server.value("select indexdef from pg_indexes where indexname = %s", INDEX)
    server.rows(f"drop index almagest.{INDEX}")
    for group in groups:
        server.rows(STAGE)
        columns = "place, org_id, user_id, project_id, type, tags, content, vector"
        with (
            server.owner.cursor() as cursor,
            cursor.copy(f"copy staged ({columns}) from stdin (format binary)") as copy,
        ):
            copy.set_types(["int4", "uuid", "uuid", "uuid", "text", "text[]", "text", "bytea"])
            for row in _staged(group):
                copy.write_row(row)
        for statement in STORE:
            server.rows(statement, *([MODEL] if "%s" in statement else []))
    # the whole graph in memory: about 1.5 kB a row
    server.rows(f"set maintenance_work_mem = '{256 + 2 * sum(map(len, groups)) // 1000}MB'")
    server.rows("set max_parallel_maintenance_workers = 1")
    server.rows(definition)


def _staged(group: Rows) -> Iterator[tuple[Any, ...]]:
    for place, text in enumerate(group.texts):
        yield (
            place,
            UUID(group.org_of(place).id),
            _uuid(group.users[place] if group.users else None),
            _uuid(group.projects[place] if group.projects else None),
            group.types[place] if group.types else "note",
            list(group.tags[place]) if group.tags else [],
            text,
            _halfvec(group.vectors[place]) if group.vectors is not None else None,
        )


def _uuid(text: str | None) -> UUID | None:
    return UUID(text) if text else None


def _halfvec(vector: Vectors) -> bytes:
    """As halfvec travels in a binary COPY: dimensions, an unused number, and big-endian half floats."""
    return len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(">f2").tobytes()


def words(count: int) -> list[str]:
    """Words that are nothing but letters and that English stemming leaves alone, the same at each call."""
    syllables = [c + v for c in "bdgkmprtz" for v in "aou"]
    return [
        syllables[n % 27] + syllables[n // 27 % 27] + syllables[(n * 7 + n // 729) % 27] + "k" for n in range(count)
    ]


def unit(vectors: NDArray[Any]) -> Vectors:
    """Vectors of length 1."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Vectors = (vectors / lengths).astype(np.float32)
    return scaled


@dataclass
class Clusters:
    """A space of meanings in which some are near each other, as texts on one subject are.

    Two vectors of one cluster have a cosine of about 0.6, and a vector and its centre one of about 0.8.
    """

    rng: np.random.Generator
    count: int
    centres: Vectors = field(init=False)

    def __post_init__(self) -> None:
        self.centres = unit(self.rng.normal(size=(self.count, 384)))

    def draw(self, count: int, block: int = 50_000) -> Vectors:
        """Vectors around centres drawn at random, rounded as they are stored."""
        drawn = np.empty((count, 384), np.float16)
        for start in range(0, count, block):
            some = drawn[start : start + block]
            centres = self.centres[self.rng.integers(self.count, size=len(some))]
            some[:] = unit(centres + 0.8 * unit(self.rng.normal(size=(len(some), 384))))
        return drawn


def nearest(stored: Vectors, query: Vectors, k: int) -> list[int]:
    """The k rows nearest to a query by an exact scan, best first; fewer where there are fewer with any similarity."""
    return nearest_of_each(stored, query[None], k)[0]


def nearest_of_each(stored: Vectors, queries: Vectors, k: int, block: int = 50_000) -> list[list[int]]:
    """The same for several queries, a block of rows at a time."""
    best: list[list[tuple[float, int]]] = [[] for _ in queries]
    for start in range(0, len(stored), block):
        similarities = unit(queries.astype(np.float32)) @ unit(stored[start : start + block].astype(np.float32)).T
        for kept, row in zip(best, similarities, strict=True):
            places = np.argpartition(-row, min(k, len(row)) - 1)[:k]
            kept += [(float(row[place]), start + int(place)) for place in places if row[place] > 0.01]
            kept.sort(reverse=True)
            del kept[k:]
    return [[place for _, place in kept] for kept in best]


def as_literal(vector: Vectors) -> str:
    """A vector as the API takes it."""
    return str(literal([float(value) for value in vector]))


def plans(server: Server, caller: Caller, request: dict[str, Any], repeat: int = 1) -> list[str]:
    """Every plan that the last of several equal searches in one session runs, those inside its functions included."""
    said: list[str] = []
    with server.database.connect("supabase_admin") as connection:
        connection.add_notice_handler(lambda diagnostic: said.append(diagnostic.message_primary or ""))
        connection.execute("load 'auto_explain'")
        for name, value in (
            ("auto_explain.log_min_duration", "0"),
            ("auto_explain.log_nested_statements", "on"),
            ("auto_explain.log_analyze", "on"),
            ("auto_explain.log_timing", "off"),
            ("auto_explain.log_level", "notice"),
            ("client_min_messages", "notice"),
        ):
            connection.execute("select set_config(%s, %s, false)", [name, value])
        for _ in range(repeat):
            said.clear()
            connection.execute(
                "select api.search(%s, %s)", [Jsonb(caller), Jsonb({"model": MODEL, "k": 10, **request})]
            )
    return [plan for plan in said if "plan:" in plan]


def rows_handled(found: Sequence[str]) -> int:
    """The most rows that any node of some plans read, passed on or threw away."""
    most = 0.0
    for plan in found:
        loops = 1
        for line in plan.splitlines():
            if node := re.search(r"actual (?:time=\S+ )?rows=([\d.]+) loops=(\d+)", line):
                loops = int(node[2])
                most = max(most, float(node[1]) * loops)
            elif removed := re.search(r"Rows Removed by [\w ]+: (\d+)", line):
                most = max(most, float(removed[1]) * loops)
    return int(most)
