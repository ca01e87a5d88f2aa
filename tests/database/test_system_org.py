"""The health checks' own org: made once, shown to nobody, and its slug taken by nobody."""

import io
import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from almagest.database.exporter import export
from almagest.database.importer import import_
from almagest.database.retention import Retention
from almagest.problems import Problem
from tests.database.concurrency import at_once
from tests.database.support import Org, Refused, Server, ids, one_hot, search, write_one

SLUG = "almagest-health"


@pytest.fixture
def system(server: Server) -> dict[str, Any]:
    """Who acts in it."""
    caller: dict[str, Any] = server.value("select engine.system_caller()")
    return caller


def test_it_is_made_once(server: Server, system: dict[str, Any]) -> None:
    assert server.value("select engine.system_caller()") == system
    assert server.rows("select slug, is_system from almagest.orgs") == [(SLUG, True)]
    with pytest.raises(psycopg.errors.UniqueViolation):
        server.rows("insert into almagest.orgs (slug, name, is_system) values ('another', 'x', true)")


def test_two_who_need_it_first_make_one(server: Server) -> None:
    made = at_once(server, *[lambda other: other.value("select engine.system_caller()")] * 4)
    assert made == [made[0]] * 4
    assert server.value("select count(*) from almagest.agents") == 1


def test_an_org_that_had_the_slug_before_keeps_it(server: Server) -> None:
    server.rows("insert into almagest.orgs (slug, name) values (%s, 'Older')", SLUG)
    made = server.value("select engine.system_caller() ->> 'org'")
    assert server.value("select name from almagest.orgs where slug = %s", SLUG) == "Older"
    assert server.value("select slug from almagest.orgs where id = %s", made).startswith(f"{SLUG}-")
    assert server.value("select engine.system_caller() ->> 'org'") == made


def test_nobody_makes_an_org_of_its_slug(server: Server) -> None:
    for made_already in (False, True):
        if made_already:
            server.value("select engine.system_caller()")
        with pytest.raises(Refused, match="409 slug_reserved"):
            server.call("create_org", None, {"slug": SLUG, "owner": {"email": "a@b.example"}})
        header = {"almagest": "export", "format": 1, "schema": 1, "vectors": False, "user": None}
        made = {"id": str(uuid4()), "slug": SLUG, "name": "x", "settings": {}, "created_at": "2026-01-01T00:00:00Z"}
        lines = json.dumps({**header, "org": made}).encode()
        with psycopg.connect(server.database.url) as connection, pytest.raises(Problem, match="slug_reserved"):
            import_(connection, io.BytesIO(lines + b"\n"))


def test_no_list_and_no_name_shows_it(server: Server, org: Org, system: dict[str, Any]) -> None:
    assert [each["slug"] for each in server.call("list_orgs", None)["orgs"]] == ["acme"]
    for name, request in {
        "list_members": {}, "list_agents": {}, "list_keys": {}, "list_clients": {}, "list_deals": {},
        "list_projects": {}, "list_scopes": {}, "create_agent": {"slug": "x"}, "create_client": {"slug": "x"},
        "create_project": {"slug": "x"}, "add_member": {"email": "a@b.example"},
        "create_key": {"name": "x", "agent": "health", "key_hash": "0" * 64, "prefix": "alm_"},
    }.items():  # fmt: skip
        for slug in (SLUG, system["org"]):
            with pytest.raises(Refused, match="404 unknown_org"):
                server.call(name, None, {"org": slug, **request})
    with psycopg.connect(server.database.url) as connection, pytest.raises(Problem, match="unknown_org"):
        list(export(connection, SLUG))
    with psycopg.connect(server.database.url, autocommit=True) as connection:
        retention = Retention(connection)
        assert [each["org"] for each in retention.settings()] == [None]
        assert not retention.set_days(SLUG, 1, 1)
        retention.forget_days(SLUG)
    assert server.value("select trace_days from almagest.retention where org_id = %s", system["org"]) == 7


def test_the_only_org_of_people_is_still_the_one_that_is_meant(server: Server, system: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="There is no org yet"):
        server.call("list_members", None)
    Org(server, "acme")
    assert len(server.call("list_members", None)["members"]) == 1


def test_nobody_finds_what_is_in_it_and_it_finds_nothing_of_others(
    server: Server, org: Org, system: dict[str, Any]
) -> None:
    own = write_one(server, system, "a canary in a mine", one_hot(1))
    other = write_one(server, org.owner, "a canary in a cage", one_hot(1))
    assert ids(search(server, org.owner, "canary", one_hot(1))) == [other]
    assert ids(search(server, system, "canary", one_hot(1))) == [own]
    with pytest.raises(Refused, match="404"):
        server.call("get_item", org.owner, {"id": own})
    # A person is no member of it, whatever id they come with.
    person = org.owner["user"]
    with pytest.raises(Refused, match="401"):
        server.call("authenticate", None, {"user_id": person, "org": SLUG})
    with pytest.raises(Refused, match="403"):
        server.call("list_profiles", {"org": system["org"], "user": person, "role": "owner"})


def test_what_a_check_wrote_is_cleared_and_what_was_planted_stays(server: Server, system: dict[str, Any]) -> None:
    planted = write_one(server, system, "planted", one_hot(1), source_ref="health:canaries:00")
    probe = write_one(server, system, "a probe", one_hot(2), source_ref="health:crud:x")
    erased = write_one(server, system, "another probe", one_hot(3), source_ref="health:crud:y")
    server.call("erase_item", system, {"id": erased, "idempotency": {"key": "k", "request_hash": "h"}})
    assert ids(search(server, system, "probe", one_hot(2))) == [probe]
    clear = "select engine.clear_system_items('health:crud:', null, %s::interval, %s)"
    assert server.value(clear, "10 minutes", None) == 0  # other checks may be at work with them
    assert server.value(clear, "0", None) == 1
    assert server.value(clear, "10 minutes", erased) == 1
    assert server.rows("select id::text from almagest.items") == [planted]
    assert server.rows("select distinct item_id::text from almagest.audit_log") == [planted]
    assert server.rows("select query from almagest.retrievals") == [None]
    assert server.value(clear, "0", None) == 0
