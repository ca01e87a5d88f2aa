"""Two containers of one project: how soon each knows what has become of a key, and what they count together."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from almagest.handlers import search
from almagest.models.identity import AdminRequest, KeyCreate, KeyLimit, KeyRevoke, KeyRotate
from almagest.operations import identity
from almagest.runtime import Runtime
from tests.edge import Reply, event, send
from tests.integration.conftest import Team

CACHED = 30.0


class Container:
    """A runtime of its own, whose clock stands until it is told to go on."""

    def __init__(self, runtime: Runtime, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runtime = Runtime.from_settings(runtime.settings)
        self.key = key
        self.now = 0.0
        self._monkeypatch = monkeypatch
        self.runtime.callers._clock = lambda: self.now

    def ask(self, key: str | None = None) -> Reply:
        self._monkeypatch.setattr(search.app, "connect", lambda: self.runtime)
        return send(search.app, event("GET", f"/v1/search/items/{uuid4()}", key=key or self.key))


@pytest.fixture
def key(team: Team) -> Any:
    request = {"org": team.slug, "name": "k", "member": f"ann@{team.slug}.example"}
    return identity.create_key(team.runtime, None, KeyCreate.model_validate(request))


@pytest.fixture
def containers(team: Team, key: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Container, Container]]:
    one, two = (Container(team.runtime, key.secret, monkeypatch) for _ in "12")
    yield one, two
    for each in (one, two):
        each.runtime.rpc.close()


def statuses(*containers: Container) -> list[int]:
    return [container.ask().status for container in containers]


@pytest.mark.parametrize("way", ["revoked", "rotated without overlap"])
def test_a_key_that_ends_is_let_through_for_30_seconds_at_the_most(
    team: Team, key: Any, containers: tuple[Container, Container], way: str
) -> None:
    one, two = containers
    assert statuses(one) == [404]  # authenticated: there is no such item
    if way == "revoked":
        identity.revoke_key(team.runtime, None, KeyRevoke(org=team.slug, id=key.id))
    else:
        identity.rotate_key(
            team.runtime, None, KeyRotate.model_validate({"org": team.slug, "id": key.id, "overlap": "0s"})
        )
    assert statuses(two) == [401]  # has not seen it
    one.now = CACHED - 0.1
    assert statuses(one) == [404]
    one.now = CACHED
    assert statuses(one, two) == [401, 401]


def test_while_they_overlap_both_keys_are_let_through_everywhere(
    team: Team, key: Any, containers: tuple[Container, Container]
) -> None:
    made = identity.rotate_key(
        team.runtime, None, KeyRotate.model_validate({"org": team.slug, "id": key.id, "overlap": "1h"})
    )
    for container in containers:
        assert [container.ask(each).status for each in (key.secret, made.secret)] == [404, 404]
    team.rows("update almagest.api_keys set expires_at = now() where id = %s", key.id)
    for container in containers:
        container.now += CACHED
        assert [container.ask(each).status for each in (key.secret, made.secret)] == [401, 404]


def test_a_container_forgets_a_key_when_it_expires(
    team: Team, key: Any, containers: tuple[Container, Container]
) -> None:
    one, _ = containers
    team.rows("update almagest.api_keys set expires_at = now() + interval '9 seconds' where id = %s", key.id)
    assert statuses(one) == [404]
    team.rows("update almagest.api_keys set expires_at = now() where id = %s", key.id)
    one.now = 8.5
    assert statuses(one) == [404]
    one.now = 9
    assert statuses(one) == [401]


def test_containers_share_a_quota(team: Team, key: Any, containers: tuple[Container, Container]) -> None:
    one, two = containers
    identity.limit_key(team.runtime, None, KeyLimit(org=team.slug, id=key.id, daily_quota=12))
    served = [status for _ in range(12) for status in statuses(one, two)]
    assert 12 <= served.count(404) <= 13
    assert served[-4:] == [429] * 4
    refused = one.ask()
    assert (refused.body["code"], int(refused.headers["Retry-After"]) > 0) == ("quota_exceeded", True)
    [listed] = [
        each for each in identity.list_keys(team.runtime, None, AdminRequest(org=team.slug))["keys"]
        if each["id"] == str(key.id)
    ]  # fmt: skip
    assert (listed["daily_quota"], 12 <= listed["used_today"] <= 14) == (12, True)

    identity.limit_key(team.runtime, None, KeyLimit(org=team.slug, id=key.id, daily_quota=1000))
    assert statuses(one, two) == [429, 429]
    for each in containers:
        each.now += CACHED
    assert statuses(one, two) == [404, 404]


def test_a_key_has_a_rate_of_its_own(team: Team, key: Any, containers: tuple[Container, Container]) -> None:
    identity.limit_key(team.runtime, None, KeyLimit(org=team.slug, id=key.id, rate=0.1))
    for container in containers:
        replies = [container.ask() for _ in range(3)]
        assert [reply.status for reply in replies] == [404, 429, 429]
        assert replies[1].body["code"] == "rate_limited"
        assert 8 <= int(replies[1].headers["Retry-After"]) <= 10


def test_counting_costs_no_call_of_its_own(
    containers: tuple[Container, Container], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = containers
    calls: list[str] = []
    call: Callable[..., Any] = one.runtime.rpc.call
    monkeypatch.setattr(
        one.runtime.rpc, "call", lambda name, *rest, **more: (calls.append(name), call(name, *rest, **more))[1]
    )
    for _ in range(5):
        one.ask()
    assert calls == ["get_schema", "authenticate", *["get_item"] * 5]  # the first once a container
