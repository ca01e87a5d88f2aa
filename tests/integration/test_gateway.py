"""The gateway takes a project's keys as Supabase's does (R1)."""

import time
from collections.abc import Callable

import httpx
import jwt
import psycopg
import pytest

from infra.local.postgres import Postgres
from tests.conftest import Supabase

WHO = """
create function api.who(caller jsonb, request jsonb) returns jsonb language sql
as $$ select to_jsonb(current_role) $$
"""


@pytest.fixture(scope="module")
def project(cluster: Postgres, supabase_over: Callable[[str], Supabase]) -> Supabase:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("create database gateway")
    with psycopg.connect(cluster.url(database="gateway"), autocommit=True) as connection:
        connection.execute("create schema api")
        connection.execute("grant usage on schema api to anon, authenticated, service_role")
        connection.execute(WHO)
    return supabase_over("gateway")


def who(project: Supabase, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{project.url}/rest/v1/rpc/who",
        json={"caller": {}, "request": {"text": "x" * 100_000}},
        headers={"Content-Profile": "api"} | headers,
    )


def test_a_key_becomes_its_role(project: Supabase) -> None:
    assert who(project, apikey=project.keys.secret).json() == "service_role"
    assert who(project, apikey=project.keys.publishable).json() == "anon"


def test_legacy_keys_are_verified(project: Supabase) -> None:
    assert who(project, apikey=project.keys.sign("service_role")).json() == "service_role"
    forged = jwt.encode({"role": "service_role"}, "another secret of thirty-two characters")
    assert who(project, apikey=forged).status_code == 401


def test_a_users_token_goes_on_as_it_is(project: Supabase) -> None:
    token = project.keys.sign("authenticated")
    assert who(project, apikey=project.keys.publishable, authorization=f"Bearer {token}").json() == "authenticated"
    assert who(project, apikey=token).status_code == 401


def test_a_secret_key_in_authorization_is_refused(project: Supabase) -> None:
    answer = who(project, apikey=project.keys.secret, authorization=f"Bearer {project.keys.secret}")
    assert answer.status_code == 401


def test_requests_without_a_good_key_are_refused(project: Supabase) -> None:
    assert who(project).status_code == 401
    assert who(project, apikey="sb_secret_guess").json()["message"] == "Invalid API key"
    assert httpx.get(project.url + "/auth/v1/user", headers={"apikey": project.keys.secret}).status_code == 404


def test_new_functions_are_seen_after_notify(project: Supabase) -> None:
    with psycopg.connect(project.database_url, autocommit=True) as connection:
        connection.execute(WHO.replace("api.who", "api.late"))
        connection.execute("notify pgrst, 'reload schema'")
    url, headers = f"{project.url}/rest/v1/rpc/late", {"apikey": project.keys.secret, "Content-Profile": "api"}
    body = {"caller": {}, "request": {}}
    with httpx.Client() as client:
        for _ in range(100):
            answer = client.post(url, json=body, headers=headers)
            if answer.status_code != 404:
                break
            time.sleep(0.05)
    assert answer.json() == "service_role"
