"""Orgs, people, agents, places and keys: who may set them up, and what that changes at once."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.database.concurrency import at_once
from tests.database.support import Caller, Org, Refused, Server, attempt, digest, ids, search, write_one

NAMES = {"create_project": "projects", "create_client": "clients", "create_agent": "agents"}

# Every administrative function with a request that would succeed.
ADMINISTRATION: dict[str, dict[str, Any]] = {
    "add_member": {"email": "new@acme", "role": "member"},
    "list_members": {},
    "set_member_role": {"member": "bert@acme", "role": "admin"},
    "remove_member": {"member": "bert@acme"},
    "create_project": {"slug": "website"},
    "list_projects": {},
    "create_client": {"slug": "south"},
    "list_clients": {},
    "create_deal": {"client": "north", "slug": "north-two"},
    "list_deals": {},
    "grant_scope": {"member": "bert@acme", "client": "north"},
    "revoke_scope": {"member": "bert@acme", "client": "north"},
    "list_scopes": {},
    "create_agent": {"slug": "clerk"},
    "list_agents": {},
    "create_key": {"name": "a key", "prefix": "alm_x", "key_hash": digest("x"), "agent": "scribe"},
    "list_keys": {},
    "revoke_key": {"id": "alm_bert"},
    "limit_key": {"id": "alm_bert", "rate": 5, "daily_quota": 100},
    "rotate_key": {"id": "alm_scribe", "prefix": "alm_y", "key_hash": digest("y"), "overlap_seconds": 60},
}


@pytest.fixture
def bert(org: Org) -> Caller:
    """A member with a name of their own and a key, among what the administration is about."""
    made = org.system("add_member", {"email": "bert@acme", "name": "Bert"})
    org.client("north")
    org.deal("north-one", "north")
    org.agent("scribe")
    key = {"name": "Bert's", "prefix": "alm_bert", "key_hash": digest("bert"), "member": "bert@acme"}
    org.system("create_key", key)
    return {"org": org.id, "user": made["user_id"], "role": "member"}


@pytest.fixture
def scribes_key(org: Org, bert: Caller) -> None:
    """A key of an agent's own, which whoever manages the org may replace."""
    org.system("create_key", {"name": "s", "prefix": "alm_scribe", "key_hash": digest("scribe"), "agent": "scribe"})


def everything(server: Server) -> list[Any]:
    """All rows of what is administered."""
    tables = ("orgs", "members", "projects", "clients", "deals", "member_scopes", "agents", "api_keys")
    return [server.rows(f"select t::text from almagest.{table} as t order by 1") for table in tables]


# Rights


@pytest.mark.parametrize("name", ADMINISTRATION)
def test_only_those_who_manage_administer(server: Server, org: Org, bert: Caller, scribes_key: None, name: str) -> None:
    scribe = server.value("select id::text from almagest.agents")
    before = everything(server)
    for caller in (
        bert,
        {**bert, "role": "owner"},
        org.member("solutions_engineer"),
        org.member("project_manager"),
        {"org": org.id, "agent": scribe, "role": "agent"},
        {**org.owner, "agent": scribe},  # an agent never manages, whoever it works for
    ):
        people = everything(server)
        with pytest.raises(Refused) as refused:
            server.call(name, caller, ADMINISTRATION[name])
        assert (refused.value.status, refused.value.code) == (403, "forbidden")
        assert everything(server) == people
    assert before[0] == everything(server)[0]
    for stranger in ({}, {"org": org.id}, {"org": org.id, "user": str(uuid4()), "role": "owner"}):
        with pytest.raises(Refused, match="403 caller_unknown"):
            server.call(name, stranger, ADMINISTRATION[name])


@pytest.mark.parametrize("name", ADMINISTRATION)
@pytest.mark.parametrize("who", ["system", "owner", "admin"])
def test_those_who_manage_administer(
    server: Server, org: Org, bert: Caller, scribes_key: None, name: str, who: str
) -> None:
    caller = {"system": None, "owner": org.owner, "admin": org.member("admin")}[who]
    assert server.call(name, caller, {"org": "acme", **ADMINISTRATION[name]})


@pytest.mark.parametrize("name", ADMINISTRATION)
def test_those_who_manage_another_org_reach_nothing_here(
    server: Server, org: Org, bert: Caller, scribes_key: None, name: str
) -> None:
    """P4: their own org is all that there is, whatever names or ids of ours they give."""
    other = Org(server, "other")
    ours = set(server.rows("select (m.org_id || ' ' || m.user_id || ' ' || m.role) from almagest.members as m"))
    request = {**ADMINISTRATION[name], "org": "acme"}
    for field, table in (("member", "members"), ("client", "clients"), ("agent", "agents"), ("id", "api_keys")):
        if field in request and name != "create_key":
            column = "user_id" if table == "members" else "id"
            request[field] = server.value(
                f"select {column}::text from almagest.{table} where org_id = %s limit 1", org.id
            )
    before = [row for rows in everything(server) for row in rows if org.id in row]

    answer = attempt(server, name, other.owner, request)

    assert [row for rows in everything(server) for row in rows if org.id in row] == before
    if isinstance(answer, Refused):
        assert answer.status == 404
    else:
        assert "bert" not in str(answer).lower()
        assert "north-one" not in str(answer)
    assert ours <= set(server.rows("select (m.org_id || ' ' || m.user_id || ' ' || m.role) from almagest.members as m"))


def test_orgs_are_made_and_listed_by_the_system(server: Server, org: Org) -> None:
    for name in ("create_org", "list_orgs"):
        for caller in (org.owner, org.member(), {}):
            with pytest.raises(Refused, match="403 forbidden"):
                server.call(name, caller, {"slug": "mine"})
    made = server.call("create_org", None, {"slug": "zoo", "name": "The Zoo", "owner": {"name": "Ann"}})
    assert (made["slug"], made["name"]) == ("zoo", "The Zoo")
    assert [entry["slug"] for entry in server.call("list_orgs", None)["orgs"]] == ["acme", "zoo"]
    assert server.rows("select role, name from almagest.members where user_id = %s", made["owner"]) == [
        ("owner", "Ann")
    ]


def test_an_orgs_owner_may_be_a_user_who_exists(server: Server) -> None:
    user = str(uuid4())
    for slug in ("one", "two"):
        assert server.call("create_org", None, {"slug": slug, "owner": {"user_id": user}})["owner"] == user


def test_the_system_names_the_org_where_there_are_several(server: Server, org: Org) -> None:
    assert server.call("list_members", None, {})["members"]
    Org(server, "other")
    with pytest.raises(Refused, match="422 org_missing"):
        server.call("list_members", None, {})
    with pytest.raises(Refused, match="404 unknown_org"):
        server.call("list_members", None, {"org": "nowhere"})


def test_without_an_org_there_is_nothing_to_administer(server: Server) -> None:
    with pytest.raises(Refused, match="422 org_missing"):
        server.call("add_member", None, {"email": "a@b"})


# Slugs


BAD_SLUGS = ["", "-a", "_a", "A", "a b", "ä", "a/b", "a" * 64, "a'b", "a\n", None]


@pytest.mark.parametrize("slug", BAD_SLUGS)
def test_bad_slugs_are_refused(server: Server, org: Org, slug: str | None) -> None:
    org.client("north")
    calls: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in NAMES]
    calls += [("create_deal", {"client": "north"}), ("create_org", {})]
    for name, fields in calls:
        with pytest.raises(Refused, match="422 invalid_slug"):
            org.system(name, {**fields, "slug": slug})


def test_good_slugs_are_taken_once_an_org(server: Server, org: Org) -> None:
    other = Org(server, "other")
    for name, plural in NAMES.items():
        for slug in ("a", "0", "a-b_c", "a" * 63):
            made = org.system(name, {"slug": slug})
            assert (made["slug"], made["name"]) == (slug, slug)
            with pytest.raises(Refused, match="409 slug_taken"):
                org.system(name, {"slug": slug})
        assert other.system(name, {"slug": "a", "name": "Another"})["name"] == "Another"
        listed = org.system(f"list_{plural}", {})[plural]
        assert [entry["slug"] for entry in listed] == sorted(["a", "0", "a-b_c", "a" * 63])
    with pytest.raises(Refused, match="409 slug_taken"):
        server.call("create_org", None, {"slug": "acme"})


def test_deals_belong_to_clients(server: Server, org: Org) -> None:
    client = org.client("north")
    org.deal("one", "north")
    org.deal("two", client)
    assert [(deal["slug"], deal["client"]) for deal in org.system("list_deals", {})["deals"]] == [
        ("one", "north"),
        ("two", "north"),
    ]
    with pytest.raises(Refused, match="409 slug_taken"):
        org.deal("one", "north")
    for missing in ("nobody", None, str(uuid4())):
        with pytest.raises(Refused, match="404 unknown_client"):
            org.system("create_deal", {"slug": "three", "client": missing})


# Members


def test_members_are_found_by_id_or_email(server: Server, org: Org, bert: Caller) -> None:
    for name in ("bert@acme", "BERT@acme", bert["user"], bert["user"].upper()):
        assert org.system("set_member_role", {"member": name, "role": "admin"})["user_id"] == bert["user"]
    for name in ("nobody@acme", str(uuid4()), "", None):
        with pytest.raises(Refused, match="404 unknown_member"):
            org.system("set_member_role", {"member": name, "role": "admin"})
        with pytest.raises(Refused, match="404 unknown_member"):
            org.system("remove_member", {"member": name})


def test_a_person_joins_once(server: Server, org: Org, bert: Caller) -> None:
    for again in ({"user_id": bert["user"]}, {"email": "bert@acme"}, {"email": "Bert@ACME"}):
        with pytest.raises(Refused, match="409 member_exists"):
            org.system("add_member", again)
    # The same person in another org is another member.
    assert Org(server, "other").system("add_member", {"user_id": bert["user"], "email": "bert@acme"})


def test_the_last_owner_stays(server: Server, org: Org) -> None:
    owner = org.owner["user"]
    for name, fields in (("set_member_role", {"role": "member"}), ("remove_member", {})):
        with pytest.raises(Refused, match="409 last_owner"):
            org.system(name, {"member": owner, **fields})
    org.system("set_member_role", {"member": owner, "role": "owner"})
    second = org.member("owner")
    org.system("set_member_role", {"member": owner, "role": "member"})
    with pytest.raises(Refused, match="409 last_owner"):
        org.system("remove_member", {"member": second["user"]})


def test_two_owners_cannot_remove_each_other_at_once(server: Server, org: Org) -> None:
    second = org.member("owner")

    def remove(who: Caller, whom: Caller) -> Callable[[Server], Any]:
        return lambda other: other.call("remove_member", who, {"member": whom["user"]})

    answers = at_once(server, remove(org.owner, second), remove(second, org.owner))
    assert sum(isinstance(answer, Refused) for answer in answers) == 1
    assert server.value("select count(*) from almagest.members where role = 'owner'") == 1


def test_owners_are_made_and_unmade_by_owners(server: Server, org: Org, bert: Caller) -> None:
    """An admin cannot become one, nor be rid of one."""
    admin, second = org.member("admin"), org.member("owner")
    for name, request in (
        ("set_member_role", {"member": admin["user"], "role": "owner"}),
        ("set_member_role", {"member": second["user"], "role": "member"}),
        ("remove_member", {"member": second["user"]}),
        ("add_member", {"email": "friend@acme", "role": "owner"}),
    ):
        with pytest.raises(Refused, match="403 forbidden"):
            server.call(name, admin, request)
    assert server.call("set_member_role", org.owner, {"member": "bert@acme", "role": "owner"})["role"] == "owner"
    assert server.call("remove_member", org.owner, {"member": second["user"]})["removed"]


def test_a_role_counts_from_the_next_call(server: Server, org: Org, bert: Caller) -> None:
    with pytest.raises(Refused, match="403 forbidden"):
        server.call("list_keys", bert)
    org.system("set_member_role", {"member": "bert@acme", "role": "admin"})
    assert server.call("list_keys", bert)
    org.system("set_member_role", {"member": "bert@acme", "role": "member"})
    with pytest.raises(Refused, match="403 forbidden"):
        server.call("list_keys", bert)


def test_members_are_listed(server: Server, org: Org, bert: Caller) -> None:
    listed = org.system("list_members", {})["members"]
    assert [(member["role"], member["email"], member["name"]) for member in listed] == [
        ("owner", "owner@acme", None),
        ("member", "bert@acme", "Bert"),
    ]


# Scopes


def test_scopes_open_and_close_at_once(server: Server, org: Org, bert: Caller) -> None:
    org.deal("north-two", "north")
    scribe = {"org": org.id, "agent": server.value("select id::text from almagest.agents"), "role": "agent"}
    items = {
        "client": write_one(server, org.owner, "zebra client", client="north"),
        "one": write_one(server, org.owner, "zebra one", deal="north-one"),
        "two": write_one(server, org.owner, "zebra two", deal="north-two"),
    }

    def sees(caller: Caller) -> set[str]:
        found = ids(search(server, caller, "zebra"))
        return {name for name, item in items.items() if item in found}

    for caller, who in ((bert, {"member": "bert@acme"}), (scribe, {"agent": "scribe"})):
        assert sees(caller) == set()
        for scope, seen in (
            ({"client": "north"}, {"client", "one", "two"}),
            ({"deal": "north-one"}, {"client", "one"}),
            ({"deal": "north-two"}, {"client", "two"}),
        ):
            assert org.system("grant_scope", {**who, **scope}) == {"granted": True}
            assert org.system("grant_scope", {**who, **scope}) == {"granted": True}
            assert sees(caller) == seen
            assert org.system("revoke_scope", {**who, **scope}) == {"revoked": True}
            assert sees(caller) == set()
        org.system("grant_scope", {**who, "deal": "north-one"})
        org.system("grant_scope", {**who, "deal": "north-two"})
        assert sees(caller) == {"client", "one", "two"}


def test_a_later_deal_is_within_its_clients_scope(server: Server, org: Org) -> None:
    org.client("north")
    member = org.member(clients=["north"])
    org.deal("north-new", "north")
    item = write_one(server, member, "zebra", deal="north-new")
    assert ids(search(server, member, "zebra")) == [item]


def test_an_agent_of_a_person_has_both_scopes(server: Server, org: Org) -> None:
    for slug in ("north", "south", "west"):
        org.client(slug)
        write_one(server, org.owner, f"zebra {slug}", client=slug)
    member, agent = org.member(clients=["north"]), org.agent("scribe", clients=["south"])
    both = {**member, "agent": agent["agent"], "role": "agent"}
    found = [result["snippet"] for result in search(server, both, "zebra")["results"]]
    assert sorted(found) == ["zebra north", "zebra south"]


@pytest.mark.parametrize(
    ("request_fields", "code"),
    [
        ({"client": "north"}, "422 invalid_scope"),
        ({"member": "bert@acme"}, "422 invalid_scope"),
        ({"member": "bert@acme", "agent": "scribe", "client": "north"}, "422 invalid_scope"),
        ({"member": "bert@acme", "client": "north", "deal": "north-one"}, "422 invalid_scope"),
        ({"member": "nobody", "client": "north"}, "404 unknown_member"),
        ({"agent": "nobody", "client": "north"}, "404 unknown_agent"),
        ({"member": "bert@acme", "client": "nobody"}, "404 unknown_client"),
        ({"member": "bert@acme", "deal": "nothing"}, "404 unknown_deal"),
    ],
)
def test_wrong_scopes_are_refused(
    server: Server, org: Org, bert: Caller, request_fields: dict[str, str], code: str
) -> None:
    for name in ("grant_scope", "revoke_scope"):
        with pytest.raises(Refused, match=code):
            org.system(name, request_fields)


def test_scopes_are_listed_by_name(server: Server, org: Org, bert: Caller) -> None:
    org.system("grant_scope", {"member": bert["user"], "client": "north"})
    org.system("grant_scope", {"agent": "scribe", "deal": "north-one"})
    assert org.system("list_scopes", {})["scopes"] == [
        {"member": "bert@acme", "agent": None, "client": "north", "deal": None},
        {"member": None, "agent": "scribe", "client": None, "deal": "north-one"},
    ]


def test_who_leaves_takes_their_scopes_and_keys_along(server: Server, org: Org, bert: Caller) -> None:
    org.system("grant_scope", {"member": "bert@acme", "client": "north"})
    org.system("remove_member", {"member": "bert@acme"})
    assert org.system("list_scopes", {})["scopes"] == org.system("list_keys", {})["keys"] == []
    with pytest.raises(Refused, match="401 unauthorized"):
        server.call("authenticate", None, {"key_hash": digest("bert")})


# Keys


def _authenticated(server: Server, secret: str) -> Any:
    return server.call("authenticate", None, {"key_hash": digest(secret)})


def test_a_key_is_its_owners_caller(server: Server, org: Org, bert: Caller) -> None:
    scribe = server.value("select id::text from almagest.agents")
    for secret, who in (
        ("agent's", {"agent": "scribe"}),
        ("both", {"agent": "scribe", "member": "bert@acme"}),
    ):
        made = org.system("create_key", {"name": secret, "prefix": secret, "key_hash": digest(secret), **who})
        assert made["role"] == "agent"
        caller = _authenticated(server, secret)
        assert caller == {
            "org": org.id,
            "user": bert["user"] if "member" in who else None,
            "agent": scribe,
            "role": "agent",
            "key": made["id"],
            "expires_at": None,
            "rate": None,
            "daily_quota": None,
            "used_today": 0,
            "sources": 0,
        }
        assert search(server, caller, "zebra")["results"] == []
    caller = _authenticated(server, "bert")
    assert (caller["user"], caller["agent"], caller["role"]) == (bert["user"], None, "member")


def test_a_key_ends_when_it_is_revoked(server: Server, org: Org, bert: Caller) -> None:
    [listed] = org.system("list_keys", {})["keys"]
    for name in (listed["id"], "alm_bert"):
        revoked = org.system("revoke_key", {"id": name})
        assert revoked["id"] == listed["id"]
    with pytest.raises(Refused, match="401 unauthorized"):
        _authenticated(server, "bert")
    # Revoked again, it keeps the time of the first.
    assert org.system("list_keys", {})["keys"][0]["revoked_at"] == revoked["revoked_at"]
    for unknown in ("alm_nothing", str(uuid4()), None):
        with pytest.raises(Refused, match="404 unknown_key"):
            org.system("revoke_key", {"id": unknown})


def test_a_key_ends_when_it_expires(server: Server, org: Org, bert: Caller) -> None:
    key = {"name": "short", "prefix": "alm_s", "key_hash": digest("short"), "agent": "scribe"}
    with pytest.raises(Refused, match="422 expired"):
        org.system("create_key", {**key, "expires_at": "2020-01-01T00:00:00Z"})
    made = org.system("create_key", {**key, "expires_at": "2999-01-01T00:00:00Z"})
    assert _authenticated(server, "short")["expires_at"] == made["expires_at"]
    server.rows("update almagest.api_keys set expires_at = now() where key_hash = %s", digest("short"))
    with pytest.raises(Refused, match="401 unauthorized"):
        _authenticated(server, "short")


def test_all_that_is_unauthorized_is_alike(server: Server, org: Org, bert: Caller) -> None:
    org.system("revoke_key", {"id": "alm_bert"})
    said = set()
    requests: list[dict[str, Any]] = [
        {"key_hash": digest("bert")},
        {"key_hash": digest("never was")},
        {"key_hash": ""},
        {"key_hash": "nonsense"},
        {"user_id": str(uuid4())},
        {"user_id": bert["user"], "org": "other"},
        {"user_id": bert["user"], "org": str(uuid4())},
        {},
        {"org": "acme"},
    ]
    for request in requests:
        with pytest.raises(Refused) as refused:
            server.call("authenticate", None, request)
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        said.add((refused.value.message, str(refused.value.members)))
    assert len(said) == 1


def test_wrong_keys_are_refused(server: Server, org: Org, bert: Caller) -> None:
    key = {"name": "x", "prefix": "alm_x", "key_hash": digest("x")}
    for who, code in (
        ({}, "422 key_of_nobody"),
        ({"member": "nobody"}, "404 unknown_member"),
        ({"agent": "nobody"}, "404 unknown_agent"),
    ):
        with pytest.raises(Refused, match=code):
            org.system("create_key", {**key, **who})


def test_nobody_makes_a_key_for_another_person(server: Server, org: Org, bert: Caller) -> None:
    """P3: it would open that person's private items to whoever made it."""
    key = {"name": "x", "prefix": "alm_x", "key_hash": digest("x")}
    for caller in (org.owner, org.member("admin")):
        for who in ({"member": "bert@acme"}, {"member": "bert@acme", "agent": "scribe"}):
            with pytest.raises(Refused, match="403 forbidden"):
                server.call("create_key", caller, {**key, **who})
    made = server.call("create_key", org.owner, {**key, "member": "owner@acme"})
    assert (made["user"], made["role"]) == (org.owner["user"], "owner")


def test_a_keys_role_follows_its_person(server: Server, org: Org, bert: Caller) -> None:
    org.system(
        "create_key", {"name": "b", "prefix": "b", "key_hash": digest("both"), "member": "bert@acme", "agent": "scribe"}
    )
    org.system("set_member_role", {"member": "bert@acme", "role": "admin"})
    assert _authenticated(server, "bert")["role"] == "admin"
    assert _authenticated(server, "both")["role"] == "agent"
    assert {key["name"]: key["role"] for key in org.system("list_keys", {})["keys"]} == {
        "Bert's": "admin",
        "b": "agent",
    }


def test_keys_are_listed_without_their_hashes(server: Server, org: Org, bert: Caller) -> None:
    answer = org.system("list_keys", {})
    assert digest("bert") not in str(answer)
    [key] = answer["keys"]
    assert (key["name"], key["prefix"], key["user"], key["agent"]) == ("Bert's", "alm_bert", "bert@acme", None)
    assert key["last_used_at"] is None
    _authenticated(server, "bert")
    assert org.system("list_keys", {})["keys"][0]["last_used_at"] is not None


def test_a_busy_key_is_no_hot_row(server: Server, org: Org, bert: Caller) -> None:
    """Its use is noted once a minute, and nobody waits for that."""
    _authenticated(server, "bert")
    first = server.value("select xmin::text from almagest.api_keys")
    _authenticated(server, "bert")
    assert server.value("select xmin::text from almagest.api_keys") == first
    server.rows("update almagest.api_keys set last_used_at = now() - interval '2 minutes'")
    with server.another() as other:
        other.owner.execute("begin")
        other.owner.execute("select from almagest.api_keys for no key update")
        server.api.execute("set lock_timeout = '200ms'")
        assert _authenticated(server, "bert")["user"] == bert["user"]
        other.owner.execute("rollback")


def test_a_user_is_authenticated_by_membership(server: Server, org: Org) -> None:
    """P4: of the org that they name, if they belong to it, else of the one they joined first."""
    user = str(uuid4())
    for slug in ("alpha", "beta"):
        Org(server, slug).system("add_member", {"user_id": user, "email": f"u@{slug}", "role": "project_manager"})

    def caller(wanted: str | None) -> Any:
        return server.call("authenticate", None, {"user_id": user, "org": wanted})

    alpha = server.value("select id::text from almagest.orgs where slug = 'alpha'")
    beta = server.value("select id::text from almagest.orgs where slug = 'beta'")
    assert caller(None)["org"] == caller("alpha")["org"] == caller(alpha)["org"] == alpha
    told = {"org": beta, "user": user, "role": "project_manager", "used_today": 0, "sources": 0}
    assert caller("beta") == told
    assert caller(beta)["org"] == beta
    with pytest.raises(Refused, match="401 unauthorized"):
        caller("acme")


# Limits


def test_a_keys_limits_are_its_own(server: Server, org: Org, bert: Caller) -> None:
    key = {"name": "x", "prefix": "alm_x", "key_hash": digest("x"), "agent": "scribe"}
    made = org.system("create_key", {**key, "rate": 2.5, "daily_quota": 1000})
    assert (made["rate"], made["daily_quota"]) == (2.5, 1000)

    def told() -> tuple[Any, Any]:
        caller = _authenticated(server, "x")
        [listed] = [each for each in org.system("list_keys", {})["keys"] if each["prefix"] == "alm_x"]
        assert (listed["rate"], listed["daily_quota"]) == (caller["rate"], caller["daily_quota"])
        return caller["rate"], caller["daily_quota"]

    assert told() == (2.5, 1000)
    for change, expected in (
        ({"rate": 5}, (5, 1000)),  # what is left out stays
        ({"daily_quota": 7}, (5, 7)),
        ({"rate": None}, (None, 7)),
        ({"daily_quota": None, "rate": 0.01}, (0.01, None)),
        ({}, (0.01, None)),
    ):
        changed = org.system("limit_key", {"id": made["id"], **change})
        assert (changed["rate"], changed["daily_quota"]) == told() == expected


@pytest.mark.parametrize(
    "limits",
    [{"rate": 0}, {"rate": -1}, {"rate": 10_001}, {"rate": "NaN"}, {"rate": "Infinity"}, {"daily_quota": 0},
     {"daily_quota": -1}, {"daily_quota": 2**31}],
)  # fmt: skip
def test_wrong_limits_are_refused(server: Server, org: Org, bert: Caller, limits: dict[str, Any]) -> None:
    before = everything(server)
    key = {"name": "x", "prefix": "alm_x", "key_hash": digest("x"), "agent": "scribe"}
    for name, request in (("create_key", key), ("limit_key", {"id": "alm_bert"})):
        with pytest.raises(Refused, match="422 invalid_limits"):
            org.system(name, {**request, **limits})
    assert everything(server) == before


def test_limits_of_what_is_no_key(server: Server, org: Org, bert: Caller) -> None:
    for unknown in ("alm_nothing", str(uuid4()), None):
        for name in ("limit_key", "rotate_key"):
            with pytest.raises(Refused, match="404 unknown_key"):
                org.system(name, {"id": unknown, "rate": 1, "overlap_seconds": 1})


# Rotation


def _rotate(org: Org, key: str, **fields: Any) -> Any:
    secret = str(uuid4())
    hashed = {"prefix": secret[:12], "key_hash": digest(secret)}
    made = org.system("rotate_key", {"id": key, "overlap_seconds": 3600, **hashed, **fields})
    return {**made, "secret": secret}


def test_a_rotated_key_is_the_same_caller_and_both_hold(server: Server, org: Org, bert: Caller) -> None:
    org.system("limit_key", {"id": "alm_bert", "rate": 3, "daily_quota": 50})
    old = _authenticated(server, "bert")
    made = _rotate(org, "alm_bert")
    new = _authenticated(server, made["secret"])
    assert new["key"] == made["id"] != old["key"]
    assert {**new, "key": old["key"]} == old
    assert (made["name"], made["rate"], made["daily_quota"]) == ("Bert's", 3, 50)
    assert made["replaces"]["id"] == old["key"]
    assert _authenticated(server, "bert")["expires_at"] == made["replaces"]["expires_at"]
    left = "select extract(epoch from expires_at - now()) from almagest.api_keys where id = %s"
    assert 3590 < server.value(left, old["key"]) <= 3600
    listed = {key["id"]: key["replaced_by"] for key in org.system("list_keys", {})["keys"]}
    assert listed == {old["key"]: made["id"], made["id"]: None}

    server.rows("update almagest.api_keys set expires_at = now() where id = %s", old["key"])
    with pytest.raises(Refused, match="401 unauthorized"):
        _authenticated(server, "bert")
    assert _authenticated(server, made["secret"])["expires_at"] is None


def test_a_rotation_without_overlap_ends_the_old_key_at_once(server: Server, org: Org, bert: Caller) -> None:
    made = _rotate(org, "alm_bert", overlap_seconds=0)
    with pytest.raises(Refused, match="401 unauthorized"):
        _authenticated(server, "bert")
    assert _authenticated(server, made["secret"])["user"] == bert["user"]


def test_a_new_key_lives_as_long_as_the_old_one_was_made_to(server: Server, org: Org, bert: Caller) -> None:
    server.rows(
        "update almagest.api_keys set created_at = now() - interval '80 days', expires_at = now() + interval '10 days'"
    )
    made = _rotate(org, "alm_bert", overlap_seconds=30 * 86_400)
    lives = server.value("select round(extract(epoch from %s::timestamptz - now()) / 86400)", made["expires_at"])
    assert lives == 90
    # An overlap lengthens no key's life.
    left = server.value(
        "select round(extract(epoch from %s::timestamptz - now()) / 86400)", made["replaces"]["expires_at"]
    )
    assert left == 10
    again = _rotate(org, made["id"], expires_at="2999-01-01T00:00:00+00:00")
    assert again["expires_at"].startswith("2999-01-01")


def test_a_rotation_starts_no_new_quota(server: Server, org: Org, bert: Caller) -> None:
    org.system("limit_key", {"id": "alm_bert", "daily_quota": 50})
    _reported(server, "bert", str(uuid4()), 30)
    first = _rotate(org, "alm_bert")
    second = _rotate(org, first["id"])
    assert _authenticated(server, second["secret"])["used_today"] == 30
    assert _reported(server, second["secret"], str(uuid4()), 5) == 35
    assert {key["used_today"] for key in org.system("list_keys", {})["keys"]} == {35}


@pytest.mark.parametrize("overlap", [None, -1, 30 * 86_400 + 1, "NaN"])
def test_wrong_overlaps_are_refused(server: Server, org: Org, bert: Caller, overlap: Any) -> None:
    with pytest.raises(Refused, match="422 invalid_overlap"):
        _rotate(org, "alm_bert", overlap_seconds=overlap)
    with pytest.raises(Refused, match="422 expired"):
        _rotate(org, "alm_bert", expires_at="2020-01-01T00:00:00Z")
    assert server.value("select count(*) from almagest.api_keys") == 1


def test_only_a_key_that_holds_is_rotated_and_once(server: Server, org: Org, bert: Caller) -> None:
    made = _rotate(org, "alm_bert")
    with pytest.raises(Refused, match="409 key_replaced"):
        _rotate(org, "alm_bert")
    org.system("revoke_key", {"id": made["id"]})
    with pytest.raises(Refused, match="409 key_ended"):
        _rotate(org, made["id"])
    server.rows("update almagest.api_keys set revoked_at = null, expires_at = now() where id = %s", made["id"])
    with pytest.raises(Refused, match="409 key_ended"):
        _rotate(org, made["id"])


def test_of_two_rotations_at_once_one_is_made(server: Server, org: Org, bert: Caller) -> None:
    def rotate(secret: str) -> Callable[[Server], Any]:
        request = {"org": "acme", "id": "alm_bert", "overlap_seconds": 9, "prefix": secret, "key_hash": digest(secret)}
        return lambda other: other.call("rotate_key", None, request)

    answers = at_once(server, rotate("one"), rotate("two"))
    assert [answer.code for answer in answers if isinstance(answer, Refused)] == ["key_replaced"]
    assert server.value("select count(*) from almagest.api_keys") == 2


def test_nobody_rotates_the_key_of_another_person(server: Server, org: Org, bert: Caller, scribes_key: None) -> None:
    """P3: the new one would open that person's private items to whoever rotated it."""
    both = {"name": "b", "prefix": "alm_both", "key_hash": digest("b"), "member": "bert@acme", "agent": "scribe"}
    org.system("create_key", both)
    own = {"name": "o", "prefix": "alm_owner", "key_hash": digest("o"), "member": "owner@acme"}
    server.call("create_key", org.owner, own)
    fields = {"prefix": "alm_new", "key_hash": digest("new"), "overlap_seconds": 60}
    before = everything(server)
    for caller in (org.member("admin"), org.owner):
        for key in ("alm_bert", "alm_both"):
            with pytest.raises(Refused, match="403 forbidden"):
                server.call("rotate_key", caller, {**fields, "id": key})
    assert everything(server)[-1] == before[-1]
    assert server.call("rotate_key", org.owner, {**fields, "id": "alm_owner"})["user"] == org.owner["user"]
    for number, key in enumerate(("alm_scribe", "alm_bert")):
        system = {**fields, "id": key, "prefix": f"alm_{number}", "key_hash": digest(f"{number}")}
        assert org.system("rotate_key", system)["replaces"]


# Usage


def _reported(server: Server, secret: str, source: str, requests: int, days: int = 0) -> int:
    """What all have used, as a container is told that has let through so many requests on a day so far from today."""
    day = server.value("select ((now() at time zone 'utc')::date + %s)::text", days)
    usage = {"source": source, "day": day, "requests": requests}
    answer = server.call("authenticate", None, {"key_hash": digest(secret), "usage": usage})
    return int(answer["used_today"])


def test_containers_share_what_a_key_has_used(server: Server, org: Org, bert: Caller, scribes_key: None) -> None:
    one, two = str(uuid4()), str(uuid4())
    assert _reported(server, "bert", one, 1) == 1
    assert _reported(server, "bert", two, 10) == 11
    assert _reported(server, "bert", one, 5) == 15
    assert _reported(server, "scribe", str(uuid4()), 3) == 3
    listed = {key["prefix"]: key["used_today"] for key in org.system("list_keys", {})["keys"]}
    assert listed == {"alm_bert": 15, "alm_scribe": 3}


def test_a_report_that_comes_twice_or_late_changes_nothing(server: Server, org: Org, bert: Caller) -> None:
    source = str(uuid4())
    for requests, expected in ((4, 4), (4, 4), (9, 9), (4, 9), (0, 9)):
        assert _reported(server, "bert", source, requests) == expected


def test_a_day_starts_at_nothing(server: Server, org: Org, bert: Caller) -> None:
    source = str(uuid4())
    assert [_reported(server, "bert", source, 7, days) for days in (-1, 0, 1)] == [7, 7, 7]
    assert org.system("list_keys", {})["keys"][0]["used_today"] == 7
    # A clock that is wrong is told of today, and its count is not kept.
    for days in (-2, 2, 400):
        assert _reported(server, "bert", str(uuid4()), 99, days) == 7
    assert server.value("select count(*) from almagest.usage") == 3


def test_people_with_tokens_count_by_org(server: Server, org: Org, bert: Caller) -> None:
    other = Org(server, "other")
    other.system("add_member", {"user_id": bert["user"], "email": "bert@acme"})
    day = server.value("select ((now() at time zone 'utc')::date)::text")
    for slug, requests in (("acme", 4), ("other", 6)):
        usage = {"source": str(uuid4()), "day": day, "requests": requests}
        answer = server.call("authenticate", None, {"user_id": bert["user"], "org": slug, "usage": usage})
        assert answer["used_today"] == requests
    for each, requests in ((org, 4), (other, 6)):
        used = {member["user_id"]: member["used_today"] for member in each.system("list_members", {})["members"]}
        assert used[bert["user"]] == requests


def test_containers_that_count_do_not_wait_for_each_other(server: Server, org: Org, bert: Caller) -> None:
    """No hot row: one that reports inside a transaction that goes on holds up nobody."""
    source = str(uuid4())
    _reported(server, "bert", source, 1)
    with server.another() as other:
        other.owner.execute("begin")
        other.owner.execute(b"update almagest.usage set requests = requests + 1 where source = %s", (source,))
        server.api.execute("set statement_timeout = '2s'")
        assert _reported(server, "bert", str(uuid4()), 5) == 6
        other.owner.execute("rollback")


def test_old_counts_end(server: Server, org: Org, bert: Caller) -> None:
    server.rows(
        "insert into almagest.usage (org_id, day, principal, source, requests)"
        " select %s, current_date - n, gen_random_uuid(), gen_random_uuid(), 1 from generate_series(28, 40) as n",
        org.id,
    )
    _reported(server, "bert", str(uuid4()), 1)
    assert server.value("select current_date - min(day) from almagest.usage") == 30


def test_a_refused_credential_counts_nowhere(server: Server, org: Org, bert: Caller) -> None:
    org.system("revoke_key", {"id": "alm_bert"})
    with pytest.raises(Refused, match="401 unauthorized"):
        _reported(server, "bert", str(uuid4()), 1)
    assert server.value("select count(*) from almagest.usage") == 0
