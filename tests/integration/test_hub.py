"""The Hub over HTTP: who is told what, what each marks for themselves, and what is refused."""

from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from almagest.models.identity import KeyCreate
from almagest.operations import identity
from tests.integration.conftest import Team

HUB = "/v1/search/hub"


def tell(
    team: Team, key: str, severity: str = "warning", *, person: str | None = None, everywhere: bool = False
) -> str:
    """Open an entry for the team, for one of it, or for the installation."""
    [entry] = team.rows(
        """
        select engine.open_hub_entry(
            case when not %s then o.id end, m.user_id, 'test', %s, %s, 'T', 'F', '[]', 'D', '{}'
        )::text
        from almagest.orgs as o
        left join almagest.members as m on m.org_id = o.id and m.email = %s
        where o.slug = %s
        """,
        *(everywhere, f"{team.slug}.{key}", severity, f"{person}@{team.slug}.example", team.slug),
    )
    return str(entry)


def told(team: Team, who: str, **query: str) -> set[str]:
    reply = team.ask(who, "GET", HUB, query=query or None)
    assert reply.status == 200, reply.text
    return {entry["id"] for entry in reply.body["entries"]}


def test_each_is_told_what_is_for_them(team: Team) -> None:
    of_all, of_ann = tell(team, "org"), tell(team, "ann", person="ann")
    installed = tell(team, "installation", everywhere=True)
    mine = {of_all, of_ann, installed}
    assert told(team, "ann") & mine == {of_all, of_ann}
    assert told(team, "bob") & mine == {of_all}
    assert told(team, "olga") & mine == {of_all, installed}
    assert team.ask("nobody", "GET", HUB).status == 401


def test_an_entry_has_all_its_fields(team: Team) -> None:
    entry = tell(team, "one", person="ann")
    [found] = [each for each in team.ask("ann", "GET", HUB).body["entries"] if each["id"] == entry]
    assert found.pop("opened_at") == found.pop("updated_at")
    assert found == {
        "id": entry,
        "source": "test",
        "key": f"{team.slug}.one",
        "severity": "warning",
        "title": "T",
        "found": "F",
        "tried": [],
        "to_do": "D",
        "figures": {},
        "tries": 1,
        "closed_at": None,
        "read_at": None,
        "dismissed_at": None,
    }


def test_marks_come_and_go(team: Team) -> None:
    entry = tell(team, "one")
    for path, field in (("read", "read_at"), ("dismiss", "dismissed_at")):
        marked = team.ask("ann", "POST", f"{HUB}/{entry}/{path}")
        assert marked.status == 200, marked.text
        assert marked.body[field]
        assert team.ask("ann", "POST", f"{HUB}/{entry}/{path}", {}).body[field] == marked.body[field]
        assert team.ask("bob", "GET", HUB).body["entries"][0][field] is None
        if path == "dismiss":
            assert entry not in told(team, "ann")
            assert entry in told(team, "ann", include_dismissed="true")
        assert team.ask("ann", "DELETE", f"{HUB}/{entry}/{path}").body[field] is None
    assert entry in told(team, "ann")


def test_filters(team: Team) -> None:
    entries = {severity: tell(team, severity, severity, person="ann") for severity in ("info", "warning", "critical")}
    closed = tell(team, "closed", person="ann")
    team.rows("select engine.close_hub_entry(org_id, user_id, key) from almagest.hub_feed where id = %s", closed)
    assert told(team, "ann") == set(entries.values())
    assert told(team, "ann", state="closed") == {closed}
    assert told(team, "ann", state="all") == {*entries.values(), closed}
    for severity, entry in entries.items():
        assert told(team, "ann", severity=severity) == {entry}


def test_pages(team: Team) -> None:
    entries = [tell(team, f"k{number}", person="ann") for number in range(5)]
    seen, query = [], {"limit": "2"}
    while True:
        page = team.ask("ann", "GET", HUB, query=query).body
        seen += [entry["id"] for entry in page["entries"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == entries[::-1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"state": "shut"}, "state"),
        ({"severity": "fatal"}, "severity"),
        ({"include_dismissed": "perhaps"}, "include_dismissed"),
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "x" * 101}, "cursor"),
    ],
)
def test_a_bad_filter_is_named(team: Team, query: dict[str, str], field: str) -> None:
    reply = team.ask("ann", "GET", HUB, query=query)
    assert (reply.status, reply.body["code"]) == (422, "invalid")
    assert [error["field"] for error in reply.body["errors"]] == [field]


@pytest.mark.parametrize("cursor", ["x", "A" * 27, quote("ä"), "0"])
def test_a_cursor_of_nothing_is_refused(team: Team, cursor: str) -> None:
    reply = team.ask("ann", "GET", HUB, query={"cursor": cursor})
    assert (reply.status, reply.body["code"]) == (422, "invalid_cursor")


@pytest.mark.parametrize("body", [{"read": True}, []])
def test_a_mark_takes_no_body(team: Team, body: Any) -> None:
    entry = tell(team, "one")
    assert team.ask("ann", "POST", f"{HUB}/{entry}/read", body).status == 422


def test_an_agents_key_reads_and_cannot_mark(team: Team) -> None:
    from almagest.models.identity import AgentCreate

    identity.create_agent(team.runtime, None, AgentCreate(org=team.slug, slug="scribe", name="Scribe"))
    team.keys["scribe"] = team.key(KeyCreate(org=team.slug, name="scribe", agent="scribe"))
    entry = tell(team, "one")
    assert entry in told(team, "scribe")
    for method in ("POST", "DELETE"):
        for path in ("read", "dismiss"):
            for asked in (entry, str(uuid4())):
                reply = team.ask("scribe", method, f"{HUB}/{asked}/{path}")
                assert (reply.status, reply.body["code"]) == (403, "no_user")
                assert "without a user" in reply.body["detail"]


def test_other_methods_are_refused(team: Team) -> None:
    assert team.ask("ann", "POST", HUB, {}).status == 405
    assert team.ask("ann", "GET", f"{HUB}/{uuid4()}/read").status == 405
    assert team.ask("ann", "GET", f"{HUB}/{uuid4()}").status == 404
