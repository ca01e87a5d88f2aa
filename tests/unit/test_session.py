"""The door of scheduled work: what it needs to know, and what it tells when that is wrong."""

import pytest

from almagest.database.migrate import migrate
from almagest.database.session import connect
from almagest.database.sql_files import MigrationError
from almagest.problems import Problem
from almagest.settings import Settings

UNREADABLE = [
    "zqpassword",
    "postgres.ref:zqpassword@host:5432/postgres",
    "postgresql://user:zqpassword zq@host/postgres",
]


def test_without_a_url() -> None:
    with pytest.raises(Problem) as raised:
        connect(Settings())
    assert (raised.value.status, raised.value.code) == (503, "misconfigured")


@pytest.mark.parametrize("url", UNREADABLE)
def test_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """P7: what a driver says of it holds the password, and would be logged."""
    with pytest.raises(Problem) as raised:
        connect(Settings(database_url=url))  # type: ignore[arg-type]
    assert raised.value.code == "misconfigured"
    assert "zq" not in str(raised.value)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("url", UNREADABLE)
def test_migrate_does_not_repeat_it_either(url: str) -> None:
    with pytest.raises(MigrationError, match=r"not a usable database URL.*percent-encoded") as raised:
        migrate(url)
    assert "zq" not in str(raised.value)
    assert raised.value.__suppress_context__
