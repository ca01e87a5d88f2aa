"""Commands about orgs, people, agents, keys, and what they work on. They act as the system, with the project's key."""

from typing import Annotated, Any
from uuid import UUID

import typer

from almagest.cli import output
from almagest.cli.context import build_request, open_runtime
from almagest.cli.options import Json, Name, Org, Slug, examples, group, uuid

orgs = group("Orgs: the tenants.")
members = group("Members: the people of an org, and their roles.")
agents = group("Agents: programs with a credential of their own.")
keys = group("API keys of members and agents.")
projects = group("Projects: what documents and memories may belong to.")
clients = group("Clients: whom an org works for.")
deals = group("Deals: engagements with a client.")
scopes = group("Scopes: which clients and deals a member or an agent works on, and so may see.")

Member = Annotated[str, typer.Argument(help="E-mail address or id of the member.")]
MemberOption = Annotated[str | None, typer.Option(help="E-mail address or id of a member.")]
AgentOption = Annotated[str | None, typer.Option(help="Slug of an agent.")]
ClientOption = Annotated[str | None, typer.Option(help="Slug of a client.")]
DealOption = Annotated[str | None, typer.Option(help="Slug of a deal.")]
MemberRole = Annotated[str, typer.Option(help="owner, admin, solutions_engineer, project_manager or member.")]


@orgs.command("create", epilog=examples("almagest org create acme --name 'Acme Ltd' --owner-email ann@acme.example"))
def create_org(
    slug: Slug,
    owner_email: Annotated[str, typer.Option(help="E-mail address of the first owner.")],
    owner_name: Annotated[str | None, typer.Option(help="Name of the first owner.")] = None,
    owner_id: Annotated[
        UUID | None, typer.Option(parser=uuid, metavar="UUID", help="The owner's id as a Supabase user.")
    ] = None,
    name: Name = None,
    as_json: Json = False,
) -> None:
    """Make an org and its first owner."""
    from almagest.models.identity import OrgCreate, OwnerCreate
    from almagest.operations import identity

    owner = build_request(OwnerCreate, email=owner_email, name=owner_name, user_id=owner_id)
    request = build_request(OrgCreate, slug=slug, name=name or slug, owner=owner)
    with open_runtime() as runtime:
        answer = identity.create_org(runtime, None, request)
    _show(answer, as_json)


@orgs.command("list")
def list_orgs(as_json: Json = False) -> None:
    """List all orgs."""
    from almagest.operations import identity

    with open_runtime() as runtime:
        answer = identity.list_orgs(runtime, None)
    _show_list(answer, "orgs", ("slug", "name", "id", "created_at"), as_json)


@members.command("add", epilog=examples("almagest member add ben@acme.example --role admin"))
def add_member(
    email: Annotated[str, typer.Argument(help="E-mail address, unique in the org.")],
    role: MemberRole = "member",
    name: Annotated[str | None, typer.Option(help="The person's name.")] = None,
    user_id: Annotated[
        UUID | None, typer.Option(parser=uuid, metavar="UUID", help="The person's id as a Supabase user.")
    ] = None,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Let a person join an org."""
    from almagest.models.identity import MemberAdd
    from almagest.operations import identity

    request = build_request(MemberAdd, org=org, email=email, role=role, name=name, user_id=user_id)
    with open_runtime() as runtime:
        answer = identity.add_member(runtime, None, request)
    _show(answer, as_json)


@members.command("list")
def list_members(org: Org = None, as_json: Json = False) -> None:
    """List the members of an org."""
    _list("members", ("email", "role", "name", "user_id", "created_at"), org, as_json)


@members.command("role", epilog=examples("almagest member role ben@acme.example project_manager"))
def set_member_role(
    member: Member,
    role: Annotated[str, typer.Argument(help="The new role: owner, admin, solutions_engineer, …, member.")],
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Give a member another role."""
    from almagest.models.identity import MemberRoleSet
    from almagest.operations import identity

    request = build_request(MemberRoleSet, org=org, member=member, role=role)
    with open_runtime() as runtime:
        answer = identity.set_member_role(runtime, None, request)
    _show(answer, as_json)


@members.command("remove")
def remove_member(member: Member, org: Org = None, as_json: Json = False) -> None:
    """Let a member go, with every key of theirs."""
    from almagest.models.identity import MemberRemove
    from almagest.operations import identity

    request = build_request(MemberRemove, org=org, member=member)
    with open_runtime() as runtime:
        answer = identity.remove_member(runtime, None, request)
    _show(answer, as_json)


@agents.command("create", epilog=examples("almagest agent create builder --name 'Build agent'"))
def create_agent(slug: Slug, name: Name = None, org: Org = None, as_json: Json = False) -> None:
    """Make an agent; `almagest keys create --agent SLUG` gives it a key."""
    from almagest.models.identity import AgentCreate
    from almagest.operations import identity

    request = build_request(AgentCreate, org=org, slug=slug, name=name or slug)
    with open_runtime() as runtime:
        answer = identity.create_agent(runtime, None, request)
    _show(answer, as_json)


@agents.command("list")
def list_agents(org: Org = None, as_json: Json = False) -> None:
    """List the agents of an org."""
    _list("agents", ("slug", "name", "id", "created_at"), org, as_json)


@keys.command(
    "create",
    epilog=examples(
        "almagest keys create --member ann@acme.example --name laptop",
        "almagest keys create --agent builder --name ci --expires-at 2027-01-01T00:00:00Z",
    ),
)
def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    member: MemberOption = None,
    agent: AgentOption = None,
    expires_at: Annotated[str | None, typer.Option(help="End of the key, with offset: 2027-01-01T00:00:00Z.")] = None,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Make an API key for a member, an agent, or an agent that works for a member. Its secret is shown only once."""
    from almagest.models.identity import KeyCreate
    from almagest.operations import identity

    request = build_request(KeyCreate, org=org, name=name, member=member, agent=agent, expires_at=expires_at)
    with open_runtime() as runtime:
        answer = identity.create_key(runtime, None, request)
    _show(answer.model_dump(mode="json"), as_json)
    output.print_message("Keep the secret now: it is stored nowhere.")


@keys.command("list")
def list_keys(org: Org = None, as_json: Json = False) -> None:
    """List the keys of an org by name and prefix, with when each was last used."""
    columns = ("name", "prefix", "role", "user", "agent", "id", "expires_at", "last_used_at", "revoked_at")
    _list("keys", columns, org, as_json)


@keys.command("revoke")
def revoke_key(
    key: Annotated[
        UUID, typer.Argument(parser=uuid, metavar="KEY", help="The key's id, as `almagest keys list` prints it.")
    ],
    org: Org = None,
    as_json: Json = False,
) -> None:
    """End a key. A function may still accept it for up to 30 seconds."""
    from almagest.models.identity import KeyRevoke
    from almagest.operations import identity

    request = build_request(KeyRevoke, org=org, id=key)
    with open_runtime() as runtime:
        answer = identity.revoke_key(runtime, None, request)
    _show(answer, as_json)


@projects.command("create", epilog=examples("almagest project create atlas --name 'Project Atlas'"))
def create_project(slug: Slug, name: Name = None, org: Org = None, as_json: Json = False) -> None:
    """Make a project."""
    from almagest.models.identity import ScopeCreate
    from almagest.operations import identity

    request = build_request(ScopeCreate, org=org, slug=slug, name=name or slug)
    with open_runtime() as runtime:
        answer = identity.create_project(runtime, None, request)
    _show(answer, as_json)


@projects.command("list")
def list_projects(org: Org = None, as_json: Json = False) -> None:
    """List the projects of an org."""
    _list("projects", ("slug", "name", "id", "created_at"), org, as_json)


@clients.command("create", epilog=examples("almagest client create globex --name 'Globex Corporation'"))
def create_client(slug: Slug, name: Name = None, org: Org = None, as_json: Json = False) -> None:
    """Make a client."""
    from almagest.models.identity import ScopeCreate
    from almagest.operations import identity

    request = build_request(ScopeCreate, org=org, slug=slug, name=name or slug)
    with open_runtime() as runtime:
        answer = identity.create_client(runtime, None, request)
    _show(answer, as_json)


@clients.command("list")
def list_clients(org: Org = None, as_json: Json = False) -> None:
    """List the clients of an org."""
    _list("clients", ("slug", "name", "id", "created_at"), org, as_json)


@deals.command("create", epilog=examples("almagest deal create rollout --client globex"))
def create_deal(
    slug: Slug,
    client: Annotated[str, typer.Option(help="Slug of the client.")],
    name: Name = None,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Make a deal of a client."""
    from almagest.models.identity import DealCreate
    from almagest.operations import identity

    request = build_request(DealCreate, org=org, slug=slug, name=name or slug, client=client)
    with open_runtime() as runtime:
        answer = identity.create_deal(runtime, None, request)
    _show(answer, as_json)


@deals.command("list")
def list_deals(org: Org = None, as_json: Json = False) -> None:
    """List the deals of an org."""
    _list("deals", ("slug", "client", "name", "id", "created_at"), org, as_json)


@scopes.command(
    "grant",
    epilog=examples(
        "almagest scope grant --member ben@acme.example --client globex",
        "almagest scope grant --agent builder --deal rollout",
    ),
)
def grant_scope(
    member: MemberOption = None,
    agent: AgentOption = None,
    client: ClientOption = None,
    deal: DealOption = None,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Let a member or an agent see the items of a client or a deal."""
    from almagest.models.identity import ScopeGrant
    from almagest.operations import identity

    request = build_request(ScopeGrant, org=org, member=member, agent=agent, client=client, deal=deal)
    with open_runtime() as runtime:
        answer = identity.grant_scope(runtime, None, request)
    _show(answer, as_json)


@scopes.command("revoke", epilog=examples("almagest scope revoke --member ben@acme.example --client globex"))
def revoke_scope(
    member: MemberOption = None,
    agent: AgentOption = None,
    client: ClientOption = None,
    deal: DealOption = None,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Take a scope away again."""
    from almagest.models.identity import ScopeGrant
    from almagest.operations import identity

    request = build_request(ScopeGrant, org=org, member=member, agent=agent, client=client, deal=deal)
    with open_runtime() as runtime:
        answer = identity.revoke_scope(runtime, None, request)
    _show(answer, as_json)


@scopes.command("list")
def list_scopes(org: Org = None, as_json: Json = False) -> None:
    """List who works on which clients and deals."""
    _list("scopes", ("member", "agent", "client", "deal"), org, as_json)


def _list(name: str, columns: tuple[str, ...], org: str | None, as_json: bool) -> None:
    from almagest.models.identity import AdminRequest
    from almagest.operations import identity

    operation = getattr(identity, f"list_{name}")
    request = build_request(AdminRequest, org=org)
    with open_runtime() as runtime:
        answer = operation(runtime, None, request)
    _show_list(answer, name, columns, as_json)


def _show(answer: dict[str, Any], as_json: bool) -> None:
    output.print_json(answer) if as_json else output.print_record(answer)


def _show_list(answer: dict[str, Any], name: str, columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
    else:
        output.print_rows(answer[name], columns, empty=f"There are no {name}.")
