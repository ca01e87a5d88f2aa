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
BEFORE_FLAGS = 6
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
        "and relkind in ('r', 'p') and relname not in ('migrations', 'code_files', 'made_objects')"
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


# Two searches, as they were recorded before migration 0007, and an item of that time beside the one of 0003.
RECORDED = """
insert into almagest.items (id, org_id, kind, type, content, origin, index_status) values (
    '11000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'memory', 'note',
    'Do we deploy on Fridays?', 'agent', 'text_ready'
);
insert into almagest.chunks (item_id, org_id, position, start_offset, end_offset, text) values (
    '11000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 0, 0, 24, 'Do we deploy on Fridays?'
);
insert into almagest.lexical (
    chunk_id, item_id, org_id, state, kind, sequence, place, tokeniser, length, terms
)
select id, item_id, org_id, 'active', 'memory', item_id, 0, 1, 2, '''deploy'':1A ''friday'':2A'
from almagest.chunks where item_id = '11000000-0000-0000-0000-000000000000';
insert into almagest.retrievals (id, org_id, purpose, profile, mode, query)
select r.id::uuid, '0a000000-0000-0000-0000-000000000000', 'search', 'user_search', r.mode, 'when do we deploy?'
from (values
    ('21000000-0000-0000-0000-000000000000', 'hybrid'), ('22000000-0000-0000-0000-000000000000', 'lexical')
) as r (id, mode);
insert into almagest.activations (org_id, item_id, retrieval_id, use, rank, query_vector)
select
    '0a000000-0000-0000-0000-000000000000', a.item::uuid, a.retrieval::uuid, 'surfaced', a.rank,
    translate(array_fill(a.value, array[384])::text, '{}', '[]')::@extschema:vector@.halfvec
from (values
    ('10000000-0000-0000-0000-000000000000', '21000000-0000-0000-0000-000000000000', 1, 0.125),
    ('11000000-0000-0000-0000-000000000000', '21000000-0000-0000-0000-000000000000', 2, 0.125)
) as a (item, retrieval, rank, value);
insert into almagest.activations (org_id, item_id, retrieval_id, use, rank) values (
    '0a000000-0000-0000-0000-000000000000', '10000000-0000-0000-0000-000000000000',
    '22000000-0000-0000-0000-000000000000', 'surfaced', 1
);
"""


def test_what_was_asked_moves_to_the_search_and_old_terms_go_on(cluster: Postgres, tmp_path: Path) -> None:
    """Rows of before are found by their terms at once, none as a copy of another; the index job gives them flags."""
    with clone(cluster, "postgres") as database:
        _migrate_to(database, BEFORE_FLAGS, tmp_path / "sql")
        database.rows(render(RECORDED, "extensions"))
        migrate(database.url)

        vectors = database.rows(
            "select left(id::text, 2), left(query_vector::text, 7) from almagest.retrievals order by id"
        )
        assert vectors == [("20", None), ("21", "[0.125,"), ("22", None)]

        def found(query: str) -> list[str]:
            answer = database.value("select api.search(%s, %s)", json.dumps(OWNER), json.dumps({"query": query}))
            assert answer["mode"] == "lexical"
            return sorted(result["id"][:2] for result in answer["results"])

        assert found("deploy") == ["10", "11"]
        assert found("fridays") == ["11"]
        flags = "select only_asks, says_when, text_hash is not null from almagest.lexical order by item_id"
        assert database.rows(flags) == [(False, False, False)] * 2

        assert database.rows("select * from engine.retokenise(null, 100)") == [(2, None)]
        assert database.rows(flags) == [(False, False, True), (True, False, True)]
        beside = "select lexeme, weights from almagest.lexical, unnest(terms) where item_id = %s order by lexeme"
        # the title and the tag, and the text
        assert database.rows(beside, ITEM) == [("deploy", ["B", "B", "A"]), ("tuesday", ["A"])]
        assert found("deploy") == ["10", "11"]
        assert found("fridays") == ["11"]
