"""Functions over a real PostgREST, Postgres and model, with a small team in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from almagest.edge.app import App
from almagest.handlers import bootstrap, search, write
from almagest.models.identity import KeyCreate, MemberAdd, OrgCreate
from almagest.operations import identity
from almagest.runtime import Runtime
from almagest.settings import Settings
from infra.local.postgres import Postgres
from tests.conftest import Supabase
from tests.edge import Reply, event, send
from tests.support import Database, clone

APPS: dict[str, App] = {"search": search.app, "write": write.app, "bootstrap": bootstrap.app}


@dataclass
class Team:
    """One org: keys by the name of who carries them, and requests in their name."""

    runtime: Runtime
    database: Database
    slug: str
    keys: dict[str, str] = field(default_factory=dict)

    def join(self, name: str, role: str) -> str:
        """Add a member and give them a key."""
        email = f"{name}@{self.slug}.example"
        if role != "owner":
            identity.add_member(self.runtime, None, MemberAdd(org=self.slug, email=email, role=role))  # type: ignore[arg-type]
        self.keys[name] = self.key(KeyCreate(org=self.slug, name=name, member=email))
        return self.keys[name]

    def key(self, request: KeyCreate) -> str:
        """Make one more key."""
        return identity.create_key(self.runtime, None, request).secret

    def settle(self) -> None:
        """Let nothing wait for its index any more: what other tests have left grows old, and would be told of here."""
        self.rows("update almagest.items set index_status = 'search_ready' where index_status <> 'search_ready'")

    def ask(self, who: str, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """Send a request in someone's name to the function that its path names."""
        app = APPS[path.split("/")[2]]
        options.setdefault("request_id", str(uuid4()))
        app.connect = lambda: self.runtime
        return send(app, event(method, path, body, key=self.keys.get(who), **options))

    def remember(self, content: str, who: str = "ann", **fields: Any) -> dict[str, Any]:
        """Write a memory that must be taken."""
        reply = self.ask(who, "POST", "/v1/write/memories", {"content": content, **fields})
        assert reply.status == 201, reply.text
        result: dict[str, Any] = reply.body
        return result

    def find(self, query: str, who: str = "ann", **fields: Any) -> list[dict[str, Any]]:
        """Search, and return the results."""
        reply = self.ask(who, "POST", "/v1/search", {"query": query, **fields})
        assert reply.status == 200, reply.text
        results: list[dict[str, Any]] = reply.body["results"]
        return results

    def rows(self, query: str, *parameters: object) -> list[Any]:
        """Look behind the scenes."""
        return self.database.rows(query, *parameters)


@pytest.fixture(scope="module")
def served(
    cluster: Postgres, template_database: Database, supabase_over: Callable[[str], Supabase]
) -> Iterator[tuple[Runtime, Database]]:
    """A runtime as a function's container has it, over a database of the module's own."""
    with clone(cluster, template_database.name) as database:
        project = supabase_over(database.name)
        settings = Settings(
            supabase_url=project.url,
            supabase_key=project.keys.secret,  # type: ignore[arg-type]
            database_url=database.url,  # type: ignore[arg-type]
            jwt_secret=project.keys.jwt_secret,  # type: ignore[arg-type]
        )
        runtime = Runtime.from_settings(settings)
        yield runtime, database
        runtime.rpc.close()


@pytest.fixture
def team(served: tuple[Runtime, Database], monkeypatch: pytest.MonkeyPatch) -> Team:
    """A new org with an owner, Olga, and two members, Ann and Bob."""
    runtime, database = served
    for app in APPS.values():
        monkeypatch.setattr(app, "connect", app.connect)
    with psycopg.connect(database.url) as connection:
        [(number,)] = connection.execute("select count(*) from almagest.orgs").fetchall()
    made = Team(runtime, database, f"team-{number}")
    request = {"slug": made.slug, "name": "Team", "owner": {"email": f"olga@{made.slug}.example"}}
    identity.create_org(runtime, None, OrgCreate.model_validate(request))
    made.join("olga", "owner")
    made.join("ann", "member")
    made.join("bob", "member")
    return made
