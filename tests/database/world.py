"""A world with every kind of caller and of item, and who may see what in it: said a second time, in Python."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.database.support import Caller, Org, Server, one_hot


@dataclass(frozen=True)
class Who:
    """What decides what a caller sees, said plainly."""

    name: str
    caller: Caller
    org: str
    user: str | None = None
    agent: str | None = None
    role: str = "member"
    clients: frozenset[str] = frozenset()
    deals: frozenset[str] = frozenset()

    @property
    def manages(self) -> bool:
        return self.role in ("owner", "admin") and self.agent is None


@dataclass(frozen=True)
class Item:
    """What decides who sees an item; `word` is in its text alone, and `axis` is its vector's."""

    name: str
    id: str
    org: str
    word: str
    axis: int
    user: str | None = None
    client: str | None = None
    deal: str | None = None
    agents: frozenset[str] = frozenset()
    state: str = "active"
    workspace: bool = False

    @property
    def vector(self) -> list[float]:
        return one_hot(self.axis)


def may_see(who: Who, item: Item) -> bool:
    """The rules of privacy, written independently of the SQL."""
    if item.org != who.org or item.state == "erased":
        return False
    if item.user is not None:
        if item.user != who.user:
            return False
    elif item.state == "provisional" and not who.manages:
        return False
    if who.manages:
        return True
    in_client = item.client is None or item.client in who.clients
    in_deal = item.deal is None or item.deal in who.deals
    assigned = not item.agents or who.agent in item.agents
    return in_client and in_deal and assigned


def may_find(who: Who, item: Item, *, archived: bool = False) -> bool:
    """Whether a search may answer with the item."""
    return may_see(who, item) and item.state in (("active", "archived") if archived else ("active",))


@dataclass
class World:
    """Two orgs, their people and agents, and items of each kind."""

    server: Server
    callers: list[Who] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)

    def __getitem__(self, name: str) -> Who:
        return next(who for who in self.callers if who.name == name)

    def item(self, name: str) -> Item:
        """An item by its name."""
        return next(item for item in self.items if item.name == name)


def build(server: Server) -> World:
    """Make the world."""
    world = World(server)
    acme, other = Org(server, "acme"), Org(server, "other")
    ids: dict[str, Any] = {}
    for slug in ("north", "south"):
        ids[slug] = acme.client(slug)
    # Two deals of one client, and one of another.
    for slug, client in (("north-one", "north"), ("north-two", "north"), ("south-one", "south")):
        ids[slug] = acme.deal(slug, client)
    foreign_client = other.client("north")

    def see(
        name: str, caller: Caller, *, org: Org = acme, clients: Sequence[str] = (), deals: Sequence[str] = ()
    ) -> Who:
        who = Who(
            name,
            caller,
            org.id,
            caller.get("user"),
            caller.get("agent"),
            caller["role"],
            frozenset(clients),
            frozenset(deals),
        )
        world.callers.append(who)
        return who

    # A client's scope is that of all its deals; a deal's scope takes in its client's own items, not the other deals.
    client_scope: dict[str, Sequence[str]] = {"clients": ["north"], "deals": ["north-one", "north-two"]}
    deal_scope: dict[str, Sequence[str]] = {"clients": ["north"], "deals": ["north-one"]}
    see("owner", acme.owner)
    for role in ("admin", "solutions_engineer", "project_manager", "member"):
        see(role, acme.member(role))
        see(f"{role} with client", acme.member(role, clients=["north"]), **client_scope)
        see(f"{role} with deal", acme.member(role, deals=["north-one"]), **deal_scope)
    see("agent", acme.agent("scribe"))
    see("agent with client", acme.agent("clerk", clients=["north"]), **client_scope)
    see("agent with deal", acme.agent("closer", deals=["north-one"]), **deal_scope)
    assigned = see("assigned agent", acme.agent("assigned"))
    # An agent that works for a person: that person's private items and scopes, but not what they manage.
    for name in ("owner", "member", "member with client"):
        agent = acme.agent(f"for-{name.replace(' ', '-')}")
        person = world[name]
        see(
            f"agent of {name}",
            {"org": acme.id, "user": person.user, "agent": agent["agent"], "role": "agent"},
            clients=list(person.clients),
            deals=list(person.deals),
        )
    agent = {"org": acme.id, "user": world["member"].user, "agent": assigned.agent, "role": "agent"}
    see("assigned agent of member", agent)
    see("owner of another org", other.owner, org=other)
    see("member of another org", other.member(), org=other)

    def keep(name: str, *, org: Org = acme, agents: Sequence[str] = (), **columns: Any) -> None:
        number = len(world.items)
        word = f"zq{number:03}unique"
        stored = dict(columns)
        for place in ("client", "deal"):
            if place in stored:
                stored[f"{place}_id"] = ids[stored.pop(place)]
        text = f"{word} common note about {name}"
        erased = stored.get("state") == "erased" and stored.pop("state")
        item_id = org.item(text, one_hot(number), title=f"{word} title", tags=[f"{word}tag"], agents=agents, **stored)
        if erased:
            # As if an erasure had stopped half way: what is left of it must not come out either.
            server.rows(
                "update almagest.items set state = 'erased', content = null, index_status = null where id = %s", item_id
            )
            server.rows("select engine.refresh_visibility(i) from almagest.items as i where id = %s", item_id)
        world.items.append(
            Item(
                name,
                item_id,
                org.id,
                word,
                number,
                columns.get("user_id"),
                columns.get("client") or ("north (other)" if columns.get("client_id") else None),
                columns.get("deal"),
                frozenset(agents),
                columns.get("state", "active"),
                columns.get("scope") == "workspace",
            )
        )

    owner, member = world["owner"].user, world["member"].user
    with_client = world["member with client"].user
    keep("shared")
    keep("private of the owner", user_id=owner)
    keep("private of the member", user_id=member)
    keep("private of the member with a client", user_id=with_client, client="north")
    keep("private of one who lost the client", user_id=member, client="north")
    keep("client", client="north")
    keep("deal", client="north", deal="north-one")
    keep("other deal of the client", client="north", deal="north-two")
    keep("deal of another client", client="south", deal="south-one")
    keep("agent-scoped", agents=[str(assigned.agent)])
    keep("agent-scoped with client", agents=[str(assigned.agent)], client="north")
    keep("agent-scoped to two", agents=[str(assigned.agent), str(world["agent"].agent)])
    keep("workspace", scope="workspace")
    for state in ("provisional", "revoked", "archived", "erased"):
        keep(state, state=state)
        keep(f"{state}, private of the member", state=state, user_id=member)
    keep("archived client", state="archived", client="north")
    keep("of another org", org=other)
    keep("of another org, with client", org=other, client_id=foreign_client)
    keep("of another org, agent-scoped", org=other, agents=[other.agent("theirs")["agent"]])
    server.rows("analyze")
    return world
