"""What the health checks ask of the database, and what remediation does to it: every kind of orphan, made by hand."""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import UUID

import psycopg
import pytest

from almagest import deadline
from almagest.database.health import EXPECTED_TABLES, Health
from almagest.database.migrate import migrate
from almagest.database.remedy import Remedy
from almagest.database.retention import Retention
from almagest.database.sql_files import read_migrations, sql_directory
from almagest.operations.health.orphaned_embeddings import KINDS
from almagest.operations.remediation.action import Mending
from almagest.operations.remediation.orphans import _indexes_to_mend, rebuild_indexes
from almagest.operations.retention import retain
from almagest.runtime import Runtime
from infra.local.postgres import Postgres
from tests.database.bulk import Rows, fill
from tests.database.concurrency import at_once
from tests.database.support import MODEL, Org, Server, memory, one_hot, serve, write, write_one
from tests.faults import REAPPLIED, Fault
from tests.support import Database, clone

VISIBLE = "engine.visible(engine.caller,uuid,uuid,uuid,uuid,uuid[])"


@pytest.fixture
def own(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """A database of the test's own, whose tables and rights it may change."""
    with clone(cluster, template_database.name) as copy, serve(copy) as connections:
        yield connections


def forge(server: Server, *statements: str) -> None:
    """Run statements that no foreign key is in the way of."""
    with server.database.connect("supabase_admin") as connection:
        connection.execute("set session_replication_role = replica")
        for statement in statements:
            connection.execute(statement.encode())


def orphans(server: Server, model: str | None = MODEL) -> dict[str, int | None]:
    """What is not zero of each kind."""
    health = Health(server.owner)
    counts = {kind: health.count_orphans(kind, model) for kind in KINDS}
    return {kind: count for kind, count in counts.items() if count != 0}


class TestTables:
    def test_all_are_as_they_should_be(self, own: Server) -> None:
        health = Health(own.owner)
        assert health.table_faults() == []
        assert health.open_doors() == []
        assert health.count_tables() == len(EXPECTED_TABLES) + 2  # and the rest of each table of traces

    def test_what_is_wrong_is_named(self, own: Server) -> None:
        forge(
            own,
            "alter table almagest.folders rename to elsewhere",
            "revoke all on almagest.policies from postgres",
            "alter table almagest.policies owner to supabase_admin",
            "revoke select, insert, update, delete on almagest.policies from postgres",
            "alter table almagest.items no force row level security",
            "alter table almagest.chunks disable row level security",
            "alter table almagest.pins owner to supabase_admin",
            "grant select on almagest.pins to postgres",
            "alter table almagest.variables owner to supabase_admin",
            "grant select, update on almagest.variables to postgres",
        )
        assert sorted(Health(own.owner).table_faults()) == [
            ("chunks", "unforced"),
            ("folders", "missing"),
            ("items", "unforced"),
            ("pins", "unwritable"),
            ("policies", "unreadable"),
            ("policies", "unwritable"),
            ("variables", "unwritable"),
        ]

    def test_a_database_that_takes_no_writes(self, own: Server) -> None:
        own.owner.execute("set default_transaction_read_only = on")
        faults = Health(own.owner).table_faults()
        assert {fault for _, fault in faults} == {"unwritable"}
        assert len(faults) == Health(own.owner).count_tables()

    def test_a_role_that_policies_bind_is_no_reader(self, own: Server) -> None:
        forge(own, "alter role postgres nobypassrls")
        try:
            assert ("items", "unreadable") in Health(own.owner).table_faults()
        finally:
            forge(own, "alter role postgres bypassrls")

    @pytest.mark.parametrize(
        ("grant", "door"),
        [
            ("grant select on almagest.items to anon", ("anon", "almagest.items")),
            ("grant update (title) on almagest.items to authenticated", ("authenticated", "almagest.items")),
            ("grant execute on function api.search(jsonb, jsonb) to anon", ("anon", "api.search(jsonb,jsonb)")),
            ("grant select on dashboard.degraded_retrievals to public", ("anon", "dashboard.degraded_retrievals")),
        ],
    )
    def test_an_open_door_is_named(self, own: Server, grant: str, door: tuple[str, str]) -> None:
        forge(own, grant)
        assert door in Health(own.owner).open_doors()

    @pytest.mark.parametrize("fault", REAPPLIED.values(), ids=REAPPLIED.keys())
    def test_rights_and_row_security_are_mended_by_applying_them_again(self, own: Server, fault: Fault) -> None:
        rights = (
            "select c.oid::regclass::text, c.relrowsecurity, c.relforcerowsecurity, a.grantee::regrole::text,"
            " array_agg(a.privilege_type order by 1)::text from pg_class as c, aclexplode(c.relacl) as a"
            " where c.relnamespace::regnamespace::text in ('almagest', 'dashboard') group by 1, 2, 3, 4 order by 1, 4"
        )
        before = own.rows(rights)
        fault.put(cast(Runtime, None), own.database)
        health = Health(own.owner)
        assert health.table_faults() + health.open_doors() != []
        migrate(own.database.url, reapply=True)
        assert health.table_faults() + health.open_doors() == []
        after = {row[:4] for row in own.rows(rights)}
        assert {row[:4] for row in before} <= after
        assert {row[3] for row in after} <= {"postgres", "almagest_reader"}

    def test_nobody_else_reaches_a_schema_either(self, own: Server) -> None:
        forge(
            own,
            "grant all on schema almagest, engine, api, dashboard to public, anon, authenticated, service_role",
            "grant all on all tables in schema almagest to service_role, almagest_reader",
            "grant all on all sequences in schema almagest to service_role, anon",
        )
        migrate(own.database.url, reapply=True)
        assert own.rows(
            "select n.nspname || ' ' || a.grantee::regrole || ' ' || a.privilege_type from pg_namespace as n,"
            " aclexplode(n.nspacl) as a where n.nspname in ('almagest', 'engine', 'api', 'dashboard')"
            " and a.grantee <> n.nspowner order by 1"
        ) == [
            "almagest almagest_reader USAGE",
            "api service_role USAGE",
            "engine almagest_reader CREATE",
            "engine almagest_reader USAGE",
        ]
        assert own.rows(
            "select distinct a.grantee::regrole || ' ' || a.privilege_type from pg_class as c,"
            " aclexplode(c.relacl) as a where c.relnamespace = 'almagest'::regnamespace and a.grantee <> c.relowner"
        ) == ["almagest_reader SELECT"]


class TestAccess:
    def test_what_is_expected_is_what_a_new_database_has(self, own: Server) -> None:
        assert Health(own.owner).access_faults() == []
        assert own.rows(
            "select distinct p.proname from pg_proc as p where p.pronamespace = 'engine'::regnamespace"
            " and has_function_privilege('almagest_reader', p.oid, 'execute')"
            " and p.proowner <> 'almagest_reader'::regrole order by 1"
        ) == sorted(own.value("select engine.reader_calls()"))
        assert own.rows(
            "select c.relname from pg_class as c where c.relnamespace = 'almagest'::regnamespace"
            " and has_table_privilege('almagest_reader', c.oid, 'select') order by 1"
        ) == sorted(own.value("select engine.reader_tables()"))

    @pytest.mark.parametrize(
        ("change", "faults"),
        [
            ("revoke execute on function api.search(jsonb, jsonb) from service_role",
             [("api.search(jsonb,jsonb)", "uncallable")]),
            ("revoke execute on function engine.visible from almagest_reader",
             [(VISIBLE, "uncallable_reader")]),
            ("revoke execute on function engine.read_item from postgres",
             [("engine.read_item(engine.caller,uuid)", "uncallable_owner")]),
            ("revoke select on almagest.chunks from almagest_reader", [("chunks", "unreadable_reader")]),
            ("drop policy reader on almagest.items", [("reader of items", "policy_missing")]),
            ("create policy others on almagest.facts for select to almagest_reader using (true)",
             [("others of facts", "policy_unexpected")]),
            ("alter policy reader on almagest.pins to public", [("reader of pins", "policy_changed")]),
            ("alter table almagest.lexical drop constraint lexical_pkey",
             [("lexical_pkey of lexical", "constraint_missing")]),
            ("alter table almagest.orgs drop constraint orgs_slug_key",
             [("orgs_slug_key of orgs", "constraint_missing")]),
            ("alter table almagest.chunks drop constraint chunks_item_id_fkey",
             [("chunks_item_id_fkey of chunks", "constraint_missing")]),
            ("alter policy reader on almagest.chunks using (true)", [("reader of chunks", "policy_changed")]),
            ("alter table almagest.items drop constraint items_state_check,"
             " add constraint items_state_check check (true)",
             [("items_state_check of items", "constraint_changed")]),
            ("alter table almagest.items add constraint more check (true)",
             [("more of items", "constraint_unexpected")]),
            ("create or replace function engine.visible(c engine.caller, org_id uuid, user_id uuid, client_id uuid,"
             " deal_id uuid, agent_ids uuid[]) returns boolean language sql immutable as 'select true'",
             [(VISIBLE, "function_changed")]),
            (f"alter function {VISIBLE} security definer", [(VISIBLE, "function_changed")]),
            (f"alter function {VISIBLE} owner to supabase_admin",
             [(VISIBLE, "function_changed"), (VISIBLE, "uncallable_owner")]),
            ("drop function api.list_hub(jsonb, jsonb), api.mark_hub(jsonb, jsonb)",
             [("api.list_hub(jsonb,jsonb)", "function_missing"), ("api.mark_hub(jsonb,jsonb)", "function_missing")]),
            ("create function engine.fold(text, int) returns text language sql as 'select $1'",
             [("engine.fold(text,integer)", "function_unexpected")]),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_named(self, own: Server, change: str, faults: list[tuple[str, str]]) -> None:
        forge(own, change)
        assert Health(own.owner).access_faults() == faults

    def test_what_is_applied_again_mends_the_code_and_hides_nothing_else(self, own: Server) -> None:
        forge(
            own,
            "alter policy reader on almagest.items using (true)",
            "drop function api.list_hub(jsonb, jsonb)",
            f"alter function {VISIBLE} security definer",
            "create policy others on almagest.facts for select to almagest_reader using (true)",
            "alter table almagest.items drop constraint items_state_check",
            "alter table almagest.items add constraint items_kind_only check (true)",
        )
        assert len(Health(own.owner).access_faults()) == 6
        migrate(own.database.url, reapply=True)
        assert Health(own.owner).access_faults() == [
            ("items_state_check of items", "constraint_missing"),
            ("items_kind_only of items", "constraint_unexpected"),
            ("others of facts", "policy_unexpected"),
        ]

    def test_a_later_migration_says_what_there_has_to_be(self, own: Server, tmp_path: Path) -> None:
        later = tmp_path / "sql"
        shutil.copytree(sql_directory(), later)
        (later / "migrations" / f"{len(read_migrations(later)) + 1:04}_later.sql").write_text(
            "alter table almagest.items drop constraint items_state_check;\n"
            "alter table almagest.pins add constraint later check (true);\n"
        )
        forge(own, "alter table almagest.orgs drop constraint orgs_slug_check")
        migrate(own.database.url, directory=later)
        assert Health(own.owner).access_faults() == [("orgs_slug_check of orgs", "constraint_missing")]

    def test_what_is_made_by_itself_is_nobodys_fault(self, own: Server) -> None:
        retain(Retention(own.owner), 60)
        assert Health(own.owner).access_faults() == []

    def test_where_nothing_was_kept_nothing_is_compared(self, own: Server) -> None:
        forge(own, "delete from almagest.made_objects", "drop policy reader on almagest.items")
        assert Health(own.owner).access_faults() == []
        migrate(own.database.url, reapply=True)
        forge(own, "drop policy reader on almagest.items")
        assert Health(own.owner).access_faults() == [("reader of items", "policy_missing")]

    def test_of_a_table_that_is_gone_only_the_table_is_missing(self, own: Server) -> None:
        forge(own, "drop table almagest.pins cascade")
        assert [name for name, fault in Health(own.owner).access_faults() if fault != "function_missing"] == []
        assert ("pins", "missing") in Health(own.owner).table_faults()

    def test_the_whole_api_is_out_of_reach(self, own: Server) -> None:
        forge(own, "revoke usage on schema api from service_role")
        names = {name for name, fault in Health(own.owner).access_faults() if fault == "uncallable"}
        assert len(names) == own.value("select count(*) from pg_proc where pronamespace = 'api'::regnamespace")

    def test_a_reader_that_no_policy_binds(self, own: Server) -> None:
        forge(own, "alter role almagest_reader bypassrls")
        try:
            assert Health(own.owner).access_faults() == [("almagest_reader", "unbound_reader")]
        finally:
            forge(own, "alter role almagest_reader nobypassrls")


class TestIndexes:
    def test_the_expected_ones_are_those_of_the_migrations(self, own: Server) -> None:
        made = own.rows(
            "select c.relname from pg_index as x join pg_class as c on c.oid = x.indexrelid"
            " where c.relnamespace = 'almagest'::regnamespace and not c.relispartition"
            " and not exists (select from pg_constraint as k where k.conindid = c.oid)"
        )
        assert sorted(made) == sorted(own.rows("select name from engine.expected_indexes()"))
        assert Health(own.owner).index_faults() == []

    @pytest.mark.parametrize(
        "index", ["lexical_terms", "embeddings_vector_1", "items_duplicate", "activations_item", "retrievals_age"]
    )
    def test_a_missing_one_is_made_as_it_was(self, own: Server, index: str) -> None:
        forge(own, f"drop index almagest.{index}")
        [(name, fault, definition)] = Health(own.owner).index_faults()
        assert (name, fault) == (index, "missing")
        Remedy(own.owner).mend_index(name, fault, definition)
        assert Health(own.owner).index_faults() == []

    def test_an_invalid_one_is_made_again(self, own: Server) -> None:
        forge(own, "update pg_index set indisvalid = false where indexrelid = 'almagest.embeddings_vector_1'::regclass")
        [fault] = Health(own.owner).index_faults()
        assert fault[:2] == ("embeddings_vector_1", "invalid")
        Remedy(own.owner).mend_index(*fault)
        assert Health(own.owner).index_faults() == []

    def test_what_a_build_left_that_broke_off_is_dropped(self, own: Server) -> None:
        forge(
            own,
            "create index items_type_ccnew on almagest.items (org_id, type)",
            "update pg_index set indisvalid = false where indexrelid = 'almagest.items_type_ccnew'::regclass",
        )
        [fault] = Health(own.owner).index_faults()
        assert fault == ("items_type_ccnew", "leftover", None)
        assert orphans(own) == {"indexes_invalid": 1}
        Remedy(own.owner).mend_index(*fault)
        assert own.value("select to_regclass('almagest.items_type_ccnew') is null")

    @pytest.mark.parametrize("name", ["mine", "items_type_ccmine", "mine_ccnew", "my_account_index"])
    def test_an_invalid_one_that_is_not_ours_is_named_and_left(self, own: Server, name: str) -> None:
        forge(
            own,
            f"create index {name} on almagest.items (org_id, title)",
            f"update pg_index set indisvalid = false where indexrelid = 'almagest.{name}'::regclass",
        )
        assert Health(own.owner).index_faults() == [(name, "foreign", None)]
        assert orphans(own) == {}
        Remedy(own.owner).mend_index(name, "foreign", None)
        assert Health(own.owner).index_faults() == [(name, "foreign", None)]

    @pytest.mark.parametrize(("constraint", "fault"), [("items_pkey", "invalid"), ("retrievals_rest_pkey", "invalid")])
    def test_those_of_constraints_and_partitions_are_ours(self, own: Server, constraint: str, fault: str) -> None:
        forge(own, f"update pg_index set indisvalid = false where indexrelid = 'almagest.{constraint}'::regclass")
        assert Health(own.owner).index_faults() == [(constraint, fault, None)]
        Remedy(own.owner).mend_index(constraint, fault, None)
        assert Health(own.owner).index_faults() == []

    @pytest.mark.parametrize(
        ("before", "name", "statement"),
        [
            ("select 1", "my_ccnew", "create index concurrently my_ccnew on almagest.items (title)"),
            (
                "drop index almagest.items_type",
                "items_type",
                "create index concurrently items_type on almagest.items (org_id, type)",
            ),
            ("select 1", "items_type_ccnew", "reindex index concurrently almagest.items_type"),
            (
                "drop index almagest.items_recent",
                "items_recent",
                "create index concurrently items_type_ccnew on almagest.items (title)",
            ),
        ],
    )
    def test_what_a_person_is_building_is_left_alone(self, own: Server, before: str, name: str, statement: str) -> None:
        """While it waits for a writer, its index is invalid; who disturbs it then ends it by a deadlock."""
        forge(own, before)
        missing = [("items_recent", "missing")] if name == "items_recent" else []
        with (
            own.database.connect(autocommit=False) as writer,
            own.database.connect() as person,
            ThreadPoolExecutor(1) as pool,
        ):
            writer.execute("update almagest.items set title = title where false")
            building = pool.submit(person.execute, statement.encode())
            try:
                for _ in range(100):
                    if own.value("select exists (select from pg_index where not indisvalid)"):
                        break
                    time.sleep(0.05)
                else:
                    pytest.fail("it does not wait")
                assert [each[:2] for each in Health(own.owner).index_faults()] == missing
                mending = Mending(cast(Runtime, None), own.owner)
                with deadline.limit(3):
                    assert rebuild_indexes(mending) == {"made": [], "failed": []}
            finally:
                writer.rollback()
            building.result(30)
        assert own.value(
            "select bool_and(indisvalid) from pg_index where indexrelid = to_regclass('almagest.' || %s)"
            " or indrelid = 'almagest.items'::regclass",
            name,
        )
        assert [each[:2] for each in Health(own.owner).index_faults()] == missing

    def test_one_that_cannot_be_made_is_not_in_the_way_of_others(self, own: Server) -> None:
        forge(own, "drop index almagest.items_type", "drop index almagest.orgs_system")
        forge(
            own,
            "insert into almagest.orgs (slug, name, is_system) values ('one', 'One', true), ('two', 'Two', true)",
        )
        mending = Mending(cast(Runtime, None), own.owner)
        assert rebuild_indexes(mending) == {"made": ["items_type"], "failed": ["orgs_system"]}

    def test_one_that_is_made_otherwise_is_told_and_left(self, own: Server) -> None:
        forge(own, "drop index almagest.items_type", "create index items_type on almagest.items (type)")
        [(name, fault, definition)] = Health(own.owner).index_faults()
        assert (name, fault) == ("items_type", "changed")
        Remedy(own.owner).mend_index(name, fault, definition)
        assert Health(own.owner).index_faults() == [(name, fault, definition)]


class TestOrphans:
    @pytest.fixture
    def item(self, server: Server, org: Org) -> str:
        return write_one(server, org.owner, "one", one_hot(1))

    def test_there_are_none(self, server: Server, org: Org, item: str) -> None:
        write_one(server, org.owner, "two, without a vector yet")
        assert orphans(server) == {}

    def test_chunks_without_vectors(self, server: Server, item: str) -> None:
        server.rows("delete from almagest.embeddings")
        assert orphans(server) == {"chunks_without_vectors": 1}
        remedy = Remedy(server.owner)
        assert len(remedy.mark_orphans("items_without_chunks", MODEL, 10)) == 0
        assert len(remedy.mark_orphans("chunks_without_vectors", MODEL, 10)) == 1
        assert server.rows("select index_status, index_attempts from almagest.items") == [("text_ready", 0)]
        assert orphans(server) == {"items_to_index_again": 1}
        assert len(remedy.mark_orphans("chunks_without_vectors", MODEL, 10)) == 0

    def test_chunks_without_terms(self, server: Server, item: str) -> None:
        server.rows("delete from almagest.lexical")
        assert orphans(server) == {"chunks_without_terms": 1}
        assert len(Remedy(server.owner).mark_orphans("chunks_without_terms", MODEL, 10)) == 1
        assert server.rows("select index_status from almagest.items") == ["text_ready"]
        assert orphans(server) == {"items_to_index_again": 1}

    def test_chunks_whose_terms_are_empty(self, server: Server, org: Org, item: str) -> None:
        write_one(server, org.owner, "。", one_hot(2))  # of what has no words there are none to miss
        right = server.rows("select chunk_id, terms::text from almagest.lexical order by 1")
        server.rows("update almagest.lexical set terms = ''")
        assert orphans(server) == {"chunks_without_terms": 1}
        assert Remedy(server.owner).mark_orphans("chunks_without_terms", MODEL, 10) == [UUID(item)]
        server.rows("select engine.refresh_lexical(i) from almagest.items as i where i.id = %s", item)
        assert server.rows("select chunk_id, terms::text from almagest.lexical order by 1") == right

    @pytest.mark.parametrize("table", ["lexical", "embeddings"])
    @pytest.mark.parametrize(
        "change",
        [
            *(f"{column} = gen_random_uuid()" for column in ("org_id", "user_id", "client_id", "deal_id")),
            "agent_ids = array[gen_random_uuid()]",
            "state = 'archived'",
            "state = 'replaced'",
        ],
    )
    def test_copies_that_differ(self, server: Server, org: Org, item: str, table: str, change: str) -> None:
        write_one(server, org.owner, "two", one_hot(2))
        copies = f"select (to_jsonb(t) - 'vector')::text from almagest.{table} as t order by chunk_id"
        right = server.rows(copies)
        forge(server, f"update almagest.{table} set {change} where item_id = '{item}'")
        assert orphans(server) == {"copies_that_differ": 1}
        assert Remedy(server.owner).mend_copies(10) == 1
        assert (orphans(server), server.rows(copies)) == ({}, right)
        assert Remedy(server.owner).mend_copies(10) == 0

    @pytest.mark.parametrize("table", ["lexical", "embeddings"])
    def test_what_an_edit_replaced_stays_replaced(self, server: Server, org: Org, item: str, table: str) -> None:
        changes = {"title": "another"}
        request = {"id": item, "version": 1, "changes": changes, "idempotency": {"key": "k", "request_hash": "h"}}
        server.call("update_item", org.owner, request)
        assert orphans(server) == {}
        server.call("archive_item", org.owner, {"id": item, "idempotency": {"key": "l", "request_hash": "h"}})
        assert orphans(server) == {}
        states = f"select state from almagest.{table} order by chunk_id"
        assert server.rows(states) == ["replaced", "archived"]
        server.rows(f"update almagest.{table} set state = 'active' where state = 'replaced'")
        assert orphans(server) == {"copies_that_differ": 1}
        assert Remedy(server.owner).mend_copies(10) == 1
        assert (orphans(server), server.rows(states)) == ({}, ["replaced", "archived"])

    def test_a_sample_is_of_what_is_searched(self, server: Server, org: Org, item: str) -> None:
        health = Health(server.owner)
        assert health.sample_vectors("another", 20) == []
        two = write_one(server, org.owner, "two", one_hot(2), title="Two")
        write_one(server, org.owner, "waits for its vector")
        found = {str(row[0]): row[1:] for row in health.sample_vectors(MODEL, 100)}
        assert found.keys() == {item, two}
        assert found[two] == ("Two", None, "two", one_hot(2))
        assert len(health.sample_vectors(MODEL, 1)) <= 1
        more = write(server, org.owner, *(memory(f"more {n}", one_hot(n)) for n in range(10)))
        assert len(more) == 10
        assert len(health.sample_vectors(MODEL, 40)) == 12

    def test_so_many_and_no_more(self, server: Server, org: Org, item: str) -> None:
        write(server, org.owner, *(memory(f"more {n}", one_hot(n)) for n in range(5)))
        server.rows("delete from almagest.embeddings")
        assert len(Remedy(server.owner).mark_orphans("chunks_without_vectors", MODEL, 4)) == 4
        assert orphans(server) == {"chunks_without_vectors": 2, "items_to_index_again": 4}

    def test_what_an_edit_replaced_needs_no_vector(self, server: Server, org: Org, item: str) -> None:
        changes = {"title": "another"}
        request = {"id": item, "version": 1, "changes": changes, "idempotency": {"key": "k", "request_hash": "h"}}
        server.call("update_item", org.owner, request)
        server.rows("delete from almagest.embeddings where state = 'replaced'")
        assert orphans(server) == {}

    def test_vectors_of_another_model_alone(self, server: Server, item: str) -> None:
        assert orphans(server, "new-model") == {"chunks_of_another_model": 1}
        assert len(Remedy(server.owner).mark_orphans("chunks_of_another_model", "new-model", 10)) == 1
        assert orphans(server, "new-model") == {"items_to_index_again": 1}

    def test_vectors_of_another_model_beside_the_right_one(self, server: Server, item: str) -> None:
        server.rows("select engine.register_model('old-model')")
        server.rows(
            "insert into almagest.embeddings (chunk_id, model_id, item_id, org_id, state, vector)"
            " select chunk_id, engine.model_id('old-model'), item_id, org_id, state, vector from almagest.embeddings"
        )
        assert orphans(server) == {"superfluous_vectors": 1}
        assert orphans(server, "old-model") == {"superfluous_vectors": 1}
        assert Remedy(server.owner).delete_superfluous_vectors(MODEL, 10) == 1
        assert server.rows("select model_id = engine.model_id(%s) from almagest.embeddings", MODEL) == [True]
        assert Remedy(server.owner).delete_superfluous_vectors("new-model", 10) == 0

    def test_which_model_is_in_force_may_be_unknown(self, server: Server, item: str) -> None:
        assert orphans(server, None) == {"chunks_of_another_model": None, "superfluous_vectors": None}

    def test_vectors_of_zeros(self, server: Server, org: Org, item: str) -> None:
        write_one(server, org.owner, "two", one_hot(2))
        forge(
            server,
            "set search_path = extensions, public",
            "update almagest.embeddings set vector = array_fill(0::real, array[384])::halfvec"
            f" where item_id = '{item}'",
        )
        assert orphans(server) == {"zero_vectors": 1}
        assert Remedy(server.owner).delete_zero_vectors(10) == 1
        assert orphans(server) == {"chunks_without_vectors": 1}

    def test_chunks_without_item(self, server: Server, item: str) -> None:
        forge(server, f"delete from almagest.items where id = '{item}'")
        assert orphans(server) == {"chunks_without_item": 1}
        assert Remedy(server.owner).delete_chunks_without_item(10) == 1
        assert server.rows(
            "select count(*) from almagest.lexical union all select count(*) from almagest.embeddings"
        ) == [
            0,
            0,
        ]

    def test_rows_without_chunk(self, server: Server, item: str) -> None:
        forge(server, "delete from almagest.chunks", f"delete from almagest.items where id = '{item}'")
        assert orphans(server) == {"rows_without_chunk": 2}
        assert Remedy(server.owner).delete_rows_without_chunk(10) == 2
        assert orphans(server) == {}

    @pytest.mark.parametrize("status", ["search_ready", "text_ready"])
    def test_items_without_chunks(self, server: Server, item: str, status: str) -> None:
        server.rows("delete from almagest.chunks")
        server.rows("update almagest.items set index_status = %s", status)
        assert orphans(server) == {"items_without_chunks": 1}
        assert len(Remedy(server.owner).mark_orphans("items_without_chunks", MODEL, 10)) == 1
        assert server.rows("select index_status from almagest.items") == ["pending"]

    def test_leases_of_items(self, server: Server, item: str) -> None:
        take = (
            "update almagest.items set index_status = 'indexing', lease_owner = 'w',"
            " lease_expires_at = now() - make_interval(mins => %s)"
        )
        server.rows(take, 5)
        assert orphans(server) == {}
        server.rows(take, 11)
        assert orphans(server) == {"leases_over": 1}
        assert Remedy(server.owner).release_leases() == 1
        assert server.rows("select index_status, lease_owner, index_after <= now() from almagest.items") == [
            ("text_ready", None, True)
        ]

    def test_a_lease_without_an_end_is_over(self, server: Server, item: str) -> None:
        server.rows("update almagest.items set index_status = 'indexing', lease_owner = 'w', lease_expires_at = null")
        assert orphans(server) == {"leases_over": 1}
        assert server.rows("select indexing, leases_expired from dashboard.index_backlog") == [(1, 1)]
        assert Remedy(server.owner).release_leases() == 1
        assert server.rows("select index_status, lease_owner from almagest.items") == [("text_ready", None)]

    def test_leases_of_runs(self, server: Server) -> None:
        insert = (
            "insert into almagest.job_runs (job, scheduled_for, state, worker, lease_expires_at)"
            " values (%s, %s, 'running', 'w', now() - make_interval(mins => %s))"
        )
        server.rows(insert, "sleeping", datetime(2026, 1, 1, tzinfo=UTC), 11)
        server.rows(insert, "waking", datetime(2026, 1, 1, tzinfo=UTC), 9)
        try:
            assert orphans(server) == {"leases_over": 1}
            assert Remedy(server.owner).release_leases() == 1
            assert server.rows("select job, state from almagest.job_runs order by job") == [
                ("sleeping", "failed"),
                ("waking", "running"),
            ]
        finally:
            server.rows("delete from almagest.job_runs")

    @pytest.mark.parametrize("column", ["documents", "total_length"])
    def test_drifted_statistics(self, server: Server, org: Org, column: str) -> None:
        write(server, org.owner, *(memory(f"text number {n}", one_hot(n)) for n in range(20)))
        server.rows("select engine.count_org(%s, 300)", org.id)
        assert orphans(server) == {}
        right = server.rows("select documents, total_length from almagest.partition_statistics")
        server.rows(f"update almagest.partition_statistics set {column} = {column} * 1.08")
        assert orphans(server) == {}
        server.rows(f"update almagest.partition_statistics set {column} = {column} / 2")
        assert orphans(server) == {"drifted_statistics": 1}
        assert Remedy(server.owner).recount_drifted(10) == 1
        assert server.rows("select documents, total_length from almagest.partition_statistics") == right

    @pytest.mark.parametrize(
        "change",
        [
            "update almagest.term_statistics set documents = documents / 2",
            "delete from almagest.term_statistics where term in"
            " (select term from almagest.term_statistics order by documents desc limit 20)",
        ],
    )
    def test_drifted_terms(self, server: Server, org: Org, change: str) -> None:
        texts = [f"gardens and walls of the old town, {n % 7} doors and number {n}" for n in range(700)]
        fill(server, Rows(org, texts))
        server.rows("select engine.count_org(%s, 300)", org.id)
        assert Health(server.owner).count_orphans("drifted_statistics", MODEL) == 0
        right = sorted(server.rows("select term, documents from almagest.term_statistics"))
        server.rows("update almagest.term_statistics set documents = documents * 1.08")
        assert Health(server.owner).count_orphans("drifted_statistics", MODEL) == 0
        server.rows(change)
        assert Health(server.owner).count_orphans("drifted_statistics", MODEL) == 1
        assert Remedy(server.owner).recount_drifted(10) == 1
        assert sorted(server.rows("select term, documents from almagest.term_statistics")) == right
        assert Health(server.owner).count_orphans("drifted_statistics", MODEL) == 0


class TestRuns:
    @pytest.fixture(autouse=True)
    def no_runs_stay(self, server: Server) -> Iterator[None]:
        yield
        server.rows("delete from almagest.job_runs")

    def run(self, server: Server, job: str = "health") -> int:
        made: int = server.value(
            "insert into almagest.job_runs (job, scheduled_for, state) values (%s, clock_timestamp(), 'running')"
            " returning id",
            job,
        )
        return made

    def check(self, server: Server, run: int, status: str, name: str = "staleness", hours: float = 0) -> None:
        Health(server.owner).store_check(
            run, {"name": name, "status": status, "sentence": "So.", "duration_ms": 1, "figures": {}}
        )
        server.rows(
            "update almagest.health_checks set checked_at = clock_timestamp() - make_interval(secs => %s)"
            " where run_id = %s and name = %s",
            hours * 3600, run, name,
        )  # fmt: skip

    def unhealthy(self, server: Server, status: str = "failed", hours: float = 0) -> int:
        run = self.run(server)
        self.check(server, run, status, hours=hours)
        assert Health(server.owner).store_run(run) == status
        server.rows(
            "update almagest.health_runs set checked_at = clock_timestamp() - make_interval(secs => %s)"
            " where run_id = %s",
            hours * 3600, run,
        )  # fmt: skip
        return run

    def claim(self, server: Server, *, again: bool = False, run: int | None = None) -> int | None:
        return Remedy(server.owner).claim(run or self.run(server, "remediation"), again=again)

    def test_the_worst_status_is_the_runs(self, server: Server) -> None:
        run = self.run(server)
        health = Health(server.owner)
        assert health.store_run(run) == "failed"  # nothing was checked
        for name, status, worst in (("a", "ok", "ok"), ("b", "degraded", "degraded"), ("c", "failed", "failed")):
            self.check(server, run, status, name)
            assert health.store_run(run) == worst
        assert health.last_run() == run
        # One with a lower number that was taken up again later is the later one.
        later = self.run(server)
        health.store_run(later)
        assert health.last_run() == later
        server.rows("update almagest.health_runs set checked_at = now() - interval '1 hour' where run_id = %s", later)
        assert health.last_run() == run

    def test_the_latest_unhealthy_run_is_claimed_once(self, server: Server) -> None:
        self.unhealthy(server, hours=13)
        latest = self.unhealthy(server, "degraded", hours=1)
        mine = self.run(server, "remediation")
        assert self.claim(server, run=mine) == latest
        assert self.claim(server, run=mine) == latest  # taken up
        assert self.claim(server) is None  # the older one is past
        assert self.claim(server, again=True) == latest

    def test_what_was_well_since_is_past(self, server: Server) -> None:
        self.unhealthy(server, hours=13)
        self.unhealthy(server, "ok", hours=1)
        assert self.claim(server) is None
        assert self.claim(server, again=True) is None

    def test_what_is_older_than_a_day_is_past(self, server: Server) -> None:
        self.unhealthy(server, hours=25)
        assert self.claim(server) is None

    def test_two_at_once_do_not_claim_the_same(self, server: Server) -> None:
        self.unhealthy(server, hours=2)
        latest = self.unhealthy(server, hours=1)
        claimed = at_once(server, *[self.claim] * 6)
        assert sorted(claimed, key=str) == sorted([latest, *[None] * 5], key=str)

    def test_tries_are_counted_since_the_check_passed(self, server: Server) -> None:
        def tried(
            state: str, action: str = "index_waiting", run: int | None = None, before: dict[str, int] | None = None
        ) -> int:
            run = run or self.run(server, "remediation")
            remedy.record(
                {
                    "run_id": run,
                    "check_name": "staleness",
                    "action": action,
                    "attempt": 1,
                    "state": state,
                    "before": before or {},
                    "started_at": datetime.now(UTC).isoformat(),
                }
            )
            return run

        def in_vain(action: str = "index_waiting", kinds: tuple[str, ...] = (), run: int = 0) -> int:
            return remedy.tries_in_vain("staleness", action, kinds, run)

        remedy = Remedy(server.owner)
        assert in_vain() == 0
        first = tried("failed", before={"waiting": 3, "others": 0})
        tried("unchanged", "add_partitions", first)
        tried("unchanged", before={"waiting": 2, "others": 1})
        tried("left")  # got somewhere
        tried("mended")
        tried("left", "none")  # was not tried
        assert in_vain() == 2
        assert in_vain("add_partitions") == 1
        assert in_vain(run=first) == 1
        assert in_vain(kinds=("waiting",)) == 2
        assert in_vain(kinds=("waiting", "others")) == 1  # the others were not there at first
        assert in_vain(kinds=("what is new",)) == 0
        assert remedy.tries_in_vain("canary_quality", "index_waiting", (), 0) == 0
        assert [each["what"] for each in remedy.tried("staleness")] == [
            "index_waiting", "add_partitions", *["index_waiting"] * 3,
        ]  # fmt: skip
        self.check(server, self.run(server), "ok")
        assert in_vain() == 0
        assert remedy.tried("staleness") == []


def test_the_backlog_is_measured_from_when_an_item_began_to_wait(server: Server, org: Org) -> None:
    health = Health(server.owner)
    assert health.backlog() == (0, 0.0)
    item = write_one(server, org.owner, "without a vector")
    write_one(server, org.owner, "with a vector", one_hot(1))
    items, seconds = health.backlog()
    assert (items, seconds < 5) == (1, True)
    server.rows("update almagest.items set index_after = now() - interval '20 minutes' where id = %s", item)
    assert 1200 <= health.backlog()[1] < 1205
    # Due in the far future, though nobody tried it: it has waited since it was written.
    server.rows(
        "update almagest.items set index_after = '2099-01-01', updated_at = now() - interval '3 hours' where id = %s",
        item,
    )
    assert 10800 <= health.backlog()[1] < 10805
    [seconds] = server.rows("select oldest_seconds::float from dashboard.index_backlog")
    assert 10800 <= seconds < 10805
    # Somebody is at it for the first time: it waits no more, though it was written long ago.
    server.rows(
        "update almagest.items set index_attempts = 1, index_status = 'indexing', lease_owner = 'one',"
        " lease_expires_at = now() + interval '1 minute' where id = %s",
        item,
    )
    assert health.backlog() == (1, 0.0)
    server.rows("update almagest.items set lease_expires_at = now() - interval '1 minute' where id = %s", item)
    assert health.backlog()[1] > 10800
    # Tried, and due in an hour: it has waited since it was written.
    server.rows(
        "update almagest.items set index_after = now() + interval '1 hour', index_attempts = 3,"
        " index_status = 'failed', updated_at = now() - interval '2 hours' where id = %s",
        item,
    )
    assert 7200 <= health.backlog()[1] < 7205


def test_residue_is_found_in_every_kind_of_table(server: Server, org: Org) -> None:
    word = "zyxprobex"
    item = write_one(server, org.owner, f"about {word}", one_hot(1), tags=[word])
    health = Health(server.owner)

    def residue() -> dict[str, int]:
        return health.residue(org.id, UUID(item), word)

    assert residue() == {"items": 1, "chunks": 1, "lexical": 1, "item_tags": 1}
    search = {"query": word, "k": 3}
    server.call("search", org.owner, search)
    assert residue()["retrievals"] == 1
    server.call("erase_item", org.owner, {"id": item, "strict": True, "idempotency": {"key": "k", "request_hash": "h"}})
    assert residue() == {}


def test_last_successes_and_partitions(server: Server) -> None:
    health = Health(server.owner)
    at = datetime(2026, 5, 17, tzinfo=UTC)
    assert health.partitions_missing(at) == ["retrievals_2026_06", "activations_2026_06"]
    assert health.last_successes(["never_done"]) == {"never_done": None}
    ended = datetime(2026, 1, 2, tzinfo=UTC)
    insert = "insert into almagest.job_runs (job, scheduled_for, state, finished_at) values ('done', %s, %s, %s)"
    server.rows(insert, ended, "succeeded", ended)
    server.rows(insert, at, "failed", at)
    try:
        assert health.last_successes(["done"]) == {"done": ended}
    finally:
        server.rows("delete from almagest.job_runs")
    assert health.installed_at() <= datetime.now(UTC)


def test_a_limit_ends_a_statement_and_stays_in_its_own_transaction(server: Server) -> None:
    """R2: a transaction pooler gives the next transaction to somebody else."""
    health, remedy = Health(server.owner), Remedy(server.owner)
    default = server.value("show statement_timeout")
    for limited in (health, remedy):
        limited.limit(0.05)
        with pytest.raises(psycopg.errors.QueryCanceled):
            limited._rows("select pg_sleep(20)")
        assert server.value("show statement_timeout") == default
    forge(server, "drop index almagest.items_type")
    [fault] = health.index_faults()
    remedy.limit(30)
    remedy.mend_index(*fault)
    assert server.value("show statement_timeout") == default
    assert health.index_faults() == []


class TestIndexesThatCannotBeMade:
    def test_duplicates_are_counted_as_each_unique_index_sees_them(self, own: Server) -> None:
        for name, definition in own.rows(
            "select name, definition from engine.expected_indexes() where definition like 'CREATE UNIQUE %'"
        ):
            assert Remedy(own.owner).duplicates_of(name, definition) == 0
        assert Remedy(own.owner).duplicates_of("items_type", "CREATE INDEX items_type ON almagest.items (type)") == 0
        assert Remedy(own.owner).duplicates_of("orgs_pkey", None) == 0

        twice = (
            "insert into almagest.hub_feed (key, source, severity, title, found, to_do)"
            " select 'k', 's', 'info', 't', 'f', 'd' from generate_series(1, 2)"
        )
        own.rows("drop index almagest.hub_feed_open")
        own.rows(twice)
        [definition] = own.rows("select definition from engine.expected_indexes() where name = 'hub_feed_open'")
        remedy = Remedy(own.owner)
        assert remedy.duplicates_of("hub_feed_open", definition) == 1  # nulls are the same to it
        assert remedy.duplicates_of("hub_feed_open", definition.replace(" NULLS NOT DISTINCT", "")) == 0
        own.rows("update almagest.hub_feed set closed_at = now()")
        assert remedy.duplicates_of("hub_feed_open", definition) == 0

    def test_what_fails_leaves_nothing_and_is_tried_by_the_name_of_the_index(
        self, own: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [definition] = own.rows("select definition from engine.expected_indexes() where name = 'members_email'")
        forge(
            own,
            "drop index almagest.members_email",
            "insert into almagest.members (org_id, email, role)"
            " select o.id, 'a@a.example', 'member' from gen_random_uuid() as o (id), generate_series(1, 2)",
        )
        with pytest.raises(psycopg.errors.UniqueViolation):
            own.owner.execute(definition.replace("INDEX", "INDEX CONCURRENTLY", 1))
        mending = Mending(cast(Runtime, None), own.owner)
        assert _indexes_to_mend(mending) == {}
        # Duplicates that come in between the look and the build are as if nobody had looked.
        monkeypatch.setattr(Remedy, "duplicates_of", lambda *_: 0)
        for _ in range(2):
            assert _indexes_to_mend(mending) == {"members_email": 1}
            assert rebuild_indexes(mending) == {"made": [], "failed": ["members_email"]}
            assert [name for name, _, _ in mending.health.index_faults()] == ["members_email"]
