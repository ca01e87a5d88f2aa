"""Secrets by reference: read from Secrets Manager, kept for a while, and followed when they are rotated."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from almagest.problems import Problem
from almagest.runtime import Container
from almagest.secrets import RETRY_SECONDS, Secrets
from almagest.settings import Settings

SETTINGS = Settings(supabase_url="https://project.supabase.co")
REGION = "eu-central-1"


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """AWS Secrets Manager, in memory."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    with mock_aws():
        yield boto3.client("secretsmanager")


def put(manager: Any, name: str, **values: str) -> str:
    """Make a secret, and return its ARN."""
    arn: str = manager.create_secret(Name=name, SecretString=json.dumps(values))["ARN"]
    return arn


class Clock:
    """Seconds that pass when the test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Store:
    """Secrets that can change and fail."""

    def __init__(self, **values: str) -> None:
        self.values: Any = values
        self.asked = 0

    def __call__(self, arn: str, anew: bool) -> dict[str, Any]:
        self.asked += 1
        if isinstance(self.values, Exception):
            raise self.values
        found: dict[str, Any] = self.values
        return found


def value(settings: Settings, name: str) -> str | None:
    found = getattr(settings, name)
    return None if found is None else str(found.get_secret_value())


def test_two_secrets_complete_the_settings(manager: Any) -> None:
    one = put(manager, "supabase", supabase_secret_key="sb_secret_1", jwt_secret="")
    two = put(manager, "database", database_url="postgresql://one")
    found = Secrets([one, two], 300).complete(SETTINGS)
    assert found.supabase_url == SETTINGS.supabase_url
    assert value(found, "supabase_key") == "sb_secret_1"
    assert value(found, "database_url") == "postgresql://one"
    # An empty one is none: HS256 tokens are refused, and not verified with nothing.
    assert found.jwt_secret is None


def test_a_rotation_needs_no_deploy(manager: Any) -> None:
    arn = put(manager, "supabase", supabase_secret_key="sb_secret_1")
    container = Container(SETTINGS, Secrets([arn], 0))
    runtime = container.runtime()
    embedder, limit, before = runtime.embedder, runtime.rate_limit, runtime.rpc
    assert container.runtime().rpc is before
    manager.put_secret_value(SecretId=arn, SecretString=json.dumps({"supabase_secret_key": "sb_secret_2"}))
    renewed = container.runtime()
    assert value(renewed.settings, "supabase_key") == "sb_secret_2"
    assert renewed.rpc is not before
    assert (renewed.embedder, renewed.rate_limit) == (embedder, limit)
    with pytest.raises(RuntimeError, match="closed"):
        before._http.get("https://project.supabase.co")


def test_what_was_read_is_kept_for_its_time(manager: Any) -> None:
    arn = put(manager, "supabase", supabase_secret_key="sb_secret_1")
    secrets = Secrets([arn], 300)
    first = secrets.complete(SETTINGS)
    manager.put_secret_value(SecretId=arn, SecretString=json.dumps({"supabase_secret_key": "sb_secret_2"}))
    assert secrets.complete(SETTINGS) is first


def test_what_was_read_is_read_anew_when_a_key_was_refused(manager: Any) -> None:
    arn = put(manager, "supabase", supabase_secret_key="sb_secret_1")
    container = Container(SETTINGS, Secrets([arn], 300))
    before = container.runtime().rpc
    assert before._fresh_key() == "sb_secret_1"
    manager.put_secret_value(SecretId=arn, SecretString=json.dumps({"supabase_secret_key": "sb_secret_2"}))
    # Not with every request that is refused.
    assert before._fresh_key() == "sb_secret_1"

    second = Container(SETTINGS, Secrets([arn], 300))
    manager.put_secret_value(SecretId=arn, SecretString=json.dumps({"supabase_secret_key": "sb_secret_3"}))
    rpc = second.runtime().rpc
    manager.put_secret_value(SecretId=arn, SecretString=json.dumps({"supabase_secret_key": "sb_secret_4"}))
    assert rpc._fresh_key() == "sb_secret_4"
    assert value(second.runtime().settings, "supabase_key") == "sb_secret_4"
    assert second.runtime().rpc is not rpc


def test_a_failure_later_on_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = Store(supabase_secret_key="sb_secret_1"), Clock()
    secrets = Secrets(["arn"], 300, store, clock)
    first = secrets.complete(SETTINGS)
    store.values = OSError("sb_secret_1 is not to be logged")
    with caplog.at_level(logging.ERROR):
        assert secrets.complete(SETTINGS) is first
    assert [record.message for record in caplog.records] == ["secrets not read"]
    assert "sb_secret" not in caplog.text
    # Nor is it asked for again with every request.
    asked = store.asked
    assert secrets.complete(SETTINGS) is first
    assert store.asked == asked
    store.values = {"supabase_secret_key": "sb_secret_2"}
    clock.now += RETRY_SECONDS
    assert value(secrets.complete(SETTINGS), "supabase_key") == "sb_secret_2"


@pytest.mark.parametrize(
    "nonsense",
    [
        {"supabase_secret_key": "has spaces in it", "jwt_secret": "s"},
        {"supabase_secret_key": "", "jwt_secret": "s"},
        {"jwt_secret": "s"},
        # Its users could not come in any more, and nobody would be told.
        {"supabase_secret_key": "sb_secret_2"},
        {"SUPABASE_SECRET_KEY": "sb_secret_2", "jwt_secret": "s"},
        {"supabase_secret_key": ["sb_secret_2"], "jwt_secret": "s"},
        {"supabase_secret_key": 7, "jwt_secret": "s"},
        {},
        [],
        None,
        "sb_secret_2",
    ],
)
def test_a_rotation_to_nonsense_is_not_followed(nonsense: Any) -> None:
    store, clock = Store(supabase_secret_key="sb_secret_1", jwt_secret="s"), Clock()
    container = Container(SETTINGS, Secrets(["arn"], 300, store, clock))
    first = container.runtime()
    store.values = nonsense
    for _ in range(2):
        assert value(container.runtime().settings, "supabase_key") == "sb_secret_1"
        assert value(container.runtime().settings, "jwt_secret") == "s"
        clock.now += RETRY_SECONDS
    store.values = {"supabase_secret_key": "sb_secret_3", "jwt_secret": "s"}
    assert value(container.runtime().settings, "supabase_key") == "sb_secret_3"
    assert container.runtime() is first


def test_a_project_may_give_up_its_legacy_secret() -> None:
    """Which leaked, say: then no container may go on with it."""
    store = Store(supabase_secret_key="sb_secret_1", jwt_secret="s")
    secrets = Secrets(["arn"], 300, store, Clock())
    assert value(secrets.complete(SETTINGS), "jwt_secret") == "s"
    store.values = {"supabase_secret_key": "sb_secret_1", "jwt_secret": ""}
    assert value(secrets.complete(SETTINGS), "jwt_secret") is None


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (OSError("no network"), "secrets_unavailable"),
        ({"supabase_secret_key": "has spaces in it"}, "misconfigured"),
        ("not an object", "misconfigured"),
    ],
)
def test_without_secrets_it_is_a_503(values: Any, code: str) -> None:
    store = Store()
    store.values = values
    with pytest.raises(Problem) as raised:
        Secrets(["arn"], 300, store).complete(SETTINGS)
    assert (raised.value.status, raised.value.code) == (503, code)
    assert raised.value.retry_after
    assert "spaces" not in str(raised.value)


def test_a_secret_that_is_not_there(manager: Any) -> None:
    with pytest.raises(Problem) as raised:
        Secrets([f"arn:aws:secretsmanager:{REGION}:123456789012:secret:none"], 300).complete(SETTINGS)
    assert raised.value.code == "secrets_unavailable"


def test_the_environment_alone_is_enough() -> None:
    settings = Settings(supabase_url="https://project.supabase.co", supabase_key="sb_secret_1")  # type: ignore[arg-type]
    container = Container(settings)
    assert container.runtime() is container.runtime()
    assert container.runtime().settings is settings
