"""What people read in the Supabase dashboard: right, without content, and for nobody else."""

from typing import Any

import psycopg
import pytest

from tests.database.support import Org, Server, one_hot, search, write_one

ROLES = ("anon", "authenticated", "service_role", "almagest_reader", "authenticator")
COLUMNS = {
    "degraded_retrievals": [
        "created_at", "org_id", "purpose", "profile", "mode", "degraded_reason", "candidates", "trace_id", "request_id",
        "results",
    ],
}  # fmt: skip


def _degraded(server: Server) -> list[Any]:
    return server.rows(
        "select org_id::text, mode, degraded_reason, results, trace_id::text from dashboard.degraded_retrievals"
    )


def test_degraded_retrievals_are_listed_newest_first(server: Server, org: Org) -> None:
    other = Org(server, "other")
    write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    write_one(server, other.owner, "They retry as well.", one_hot(1))
    hybrid = search(server, org.owner, "retry", one_hot(1))
    without_model = search(server, org.owner, "retry", degraded_reason="model_missing", request_id="r-1")
    without_terms = search(server, org.owner, "of the", one_hot(1))
    empty = search(server, other.owner, "nothing like it")
    server.call("bootstrap", org.owner, {})
    bootstrap = server.call("bootstrap", org.owner, {"query": "retry", "degraded_reason": "model_missing"})

    assert hybrid["mode"] == "hybrid"
    assert _degraded(server) == [
        (org.id, "lexical", "model_missing", 1, bootstrap["trace_id"]),
        (other.id, "lexical", "no_embedding", 0, empty["trace_id"]),
        (org.id, "vector", "no_terms_in_query", 1, without_terms["trace_id"]),
        (org.id, "lexical", "model_missing", 1, without_model["trace_id"]),
    ]
    assert server.rows("select request_id from dashboard.degraded_retrievals where request_id is not null") == ["r-1"]


def test_only_the_last_days_are_listed(server: Server, org: Org) -> None:
    search(server, org.owner, "retry")
    assert len(_degraded(server)) == 1
    server.rows("update almagest.retrievals set created_at = created_at - interval '15 days'")
    assert _degraded(server) == []


def test_nothing_of_what_was_asked_or_found_is_in_them(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "The vault code is quokka.", title="Vault", source_ref="quokka.txt")
    search(server, org.owner, "quokka vault", filters={"title": "vault"})
    views = server.rows("select table_name::text from information_schema.views where table_schema = 'dashboard'")
    assert set(views) == COLUMNS.keys()
    for view, columns in COLUMNS.items():
        found = server.rows(
            "select column_name::text from information_schema.columns"
            " where table_schema = 'dashboard' and table_name = %s order by ordinal_position",
            view,
        )
        assert found == columns
        [text] = server.rows(f"select string_agg(v::text, ' ') from dashboard.{view} as v")
        assert text
        assert not [word for word in ("quokka", "vault", "Vault", item) if word in text]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("view", COLUMNS)
def test_nobody_but_the_owner_reads_them(server: Server, role: str, view: str) -> None:
    query = f"select * from dashboard.{view}".encode()
    with server.database.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(query)


@pytest.mark.parametrize("view", COLUMNS)
def test_a_grant_on_a_view_alone_opens_nothing(server: Server, view: str) -> None:
    server.rows("grant usage on schema dashboard to authenticated")
    server.rows(f"grant select on dashboard.{view} to authenticated")
    with server.database.connect("authenticated") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"select * from dashboard.{view}".encode())


@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_says_what_it_is(server: Server, view: str) -> None:
    assert server.value("select obj_description(%s::regclass)", f"dashboard.{view}")
