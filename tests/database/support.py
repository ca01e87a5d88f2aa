"""Builders of small worlds, and calls of the API as the database's own clients make them."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

from tests.support import Database

MODEL = "test-model"
DIMENSION = 384

Vector = Sequence[float]
Caller = dict[str, Any]


class Refused(Exception):
    """A problem that an API function raised, as the edge reads it.

    Attributes
    ----------
    status
        HTTP status.
    code
        Stable name.
    members
        Everything else in the problem.
    """

    def __init__(self, status: int, message: str, members: dict[str, Any]) -> None:
        self.status = status
        self.message = message
        self.members = members
        self.code = members.pop("code", None)
        super().__init__(f"{self.status} {self.code}: {self.message}")

    @classmethod
    def raised(cls, error: psycopg.Error) -> "Refused":
        """One that the function raised."""
        members = json.loads(error.diag.message_detail or "{}")
        return cls(int((error.sqlstate or "")[2:]), error.diag.message_primary or "", members)

    @classmethod
    def answered(cls, problem: dict[str, Any]) -> "Refused":
        """One that it answered, so that what it quotes is in no log."""
        return cls(problem.pop("status"), problem.pop("detail"), problem)


@dataclass
class Server:
    """Two connections to one database: `api` speaks as service_role does, `owner` looks behind the scenes."""

    database: Database
    api: psycopg.Connection[Any]
    owner: psycopg.Connection[Any]

    def call(self, name: str, caller: Caller | None, request: dict[str, Any] | None = None) -> Any:
        """Run `api.<name>(caller, request)`; a problem becomes `Refused`."""
        return call(self.api, name, caller, request)

    def rows(self, query: str, *parameters: object) -> list[Any]:
        """Rows of a statement run by the owner; with one column, the values alone."""
        return rows(self.owner, query, *parameters)

    def value(self, query: str, *parameters: object) -> Any:
        """The only value of the only row."""
        [value] = self.rows(query, *parameters)
        return value

    @contextmanager
    def another(self) -> Iterator["Server"]:
        """Two more connections, for what happens at the same time."""
        with serve(self.database) as server:
            yield server


@contextmanager
def serve(database: Database) -> Iterator[Server]:
    """Connect to a database as both roles."""
    with database.connect("service_role") as api, database.connect() as owner:
        yield Server(database, api, owner)


def call(
    connection: psycopg.Connection[Any], name: str, caller: Caller | None, request: dict[str, Any] | None = None
) -> Any:
    """Run one API function over a connection; a problem becomes `Refused`."""
    query = f"select api.{name}(%s, %s)".encode()
    try:
        row = connection.execute(query, (None if caller is None else Jsonb(caller), Jsonb(request or {}))).fetchone()
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith("PT"):
            raise Refused.raised(error) from None
        raise
    assert row is not None
    if isinstance(row[0], dict) and row[0].keys() == {"problem"}:
        raise Refused.answered(row[0]["problem"])
    return row[0]


def attempt(server: "Server", name: str, caller: Caller | None, request: dict[str, Any] | None = None) -> Any:
    """What an API function answers, or the problem that it raises."""
    try:
        return server.call(name, caller, request)
    except Refused as refused:
        return refused


def rows(connection: psycopg.Connection[Any], query: str, *parameters: object) -> list[Any]:
    """Rows of a statement; with one column, the values alone."""
    cursor = connection.execute(query.encode(), parameters or None)
    found = cursor.fetchall() if cursor.description else []
    return [row[0] for row in found] if found and len(found[0]) == 1 else found


def one_hot(*places: int) -> list[float]:
    """A vector along one axis, or between several: cosine 1 with itself, 0 with one of other axes."""
    vector = [0.0] * DIMENSION
    for place in places:
        vector[place] = 1.0
    return vector


def literal(vector: Vector | None) -> str | None:
    """A vector as the API takes it."""
    return None if vector is None else "[" + ",".join(f"{value:g}" for value in vector) + "]"


def digest(text: str) -> str:
    """A content hash; here simply of the text as it is."""
    return hashlib.sha256(text.encode()).hexdigest()


def chunks_of(texts: Iterable[str], vectors: Iterable[Vector | None]) -> list[dict[str, Any]]:
    """Chunks of an item as the API takes them, offsets as if the texts were joined."""
    chunks, start = [], 0
    for position, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
        chunk = {"position": position, "start": start, "end": start + len(text), "text": text}
        chunks.append({**chunk, "embedding": literal(vector)})
        start += len(text)
    return chunks


def memory(content: str, vector: Vector | None = None, **fields: Any) -> dict[str, Any]:
    """One memory of `api.write_memories`, in one chunk unless `chunks` is given."""
    chunks = chunks_of([content], [vector])
    return {"content": content, "content_hash": digest(content), "chunks": chunks, **fields}


def unique_key(request: object = None) -> dict[str, str]:
    """An idempotency member of its own."""
    return {"key": f"key-{uuid4()}", "request_hash": digest(json.dumps(request, sort_keys=True))}


def write(server: Server, caller: Caller, *memories: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Write memories, each by itself right or wrong, and return their results."""
    request = {"memories": list(memories), "model": MODEL, "idempotency": unique_key(), **fields}
    results: list[dict[str, Any]] = server.call("write_memories", caller, request)["results"]
    return results


def write_one(server: Server, caller: Caller, content: str, vector: Vector | None = None, **fields: Any) -> str:
    """Write one memory and return its id; a problem becomes `Refused`."""
    [result] = write(server, caller, memory(content, vector, **fields), atomic=True)
    return str(result["id"])


def search(
    server: Server, caller: Caller, query: str | None, vector: Vector | None = None, k: int = 10, **fields: Any
) -> dict[str, Any]:
    """The answer of `api.search`; without a vector it is answered by words."""
    model = MODEL if vector is not None else None
    request = {"query": query, "embedding": literal(vector), "model": model, "k": k, **fields}
    answer: dict[str, Any] = server.call("search", caller, request)
    return answer


def ids(answer: dict[str, Any]) -> list[str]:
    """Ids of a search's results, in order."""
    return [result["id"] for result in answer["results"]]


@dataclass
class Org:
    """An org under construction, and the callers that belong to it.

    Attributes
    ----------
    owner
        The caller who made it.
    """

    server: Server
    slug: str
    id: str = ""
    owner: Caller = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = self.server.call("create_org", None, {"slug": self.slug, "owner": {"email": f"owner@{self.slug}"}})
        self.id = made["id"]
        self.owner = {"org": self.id, "user": made["owner"], "role": "owner"}

    def member(self, role: str = "member", *, clients: Sequence[str] = (), deals: Sequence[str] = ()) -> Caller:
        """A new person who works on these clients and deals, by slug."""
        made = self.system("add_member", {"role": role, "email": f"{uuid4()}@{self.slug}"})
        self._grant({"member": made["user_id"]}, clients, deals)
        return {"org": self.id, "user": made["user_id"], "role": role}

    def agent(self, slug: str, *, clients: Sequence[str] = (), deals: Sequence[str] = ()) -> Caller:
        """A new agent with a credential of its own."""
        made = self.system("create_agent", {"slug": slug})
        self._grant({"agent": slug}, clients, deals)
        return {"org": self.id, "agent": made["id"], "role": "agent"}

    def client(self, slug: str) -> str:
        """A new client's id."""
        return str(self.system("create_client", {"slug": slug})["id"])

    def deal(self, slug: str, client: str) -> str:
        """A new deal's id."""
        return str(self.system("create_deal", {"slug": slug, "client": client})["id"])

    def project(self, slug: str) -> str:
        """A new project's id."""
        return str(self.system("create_project", {"slug": slug})["id"])

    def system(self, name: str, request: dict[str, Any]) -> Any:
        """An administrative call by the system itself."""
        return self.server.call(name, None, {"org": self.slug, **request})

    def _grant(self, who: dict[str, str], clients: Sequence[str], deals: Sequence[str]) -> None:
        for slug in clients:
            self.system("grant_scope", {**who, "client": slug})
        for slug in deals:
            self.system("grant_scope", {**who, "deal": slug})

    def item(
        self,
        text: str,
        vector: Vector | None = None,
        *,
        tags: Sequence[str] = (),
        agents: Sequence[str] = (),
        **columns: Any,
    ) -> str:
        """Store an item of any kind behind the API's back, indexed as the engine does it, and return its id.

        `columns` are those of `almagest.items`; `agents` are ids, and make the item agent-scoped.
        """
        values: dict[str, Any] = {
            "org_id": self.id,
            "kind": "memory",
            "type": "note",
            "content": text,
            "content_hash": digest(text),
            "origin": "agent",
            "index_status": "pending",
            **columns,
        }
        if agents:
            values |= {"scope": "agent", "agent_ids": list(agents)}
        names = ", ".join(values)
        places = ", ".join(["%s"] * len(values))
        item = self.server.value(
            f"insert into almagest.items ({names}) values ({places}) returning id::text", *values.values()
        )
        server = self.server
        server.rows(
            "insert into almagest.item_agents (item_id, agent_id, org_id) select %s, unnest(%s::uuid[]), %s",
            *(item, list(agents), self.id),
        )
        server.rows("select engine.add_tags(i, %s) from almagest.items as i where id = %s", Jsonb(list(tags)), item)
        server.rows(
            "insert into almagest.strength_signals (item_id, org_id, user_id, starting_strength)"
            " values (%s, %s, %s, 0.5)",
            *(item, self.id, columns.get("user_id")),
        )
        server.rows(
            "update almagest.items as i set index_status = engine.replace_chunks(i, %s, %s) where id = %s",
            *(Jsonb(chunks_of([text], [vector])), MODEL, item),
        )
        return str(item)
