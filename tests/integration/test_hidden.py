"""P3: what a caller may not see answers as what is not there: status, headers and body, on every route with an id."""

import json
import time
from statistics import median
from typing import Any
from uuid import uuid4

import pytest

from almagest.edge.openapi import apps
from tests.edge import Reply
from tests.integration.conftest import Team

VERSION = {"version": 1, "title": "Mine now"}
# Every route whose path holds an id, with a body that would do.
ROUTES: dict[tuple[str, str], Any] = {
    ("GET", "/v1/search/items/<item>"): None,
    ("GET", "/v1/search/items/<item>/chunks"): None,
    ("GET", "/v1/search/items/<item>/neighbours"): None,
    ("GET", "/v1/search/traces/<trace>"): None,
    ("POST", "/v1/search/hub/<entry>/read"): None,
    ("DELETE", "/v1/search/hub/<entry>/read"): None,
    ("POST", "/v1/search/hub/<entry>/dismiss"): None,
    ("DELETE", "/v1/search/hub/<entry>/dismiss"): None,
    ("PATCH", "/v1/write/items/<item>"): VERSION,
    ("DELETE", "/v1/write/items/<item>"): None,
    ("POST", "/v1/write/items/<item>/validate"): None,
    ("POST", "/v1/write/items/<item>/archive"): None,
    ("POST", "/v1/write/items/<item>/restore"): None,
    ("POST", "/v1/write/items/<item>/pin"): {},
    ("DELETE", "/v1/write/items/<item>/pin"): None,
}
VARIATIONS: list[tuple[str, str, Any, dict[str, str]]] = [
    *((method, path, body, {}) for (method, path), body in ROUTES.items()),
    ("GET", "/v1/search/items/<item>/chunks", None, {"around": "0", "reach": "1"}),
    ("GET", "/v1/search/items/<item>/chunks", None, {"cursor": "5"}),
    ("PATCH", "/v1/write/items/<item>", {"version": 9, "content": "Another text."}, {}),
    ("DELETE", "/v1/write/items/<item>", None, {"strict": "true"}),
    ("POST", "/v1/write/items/<item>/pin", {"private": True}, {}),
    ("DELETE", "/v1/write/items/<item>/pin", None, {"private": "true"}),
]


def told(reply: Reply) -> tuple[int, dict[str, str], str]:
    """All that a caller is told, but for the request's own id."""
    headers = {name.lower(): value for name, value in reply.headers.items()}
    body = reply.text.replace(headers.pop("x-request-id"), "")
    headers.pop("content-length", None)
    return reply.status, headers, body


@pytest.fixture
def hidden(team: Team) -> dict[str, str]:
    """Ids of what Ann has, and Bob and Olga, the owner, may not see."""
    private = team.remember("The quarry opens at dawn.", private=True)["id"]
    turn = team.remember("A turn of ours.", private=True, conversation={"id": "c", "position": 1})["id"]
    archived = team.remember("An old quarry note.", private=True)["id"]
    assert team.ask("ann", "POST", f"/v1/write/items/{archived}/archive").status == 200
    erased = team.remember("A quarry that never was.", private=True)["id"]
    assert team.ask("ann", "DELETE", f"/v1/write/items/{erased}").status == 200
    trace = team.ask("ann", "POST", "/v1/search", {"query": "quarry"}).body["trace_id"]
    [[org, ann]] = team.rows(
        "select org_id::text, user_id::text from almagest.members where email = %s", f"ann@{team.slug}.example"
    )
    opening = "select engine.open_hub_entry(%s, %s, 'test', %s, 'info', 'T', 'F', '[]', 'D', '{}')::text"
    [entry] = team.rows(opening, org, ann, "test.hidden")
    assert team.ask("ann", "POST", f"/v1/search/hub/{entry}/read").status == 200
    return {"private": private, "turn": turn, "archived": archived, "erased": erased, "trace": trace, "entry": entry}


def test_every_route_with_an_id_is_tried() -> None:
    with_id = {(route.method, route.path) for app in apps() for route in app.routes if "<" in route.path}
    assert with_id - {(method, path) for method, path in with_id if "/profiles/" in path} == set(ROUTES)


@pytest.mark.parametrize(("method", "path", "body", "query"), VARIATIONS)
def test_what_is_hidden_answers_as_what_is_not_there(
    team: Team, hidden: dict[str, str], method: str, path: str, body: Any, query: dict[str, str]
) -> None:
    def ask(who: str, thing: str) -> tuple[int, dict[str, str], str]:
        address = path.replace("<item>", thing).replace("<trace>", thing).replace("<entry>", thing)
        return told(team.ask(who, method, address, body, query=query or None))

    for who in ("bob", "olga"):
        absent = ask(who, str(uuid4()))
        assert absent[0] == 404
        assert json.loads(absent[2])["code"] == "not_found"
        for name, thing in hidden.items():
            assert ask(who, thing) == absent, (who, name)
        assert ask(who, "no-id-at-all") == absent
    # What was tried has changed nothing.
    assert team.ask("ann", "GET", f"/v1/search/items/{hidden['private']}").body["version"] == 1


def test_a_cursor_of_another_answers_as_one_that_never_was(team: Team) -> None:
    for number in range(4):
        team.remember(f"Quarry note {number}.")
    cursor = team.ask("ann", "POST", "/v1/search", {"query": "quarry", "k": 1}).body["next_cursor"]
    assert cursor
    made_up = cursor.replace(cursor[:8], "00000000", 1)
    replies = [told(team.ask("bob", "POST", "/v1/search", {"cursor": each})) for each in (cursor, made_up)]
    assert replies[0] == replies[1]
    assert replies[0][0] == 422


def test_why_not_of_what_is_hidden_says_what_it_says_of_what_is_not_there(team: Team, hidden: dict[str, str]) -> None:
    team.remember("A shared quarry.")
    for who in ("bob", "olga"):
        said = []
        for item in (str(uuid4()), hidden["private"], hidden["archived"], hidden["erased"]):
            answer = team.ask(who, "POST", "/v1/search", {"query": "quarry", "why_not": item})
            assert answer.status == 200
            said.append(json.dumps(answer.body["explain"]["why_not"]).replace(item, ""))
        assert len(set(said)) == 1, said


def test_names_of_places_that_are_hidden_are_those_of_none(team: Team) -> None:
    from almagest.models.identity import ScopeCreate
    from almagest.operations import identity

    identity.create_client(team.runtime, None, ScopeCreate(org=team.slug, slug="globex", name="Globex"))
    for client in ("globex", "nobody"):
        reply = team.ask("bob", "POST", "/v1/write/memories", {"content": "x", "client": client})
        assert told(reply)[0] == 422
        assert client not in reply.text
    replies = [
        told(team.ask("bob", "POST", "/v1/search", {"query": "x", "filters": {"client": client}}))[0]
        for client in ("globex", "nobody")
    ]
    assert replies[0] == replies[1]


def test_what_is_hidden_takes_as_long_as_what_is_not_there(team: Team, hidden: dict[str, str]) -> None:
    """Coarsely: the median of many, one in turn with the other, within a half of each other and 5 ms."""
    taken: dict[str, list[float]] = {"hidden": [], "absent": []}
    for _ in range(40):
        for name, item in (("hidden", hidden["private"]), ("absent", str(uuid4()))):
            started = time.perf_counter()
            team.ask("bob", "GET", f"/v1/search/items/{item}")
            taken[name].append(time.perf_counter() - started)
    one, other = (median(times) for times in taken.values())
    assert abs(one - other) < max(0.5 * max(one, other), 0.005)
