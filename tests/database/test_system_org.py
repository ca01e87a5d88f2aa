"""The health checks' own org: made once, and shown to nobody."""

from typing import Any

import psycopg
import pytest

from tests.database.support import Server

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
