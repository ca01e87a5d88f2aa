"""A database with data from any earlier migration becomes one of today, and keeps its data.

`upgrade/NNNN.sql` holds rows of the tables that migration NNNN brought. It is written with the migration and, like it,
never edited.
"""

import json
import shutil
from pathlib import Path

import pytest

from almagest.database.migrate import migrate
from almagest.database.sql_files import read_migrations, render, sql_directory
from infra.local.postgres import Postgres
from tests.support import Database, clone

ROWS = Path(__file__).with_name("upgrade")
VERSIONS = range(1, len(read_migrations(sql_directory())) + 1)
FIRST_ITEMS = 3
ITEM = "10000000-0000-0000-0000-000000000000"
OWNER = {
    "org": "0a000000-0000-0000-0000-000000000000",
    "user": "0b000000-0000-0000-0000-000000000000",
    "role": "owner",
}


def _migrate_to(database: Database, version: int, folder: Path) -> None:
    """Let the migrations land one after another, each followed by the rows of its time."""
    (folder / "migrations").mkdir(parents=True)
    for file in read_migrations(sql_directory())[:version]:
        shutil.copy(sql_directory() / file.path, folder / "migrations")
        migrate(database.url, directory=folder)
        rows = ROWS / f"{file.name[:4]}.sql"
        if rows.exists():
            database.rows(render(rows.read_text(encoding="utf-8"), "extensions"))


def _counts(database: Database) -> dict[str, int]:
    tables = database.rows(
        "select relname::text from pg_class where relnamespace = 'almagest'::regnamespace "
        "and relkind in ('r', 'p') and relname not in ('migrations', 'code_files')"
    )
    return {table: database.value(f"select count(*) from almagest.{table}") for table in tables}


@pytest.mark.parametrize("version", VERSIONS)
def test_data_of_every_earlier_version_survive(version: int, cluster: Postgres, tmp_path: Path) -> None:
    with clone(cluster, "postgres") as database:
        _migrate_to(database, version, tmp_path / "sql")
        before = _counts(database)

        report = migrate(database.url)

        assert len(report.migrations) == VERSIONS[-1] - version
        after = _counts(database)
        assert {table: after.get(table) for table in before} == before
        if version >= FIRST_ITEMS:
            item = database.value("select api.get_item(%s, %s)", json.dumps(OWNER), json.dumps({"id": ITEM}))
            assert item["content"] == "We deploy on Tuesdays."
