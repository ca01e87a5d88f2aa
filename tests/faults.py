"""Faults to put into a running system by hand, each with the check that must go red, for tests of its health."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from almagest.embedding.embedder import Embedder
from almagest.runtime import Runtime
from tests.support import Database

WRITER = "select set_config('session_replication_role', 'replica', false)"
OTHER_MODEL = "another-model@000000000000"


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    name
        What is wrong.
    check
        Which check must no longer be ok.
    status
        What it must say.
    put
        Puts it in.
    kind
        Of orphans, the figure that must not be zero.
    """

    name: str
    check: str
    status: str
    put: Callable[[Runtime, Database], None]
    kind: str | None = None


def as_superuser(database: Database, *statements: str) -> None:
    """Run statements that no foreign key and no right is in the way of."""
    with database.connect("supabase_admin") as connection:
        connection.execute(WRITER)
        for statement in statements:
            connection.execute(statement.encode())


def embedder_gone(runtime: Runtime, database: Database) -> None:
    """The model's files are not where they should be, and none is in memory; `embedder_back` undoes it."""
    nowhere = runtime.settings.model_path.parent / "nowhere"
    _use_embedder(runtime, Embedder(nowhere))
    _use_directory(runtime, nowhere)


def embedder_back(runtime: Runtime) -> None:
    """The model's files are back."""
    _use_directory(runtime, None)
    runtime.renew_embedder()


def _use_directory(runtime: Runtime, directory: Path | None) -> None:
    runtime.settings = runtime.settings.model_copy(update={"model_directory": directory})
    runtime.settings.__dict__.pop("model_path", None)  # known already of the other one


def embedder_returns_zeros(runtime: Runtime, database: Database) -> None:
    """The model in memory answers, and every number is zero; its files are whole."""
    _use_embedder(runtime, _Zeros(runtime.embedder))


class _Zeros:
    """An embedder whose vectors are all zeros."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def embed_query(self, text: str) -> list[float]:
        return [0.0] * self._embedder.dimension

    def embed_passages(self, texts: list[str]) -> list[list[float]]:
        return [[0.0] * self._embedder.dimension for _ in texts]


def _use_embedder(runtime: Runtime, embedder: Any) -> None:
    runtime.__dict__["embedder"] = cast(Embedder, embedder)


# The checks' own items are left alone here: they have faults of their own.
_CHUNKS = (
    "select k.id from almagest.chunks as k join almagest.items as i on i.id = k.item_id and i.version = k.version"
    " join almagest.orgs as o on o.id = i.org_id and not o.is_system"
    " where i.index_status = 'search_ready' order by k.id limit 100"
)


def vectors_removed(runtime: Runtime, database: Database) -> None:
    """Up to 100 chunks lose their vectors."""
    as_superuser(database, f"delete from almagest.embeddings where chunk_id in ({_CHUNKS})")


def vectors_of_another_model(runtime: Runtime, database: Database) -> None:
    """Up to 100 chunks have vectors of another model in place of their own."""
    as_superuser(
        database,
        f"select engine.register_model('{OTHER_MODEL}')",
        f"update almagest.embeddings set model_id = engine.model_id('{OTHER_MODEL}') where chunk_id in ({_CHUNKS})",
    )


def vectors_of_another_model_beside(runtime: Runtime, database: Database) -> None:
    """Up to 100 chunks have vectors of another model beside their own."""
    as_superuser(
        database,
        f"select engine.register_model('{OTHER_MODEL}')",
        "insert into almagest.embeddings (chunk_id, model_id, item_id, org_id, user_id, client_id, deal_id, agent_ids,"
        f" state, vector) select chunk_id, engine.model_id('{OTHER_MODEL}'), item_id, org_id, user_id, client_id,"
        f" deal_id, agent_ids, state, vector from almagest.embeddings where chunk_id in ({_CHUNKS})",
    )


def vectors_of_zeros(runtime: Runtime, database: Database) -> None:
    """Up to 100 chunks have vectors of zeros."""
    as_superuser(
        database,
        "set search_path = extensions, public",
        "update almagest.embeddings set vector = array_fill(0::real, array[384])::halfvec"
        f" where chunk_id in ({_CHUNKS})",
    )


def item_without_chunks(runtime: Runtime, database: Database) -> None:
    """An item is marked ready, and has no chunks."""
    as_superuser(
        database,
        f"delete from almagest.chunks where item_id = (select item_id from almagest.chunks where id in ({_CHUNKS})"
        " order by id limit 1)",
        "delete from almagest.lexical as l where not exists (select from almagest.chunks as k where k.id = l.chunk_id)",
        "delete from almagest.embeddings as e where not exists (select from almagest.chunks as k"
        " where k.id = e.chunk_id)",
    )


def chunks_without_item(runtime: Runtime, database: Database) -> None:
    """Three chunks, with terms and vectors, are of an item that is not there."""
    as_superuser(
        database,
        "insert into almagest.chunks (item_id, org_id, position, start_offset, end_offset, text)"
        " select gen_random_uuid(), gen_random_uuid(), n, 0, 6, 'orphan' from generate_series(0, 2) as n",
    )


def rows_without_chunk(runtime: Runtime, database: Database) -> None:
    """The terms and vectors of an item's chunks are left, and the chunks are gone together with the item."""
    as_superuser(
        database,
        "create temporary table gone as select id, item_id from almagest.chunks where item_id ="
        f" (select item_id from almagest.chunks where id in ({_CHUNKS}) order by id desc limit 1)",
        "delete from almagest.chunks where id in (select id from gone)",
        "delete from almagest.items where id in (select item_id from gone)",
    )


def lease_of_a_dead_worker(runtime: Runtime, database: Database) -> None:
    """A worker that took an item an hour ago never came back."""
    as_superuser(
        database,
        "update almagest.items set index_status = 'indexing', lease_owner = 'dead', index_attempts = 1,"
        " index_after = now() + interval '1 hour', lease_expires_at = now() - interval '1 hour'"
        f" where id = (select item_id from almagest.chunks where id in ({_CHUNKS}) order by id limit 1)",
    )


def run_of_a_dead_worker(runtime: Runtime, database: Database) -> None:
    """A worker that took a run an hour ago never came back."""
    as_superuser(
        database,
        "insert into almagest.job_runs (job, scheduled_for, state, worker, lease_expires_at)"
        " values ('retention', now() - interval '1 hour', 'running', 'dead', now() - interval '1 hour')",
    )


def statistics_off_by_half(runtime: Runtime, database: Database) -> None:
    """An org counts half of the chunks that it has."""
    as_superuser(
        database,
        "select engine.count_org(l.org_id, 300) from (select org_id from almagest.lexical group by org_id"
        " order by count(*) desc limit 1) as l",
        "update almagest.partition_statistics set documents = (documents + 1) / 2, total_length = total_length / 2",
    )


def index_dropped(runtime: Runtime, database: Database) -> None:
    """The index of the keyword leg is gone."""
    as_superuser(database, "drop index almagest.lexical_terms")


def index_of_partitions_dropped(runtime: Runtime, database: Database) -> None:
    """An index of the traces is gone, on all partitions."""
    as_superuser(database, "drop index almagest.activations_item")


def index_invalid(runtime: Runtime, database: Database) -> None:
    """A build of the index of the vector leg broke off."""
    as_superuser(
        database,
        "update pg_catalog.pg_index set indisvalid = false where indexrelid = 'almagest.embeddings_vector_1'::regclass",
    )


def canary_deleted(runtime: Runtime, database: Database) -> None:
    """Somebody deleted a canary by hand, and all that belongs to it with it."""
    database.rows("delete from almagest.items where source_ref like 'health:canaries:%:01'")


def canary_vectors_changed(runtime: Runtime, database: Database) -> None:
    """The vectors of two canaries have been swapped for each other's."""
    as_superuser(
        database,
        "update almagest.embeddings as e set vector = o.vector from almagest.embeddings as o"
        " join almagest.items as oi on oi.id = o.item_id, almagest.items as i"
        " where i.id = e.item_id and i.source_ref like 'health:canaries:%' and oi.source_ref like 'health:canaries:%'"
        " and (right(i.source_ref, 2), right(oi.source_ref, 2)) in (('00', '01'), ('01', '00'))",
    )


def item_forgotten(runtime: Runtime, database: Database) -> None:
    """An item has waited for its vectors for an hour."""
    as_superuser(
        database,
        "update almagest.items set index_status = 'text_ready', index_after = now() - interval '1 hour'"
        f" where id = (select item_id from almagest.chunks where id in ({_CHUNKS}) order by id limit 1)",
    )


def table_gone(runtime: Runtime, database: Database) -> None:
    """A table is not where it should be; `table_back` undoes it."""
    as_superuser(database, "alter table almagest.folders rename to folders_gone")


def table_back(database: Database) -> None:
    """The table is back."""
    as_superuser(database, "alter table almagest.folders_gone rename to folders")


def row_security_off(runtime: Runtime, database: Database) -> None:
    """Row level security is no longer forced on a table; `row_security_on` undoes it."""
    as_superuser(database, "alter table almagest.items no force row level security")


def row_security_on(database: Database) -> None:
    """It is forced again."""
    as_superuser(database, "alter table almagest.items force row level security")


def terms_removed(runtime: Runtime, database: Database) -> None:
    """Up to 100 chunks lose their terms."""
    as_superuser(database, f"delete from almagest.lexical where chunk_id in ({_CHUNKS})")


def copies_changed(runtime: Runtime, database: Database) -> None:
    """The terms of up to 100 chunks are somebody else's, and the vectors of as many are in the archive."""
    as_superuser(
        database,
        f"update almagest.lexical set user_id = gen_random_uuid() where chunk_id in ({_CHUNKS})",
        f"update almagest.embeddings set state = 'archived' where chunk_id in ({_CHUNKS})",
    )


def vectors_turned(runtime: Runtime, database: Database) -> None:
    """The vectors of up to 100 chunks point the other way; their length is right."""
    as_superuser(
        database,
        "set search_path = extensions, public",
        "update almagest.embeddings set vector ="
        " (select array_agg(-v order by n) from unnest(vector::real[]) with ordinality as u (v, n))::halfvec"
        f" where chunk_id in ({_CHUNKS})",
    )


def _by(statement: str) -> Callable[[Runtime, Database], None]:
    return lambda runtime, database: as_superuser(database, statement)


# Those that remediation mends, by their names.
MENDED = {
    fault.name: fault
    for fault in (
        Fault("embedder returns zeros", "embedding_function", "failed", embedder_returns_zeros),
        Fault("vectors removed", "orphaned_embeddings", "degraded", vectors_removed, "chunks_without_vectors"),
        Fault(
            "vectors of another model",
            "orphaned_embeddings",
            "degraded",
            vectors_of_another_model,
            "chunks_of_another_model",
        ),
        Fault(
            "vectors of another model beside the right ones",
            "orphaned_embeddings",
            "degraded",
            vectors_of_another_model_beside,
            "superfluous_vectors",
        ),
        Fault("vectors of zeros", "orphaned_embeddings", "degraded", vectors_of_zeros, "zero_vectors"),
        Fault("item without chunks", "orphaned_embeddings", "failed", item_without_chunks, "items_without_chunks"),
        Fault("chunks without item", "orphaned_embeddings", "degraded", chunks_without_item, "chunks_without_item"),
        Fault("rows without chunk", "orphaned_embeddings", "degraded", rows_without_chunk, "rows_without_chunk"),
        Fault("lease of a dead worker", "orphaned_embeddings", "degraded", lease_of_a_dead_worker, "leases_over"),
        Fault("run of a dead worker", "orphaned_embeddings", "degraded", run_of_a_dead_worker, "leases_over"),
        Fault(
            "statistics off by half", "orphaned_embeddings", "degraded", statistics_off_by_half, "drifted_statistics"
        ),
        Fault("index dropped", "orphaned_embeddings", "failed", index_dropped, "indexes_missing"),
        Fault(
            "index of partitions dropped",
            "orphaned_embeddings",
            "failed",
            index_of_partitions_dropped,
            "indexes_missing",
        ),
        Fault("index invalid", "orphaned_embeddings", "failed", index_invalid, "indexes_invalid"),
        Fault("canary deleted", "canary_quality", "failed", canary_deleted),
        Fault("canary vectors changed", "canary_quality", "failed", canary_vectors_changed),
        Fault("item forgotten", "staleness", "degraded", item_forgotten),
        Fault("terms removed", "orphaned_embeddings", "degraded", terms_removed, "chunks_without_terms"),
        Fault("copies changed", "orphaned_embeddings", "failed", copies_changed, "copies_that_differ"),
        Fault("vectors turned", "orphaned_embeddings", "degraded", vectors_turned, "vectors_that_differ"),
    )
}

# Those that a person has to mend.
UNMENDED = {
    fault.name: fault
    for fault in (
        Fault("embedder gone", "embedding_function", "failed", embedder_gone),
        Fault("table gone", "table_access", "failed", table_gone),
        Fault("row security off", "table_access", "failed", row_security_off),
    )
}

# Rights and row level security, which `almagest migrate --reapply` mends.
REAPPLIED = {
    fault.name: fault
    for fault in (
        UNMENDED["row security off"],
        *(
            Fault(name, "table_access", "failed", _by(statement))
            for name, statement in (
                ("row security disabled", "alter table almagest.chunks disable row level security"),
                ("row security off in a partition", "alter table almagest.retrievals_rest no force row level security"),
                ("a table open to anon", "grant select on almagest.items to anon"),
                ("a table open to everybody", "grant all on almagest.items to public"),
                ("a column open to authenticated", "grant update (title) on almagest.items to authenticated"),
                ("the schema open to everybody", "grant all on all tables in schema almagest to public"),
                ("a view open to anon", "grant select on dashboard.latest_health to anon"),
                ("a function open to everybody", "grant execute on function api.search(jsonb, jsonb) to public"),
                ("the engine open to anon", "grant execute on all functions in schema engine to anon"),
                ("a function of the tables open to anon", "grant execute on all functions in schema almagest to anon"),
                ("a table not readable", "revoke all on almagest.variables from postgres"),
                ("a table not writable", "revoke insert, update, delete on almagest.pins from postgres"),
            )
        ),
    )
}
