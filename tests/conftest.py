"""Fixtures that several kinds of test share. A test never sees the environment's own database or stack."""

import os

for _name in list(os.environ):
    if _name.startswith(("SUPABASE_", "ALMAGEST_")) or _name == "DATABASE_URL":
        del os.environ[_name]

from collections.abc import Iterator  # noqa: E402

import pytest  # noqa: E402

from infra.local.postgres import Postgres  # noqa: E402


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A Postgres of the session's own, with Supabase's roles and no migrations; thrown away at the end."""
    postgres = Postgres(tmp_path_factory.mktemp("cluster"), durable=False)
    postgres.start()
    yield postgres
    postgres.stop()
