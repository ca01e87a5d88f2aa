"""The Hub: one open entry a key and scope, told to those whom it is for, and marked by each for themselves."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from almagest.operations import retention
from infra.local.postgres import Postgres
from tests.database.support import Caller, Org, Refused, Server, attempt, serve
from tests.database.world import Who, World, build
from tests.support import Database, clone

NOWHERE = "The cursor is none that you were given, or has expired."


def tell(
    server: Server,
    key: str = "health.staleness",
    *,
    org: str | None = None,
    person: str | None = None,
    severity: str = "warning",
    **said: Any,
) -> str:
    """Open an entry, or tell its people anew, and return its id."""
    values = {"source": "health", "title": "T", "found": "F", "tried": [], "to_do": "D", "figures": {}} | said
    return str(
        server.value(
            "select engine.open_hub_entry(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)::text",
            *(org, person, values["source"], key, severity, values["title"], values["found"]),
            *(Jsonb(values["tried"]), values["to_do"], Jsonb(values["figures"])),
        )
    )


def close(server: Server, key: str = "health.staleness", org: str | None = None, person: str | None = None) -> bool:
    return bool(server.value("select engine.close_hub_entry(%s, %s, %s)", org, person, key))


def entries(server: Server, caller: Caller, **request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.call("list_hub", caller, request)["entries"]
    return found


def listed(server: Server, caller: Caller, **request: Any) -> list[str]:
    return [entry["id"] for entry in entries(server, caller, **request)]


def mark(server: Server, caller: Caller, entry: str, mark: str, **request: Any) -> Any:
    return server.call("mark_hub", caller, {"id": entry, "mark": mark, **request})


# Opening and closing


def test_an_entry_says_all_that_was_said(server: Server, org: Org) -> None:
    said = {
        "title": "Items wait",
        "found": "Three items wait.",
        "tried": [{"action": "index", "state": "unchanged"}],
        "to_do": "Look at the index function.",
        "figures": {"waiting": 3},
    }
    entry = tell(server, severity="critical", **said)
    [found] = entries(server, org.owner)
    assert found.pop("opened_at") == found.pop("updated_at")
    assert found == said | {
        "id": entry,
        "source": "health",
        "key": "health.staleness",
        "severity": "critical",
        "tries": 1,
        "closed_at": None,
        "read_at": None,
        "dismissed_at": None,
    }


def test_a_key_has_one_open_entry_a_scope(server: Server, org: Org) -> None:
    other = Org(server, "other")
    person = str(org.owner["user"])
    scopes: list[dict[str, Any]] = [{}, {"org": org.id}, {"org": other.id}, {"org": org.id, "person": person}]
    first = [tell(server, **scope) for scope in scopes]
    assert len(set(first)) == 4
    assert [tell(server, found="more", **scope) for scope in scopes] == first
    told = server.rows("select distinct found, tries, updated_at > opened_at from almagest.hub_feed")
    assert told == [("more", 2, True)]


def test_what_is_told_anew_keeps_when_it_began(server: Server, org: Org) -> None:
    tell(server, figures={"waiting": 3}, tried=[{"action": "index"}])
    [before] = entries(server, org.owner)
    tell(server, severity="critical", figures={"waiting": 9}, tried=[], to_do="Call somebody.")
    [after] = entries(server, org.owner)
    assert (after["id"], after["opened_at"], after["tries"]) == (before["id"], before["opened_at"], 2)
    assert (after["severity"], after["figures"], after["tried"]) == ("critical", {"waiting": 9}, [])
    assert after["to_do"] == "Call somebody."


def test_closing_ends_an_entry_and_the_next_one_is_new(server: Server, org: Org) -> None:
    first = tell(server)
    tell(server, org=org.id)
    mark(server, org.owner, first, "read")
    assert close(server) is True
    assert close(server) is False
    assert close(server, "health.nothing") is False
    assert len(entries(server, org.owner)) == 1
    [closed] = entries(server, org.owner, state="closed")
    assert closed["id"] == first
    assert closed["closed_at"]
    second = tell(server)
    assert second != first
    assert {entry["id"]: entry["read_at"] is None for entry in entries(server, org.owner, state="all")} == {
        first: False,
        second: True,
    } | {entry: True for entry in listed(server, org.owner) if entry != second}


def test_what_was_closed_90_days_ago_ends_with_its_marks(
    server: Server, org: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    for days in (89, 91, 91, 400, 400, 400):
        entry = tell(server, key=f"health.k{days}", org=org.id)
        server.rows("insert into almagest.hub_marks (entry_id, user_id) values (%s, gen_random_uuid())", entry)
        close(server, f"health.k{days}", org.id)
        closed = "update almagest.hub_feed set closed_at = now() - make_interval(days => %s) where id = %s"
        server.rows(closed, days, entry)
    opened = tell(server, key="health.open", org=org.id)
    server.rows("update almagest.hub_feed set opened_at = now() - interval '900 days' where id = %s", opened)
    server.rows("update almagest.hub_feed set updated_at = opened_at where id = %s", opened)
    assert retention.end_old_work(server.owner, datetime.now(UTC))["hub_entries"] == 5
    assert server.rows(
        "select f.key, count(m.*) from almagest.hub_feed as f left join almagest.hub_marks as m on m.entry_id = f.id"
        " where f.org_id = %s group by f.key order by f.key",
        org.id,
    ) == [("health.k89", 1), ("health.open", 0)]
    assert retention.end_old_work(server.owner, datetime.now(UTC))["hub_entries"] == 0


def test_two_at_once_open_one_entry(server: Server, org: Org) -> None:
    with server.another() as other, server.database.connect(autocommit=False) as first:
        opening = "select engine.open_hub_entry(null, null, 's', 'k', 'info', 't', 'f', '[]', 'd', '{}')::text"
        [one] = first.execute(opening).fetchone() or [None]
        other.owner.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.owner.execute(opening)
        first.commit()
        assert other.value(opening) == one
    assert server.rows("select tries from almagest.hub_feed") == [2]


@pytest.mark.parametrize("severity", ["", "fatal", None])
def test_an_unknown_severity_is_refused(server: Server, severity: Any) -> None:
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation)):
        tell(server, severity=severity)


def test_a_person_without_an_org_is_refused(server: Server) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        tell(server, person=str(uuid4()))


# Lists


def test_the_worst_come_first_and_of_them_the_newest(server: Server, org: Org) -> None:
    told = [(key, severity) for severity in ("info", "critical", "warning") for key in ("a", "b")]
    by_key = {f"{severity}.{key}": tell(server, f"{severity}.{key}", severity=severity) for key, severity in told}
    order = ["critical.b", "critical.a", "warning.b", "warning.a", "info.b", "info.a"]
    assert listed(server, org.owner) == [by_key[key] for key in order]
    # Told again is not newer: a list that is read page by page keeps its order.
    tell(server, "critical.a", severity="critical")
    assert listed(server, org.owner) == [by_key[key] for key in order]
    assert listed(server, org.owner, severity="warning") == [by_key["warning.b"], by_key["warning.a"]]


def test_pages_hold_each_entry_once(server: Server, org: Org) -> None:
    every = [tell(server, f"k{n}", severity=("info", "warning", "critical")[n % 3]) for n in range(25)]
    whole = listed(server, org.owner)
    assert sorted(whole) == sorted(every)
    seen: list[str] = []
    cursor, pages = None, 0
    while cursor or not pages:
        page = server.call("list_hub", org.owner, {"limit": 10, "cursor": cursor})
        assert len(page["entries"]) == (10, 10, 5)[pages]
        seen += [entry["id"] for entry in page["entries"]]
        cursor, pages = page["next_cursor"], pages + 1
    assert (seen, pages) == (whole, 3)


def test_what_changes_while_one_reads_moves_nothing_else(server: Server, org: Org) -> None:
    for number in range(9):
        tell(server, f"k{number}")
    whole = listed(server, org.owner)
    first = server.call("list_hub", org.owner, {"limit": 3})
    tell(server, "k6", severity="critical")  # the last of the page becomes the worst of all
    close(server, "k7")
    tell(server, "later")
    rest = server.call("list_hub", org.owner, {"cursor": first["next_cursor"]})
    assert [entry["id"] for entry in rest["entries"]] == whole[3:]


def test_a_cursor_of_nothing_is_refused(server: Server, org: Org) -> None:
    other = Org(server, "other")
    tell(server, "a", org=other.id)
    tell(server, "b", org=other.id)
    foreign = server.call("list_hub", other.owner, {"limit": 1})["next_cursor"]
    assert len(foreign) == 27
    for cursor in (foreign, "", "x", "A" * 27, "12", "ä" * 27):
        refused = attempt(server, "list_hub", org.owner, {"cursor": cursor})
        assert isinstance(refused, Refused)
        assert (refused.status, refused.code, refused.message) == (422, "invalid_cursor", NOWHERE)


# Marks


def test_marks_are_each_users_own_and_taken_back(server: Server, org: Org) -> None:
    entry = tell(server, org=org.id)
    member = org.member()
    read = mark(server, member, entry, "read")
    assert read["read_at"]
    assert read["dismissed_at"] is None
    assert mark(server, member, entry, "read") == read
    assert mark(server, member, entry, "dismissed")["read_at"] == read["read_at"]
    assert listed(server, member) == []
    assert listed(server, member, include_dismissed=True) == [entry]
    [seen] = entries(server, org.owner)
    assert (seen["read_at"], seen["dismissed_at"]) == (None, None)

    back = mark(server, member, entry, "dismissed", taken_back=True)
    assert (back["dismissed_at"], back["read_at"]) == (None, read["read_at"])
    assert listed(server, member) == [entry]
    assert mark(server, member, entry, "read", taken_back=True)["read_at"] is None
    # Taking back what was never there is no error.
    assert mark(server, org.owner, entry, "dismissed", taken_back=True)["dismissed_at"] is None


@pytest.mark.parametrize(
    ("before", "after", "back"),
    [
        ("info", "warning", True),
        ("warning", "critical", True),
        ("warning", "warning", False),
        ("critical", "warning", False),
        ("critical", "info", False),
    ],
)
def test_a_dismissed_entry_comes_back_when_its_severity_rises(
    server: Server, org: Org, before: str, after: str, back: bool
) -> None:
    entry = tell(server, severity=before)
    mark(server, org.owner, entry, "read")
    mark(server, org.owner, entry, "dismissed")
    assert tell(server, severity=after) == entry
    assert listed(server, org.owner) == ([entry] if back else [])
    [seen] = entries(server, org.owner, include_dismissed=True)
    assert (seen["read_at"] is None) is back


def test_a_caller_without_a_user_reads_and_cannot_mark(server: Server, org: Org) -> None:
    entry = tell(server, org=org.id)
    agent = org.agent("scribe")
    [seen] = entries(server, agent)
    assert (seen["id"], seen["read_at"]) == (entry, None)
    for asked in (entry, str(uuid4())):
        for kind in ("read", "dismissed"):
            refused = attempt(server, "mark_hub", agent, {"id": asked, "mark": kind})
            assert isinstance(refused, Refused)
            assert (refused.status, refused.code) == (403, "no_user")
    assert server.value("select count(*) from almagest.hub_marks") == 0


# Privacy


def may_be_told(who: Who, org: str | None, person: str | None) -> bool:
    """The rules, written independently of the SQL."""
    if org is None:
        return who.manages
    return who.org == org and person in (None, who.user)


@pytest.fixture(scope="module")
def world(cluster: Postgres, template_database: Database) -> Iterator[World]:
    """Every kind of caller."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        yield build(server)


@pytest.fixture(scope="module")
def told(world: World) -> dict[str, tuple[str | None, str | None]]:
    """Entries of every scope: id -> org and person."""
    scopes: set[tuple[str | None, str | None]] = {(None, None)}
    for who in world.callers:
        scopes |= {(who.org, None), (who.org, who.user)}
    # A person who belongs to the one org has nothing to read in another.
    scopes.add((world["owner of another org"].org, world["owner"].user))
    return {tell(world.server, org=org, person=person): (org, person) for org, person in scopes}


def test_everybody_is_told_what_is_for_them(world: World, told: dict[str, tuple[str | None, str | None]]) -> None:
    for who in world.callers:
        expected = {entry for entry, scope in told.items() if may_be_told(who, *scope)}
        for request in ({}, {"state": "all", "include_dismissed": True}, {"severity": "warning"}):
            assert set(listed(world.server, who.caller, **request)) == expected, who.name
    assert any(may_be_told(who, None, None) for who in world.callers)
    assert {who.role for who in world.callers if may_be_told(who, None, None)} == {"owner", "admin"}


def test_what_is_hidden_looks_like_what_is_not_there(
    world: World, told: dict[str, tuple[str | None, str | None]]
) -> None:
    """P3"""
    server = world.server

    def refusal(who: Who, entry: str) -> Any:
        refused = attempt(server, "mark_hub", who.caller, {"id": entry, "mark": "read"})
        assert isinstance(refused, Refused), (who.name, told.get(entry))
        return refused.status, refused.code, refused.message, refused.members

    for who in world.callers:
        nothing = refusal(who, str(uuid4()))
        assert nothing[:2] == ((404, "not_found") if who.user else (403, "no_user"))
        for entry, scope in told.items():
            if not may_be_told(who, *scope):
                assert refusal(who, entry) == nothing, (who.name, scope)
    assert server.value("select count(*) from almagest.hub_marks") == 0


def test_row_security_hides_the_same_by_itself(world: World, told: dict[str, tuple[str | None, str | None]]) -> None:
    """The second layer, with the first one out of the way, and marks of everybody on everything."""
    with world.server.database.connect("supabase_admin", autocommit=False) as connection:
        people = {who.user for who in world.callers if who.user}
        for entry in told:
            for person in people:
                connection.execute(
                    "insert into almagest.hub_marks (entry_id, user_id, read_at) values (%s, %s, now())",
                    (entry, person),
                )
        for who in world.callers:
            connection.execute("select engine.enter(%s)", (Jsonb(who.caller),))
            connection.execute("set local role almagest_reader")
            seen = {row[0] for row in connection.execute("select id::text from almagest.hub_feed")}
            expected = {entry for entry, scope in told.items() if may_be_told(who, *scope)}
            assert seen == expected, who.name
            marks = set(connection.execute("select entry_id::text, user_id::text from almagest.hub_marks"))
            assert marks == ({(entry, who.user) for entry in expected} if who.user else set()), who.name
            connection.execute("reset role")
        connection.execute("select set_config('almagest.caller', '', true)")
        connection.execute("set local role almagest_reader")
        assert connection.execute("select count(*) from almagest.hub_feed").fetchone() == (0,)
        connection.rollback()


def test_the_engine_hides_the_same_by_itself(world: World, told: dict[str, tuple[str | None, str | None]]) -> None:
    """The first layer, with the second one out of the way."""
    with world.server.database.connect("supabase_admin", autocommit=False) as connection:
        connection.execute("alter role almagest_reader bypassrls")
        for who in world.callers:
            page = connection.execute(
                "select engine.read_hub(engine.enter(%s), null, 'all', null, true, null, null, 100)",
                (Jsonb(who.caller),),
            ).fetchone()
            assert page is not None
            expected = {entry for entry, scope in told.items() if may_be_told(who, *scope)}
            assert {entry["id"] for entry in page[0]} == expected, who.name
        connection.rollback()


@pytest.mark.parametrize("name", ["list_hub", "mark_hub"])
def test_nobody_gets_in(world: World, name: str) -> None:
    """P1"""
    org, user = world["owner"].org, world["owner"].user
    for stranger in (None, {}, {"org": org}, {"org": str(uuid4()), "user": user}, {"org": org, "user": str(uuid4())}):
        refused = attempt(world.server, name, stranger, {"id": str(uuid4()), "mark": "read"})
        assert isinstance(refused, Refused)
        assert (refused.status, refused.code) == (403, "caller_unknown")


def test_one_who_left_is_told_nothing_more(server: Server, org: Org) -> None:
    member = org.member("admin")
    person = str(member["user"])
    tell(server, org=org.id, person=person)
    assert len(listed(server, member)) == 1
    org.system("remove_member", {"member": person})
    refused = attempt(server, "list_hub", member)
    assert isinstance(refused, Refused)
    assert refused.code == "caller_unknown"
    # and a member who manages no more is told nothing of the installation
    tell(server)
    demoted = org.member("admin")
    assert len(listed(server, demoted)) == 1
    org.system("set_member_role", {"member": str(demoted["user"]), "role": "member"})
    assert listed(server, demoted) == []
