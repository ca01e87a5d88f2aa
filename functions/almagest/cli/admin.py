"""Commands about orgs, people, agents, keys, and what they work on. They act as the system, with the project's key."""

from typing import Annotated, Any
from uuid import UUID

import typer

from almagest.cli import output
from almagest.cli.context import build_request, open_runtime, read_request
from almagest.cli.options import Json, Name, Org, Slug, examples, group, key_name, number, uuid, whole

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
KeyId = Annotated[
    Any,
    typer.Argument(parser=key_name, metavar="KEY", help="The key's id or prefix, as `almagest key list` prints them."),
]
ExpiresAt = Annotated[str | None, typer.Option(help="End of the key, with offset: 2027-01-01T00:00:00Z.")]
Rate = Annotated[
    float | None,
    typer.Option(parser=number, metavar="NUMBER", help="Requests a second that each container lets through."),
]
DailyQuota = Annotated[
    int | None,
    typer.Option(parser=whole, metavar="NUMBER", help="Requests a UTC day, of all containers together."),
]
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
    _list("members", ("email", "role", "name", "user_id", "used_today", "created_at"), org, as_json)


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
    """Make an agent; `almagest key create --agent SLUG` gives it a key."""
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
        "almagest key create --member ann@acme.example --name laptop",
        "almagest key create --agent builder --name ci --expires-at 2027-01-01T00:00:00Z",
        "almagest key create --agent builder --name trial --rate 2 --daily-quota 1000",
    ),
)
def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    member: MemberOption = None,
    agent: AgentOption = None,
    expires_at: ExpiresAt = None,
    rate: Rate = None,
    daily_quota: DailyQuota = None,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Make an API key for a member, an agent, or an agent that works for a member. Its secret is shown only once."""
    from almagest.models.identity import KeyCreate
    from almagest.operations import identity

    request = build_request(
        KeyCreate, org=org, name=name, member=member, agent=agent, expires_at=expires_at, rate=rate,
        daily_quota=daily_quota,
    )  # fmt: skip
    with open_runtime() as runtime:
        answer = identity.create_key(runtime, None, request)
    _show_secret(answer.model_dump(mode="json"), as_json)


@keys.command("list")
def list_keys(org: Org = None, as_json: Json = False) -> None:
    """List the keys of an org by name and prefix, with what each has used today of its quota."""
    from almagest.models.identity import AdminRequest
    from almagest.operations import identity

    request = build_request(AdminRequest, org=org)
    with open_runtime() as runtime:
        answer = identity.list_keys(runtime, None, request)
    if as_json:
        output.print_json(answer)
        return
    columns = (
        "name", "prefix", "role", "user", "agent", "id", "used today / quota", "rate", "expires_at", "last_used_at",
        "revoked_at", "replaced_by",
    )  # fmt: skip
    output.print_rows([_with_usage(key) for key in answer["keys"]], columns, empty="There are no keys.")


@keys.command(
    "limit",
    epilog=examples(
        "almagest key limit 123e4567-e89b-12d3-a456-426614174000 --rate 5 --daily-quota 10000",
        "almagest key limit 123e4567-e89b-12d3-a456-426614174000 --default-rate --no-daily-quota",
    ),
)
def limit_key(
    key: KeyId,
    rate: Rate = None,
    daily_quota: DailyQuota = None,
    default_rate: Annotated[bool, typer.Option("--default-rate", help="Back to the default rate.")] = False,
    no_daily_quota: Annotated[bool, typer.Option("--no-daily-quota", help="No daily quota any more.")] = False,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Give a key other limits; what is not named stays. A function may use the old ones for up to 30 seconds."""
    from almagest.models.identity import KeyLimit
    from almagest.operations import identity

    if (default_rate and rate is not None) or (no_daily_quota and daily_quota is not None):
        raise typer.BadParameter("a limit is either set or taken away")
    named = {"id": key, "org": org, "rate": rate, "daily_quota": daily_quota}
    given = {name: value for name, value in named.items() if value is not None}
    taken_away = {"rate": None} if default_rate else {}
    taken_away |= {"daily_quota": None} if no_daily_quota else {}
    request = read_request(KeyLimit, given | taken_away)
    with open_runtime() as runtime:
        answer = identity.limit_key(runtime, None, request)
    _show(answer, as_json)


@keys.command("rotate", epilog=examples("almagest key rotate 123e4567-e89b-12d3-a456-426614174000 --overlap 24h"))
def rotate_key(
    key: KeyId,
    overlap: Annotated[str, typer.Option(help="How long the old key still holds: 0s, 90m, 24h, 7d; at most 30d.")] = (
        "24h"
    ),
    expires_at: ExpiresAt = None,
    org: Org = None,
    as_json: Json = False,
) -> None:
    """Make a new key in place of one: same owner, role and limits. The old one ends after the overlap."""
    from almagest.models.identity import KeyRotate
    from almagest.operations import identity

    request = build_request(KeyRotate, org=org, id=key, overlap=overlap, expires_at=expires_at)
    with open_runtime() as runtime:
        answer = identity.rotate_key(runtime, None, request)
    _show_secret(answer.model_dump(mode="json"), as_json)


@keys.command("revoke")
def revoke_key(key: KeyId, org: Org = None, as_json: Json = False) -> None:
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


def _with_usage(key: dict[str, Any]) -> dict[str, Any]:
    quota = "no quota" if key["daily_quota"] is None else f"{key['daily_quota']:,}"
    return {**key, "used today / quota": f"{key['used_today']:,} / {quota}"}


def _show_secret(answer: dict[str, Any], as_json: bool) -> None:
    _show(answer, as_json)
    output.print_message("Keep the secret now: it is stored nowhere.")


def _show(answer: dict[str, Any], as_json: bool) -> None:
    output.print_json(answer) if as_json else output.print_record(answer)


def _show_list(answer: dict[str, Any], name: str, columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
    else:
        output.print_rows(answer[name], columns, empty=f"There are no {name}.")
