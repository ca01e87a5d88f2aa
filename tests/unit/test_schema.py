"""A function and its database fit each other, or both say so."""

import logging

import pytest

from almagest.database.sql_files import read_migrations, sql_directory
from almagest.handlers import search
from almagest.problems import Problem
from almagest.schema import SCHEMA, demand_fit
from tests.edge import FakeRpc, event, runtime, send


def test_the_code_knows_its_last_migration() -> None:
    assert len(read_migrations(sql_directory())) == SCHEMA


@pytest.mark.parametrize(
    ("version", "serves_since"),
    [(SCHEMA, SCHEMA), (SCHEMA, SCHEMA - 1), (SCHEMA + 1, SCHEMA), (SCHEMA + 9, SCHEMA), (SCHEMA + 2, SCHEMA - 1)],
)
def test_a_newer_database_that_serves_this_code_fits(version: int, serves_since: int) -> None:
    demand_fit(version, serves_since)


@pytest.mark.parametrize(
    ("version", "serves_since", "advice"),
    [
        (SCHEMA - 1, 1, "almagest migrate"),
        (SCHEMA + 1, SCHEMA + 1, "deploy the functions"),
    ],
)
def test_what_does_not_fit_is_told_to_the_caller_and_what_to_do_to_the_log(
    version: int, serves_since: int, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(Problem) as caught:
        demand_fit(version, serves_since)
    assert (caught.value.status, caught.value.code) == (503, "schema_mismatch")
    assert advice not in caught.value.detail
    assert advice in caplog.text


def test_it_is_asked_at_the_first_request_until_it_fits_and_then_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"version": SCHEMA - 1, "serves_since": 1}
    rpc = FakeRpc({"get_schema": lambda _: schema, "list_profiles": lambda _: {"profiles": []}})
    made = runtime(rpc)
    monkeypatch.setattr(search.app, "connect", lambda: made)

    def ask() -> tuple[int, str | None]:
        reply = send(search.app, event("GET", "/v1/search/profiles"))
        return reply.status, reply.body.get("code")

    assert ask() == ask() == (503, "schema_mismatch")
    assert rpc.requests("authenticate") == []
    schema["version"] = SCHEMA
    assert [ask() for _ in range(3)] == [(200, None)] * 3
    assert len(rpc.requests("get_schema")) == 3
