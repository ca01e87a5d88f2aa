"""Actions for orphaned_embeddings: what belongs together is put together again, and what belongs to nothing goes."""

from almagest.database.queue import Queue
from almagest.operations.health.orphaned_embeddings import SAMPLE
from almagest.operations.health.sampled_vectors import compare
from almagest.operations.index_pending import index_pending
from almagest.operations.remediation.action import Action, Figures, Mending, in_batches, of_orphans

# Rows of one transaction, and of one run: what is left is the next run's, so that none holds locks or runs for long.
BATCH = 1_000
MOST_ROWS = 100_000
# Items of a run: they are embedded at 20 to 45 chunks a second, here while there is time, then by the sweeps.
MOST_ITEMS = 5_000
MOST_ORGS = 100
# Chunks of one sample.
COMPARED = 200

WITHOUT_VECTORS = ("chunks_without_vectors", "chunks_without_terms", "chunks_of_another_model", "items_without_chunks")


def delete_zero_vectors(mending: Mending) -> Figures:
    """Zeros are near to nothing; the chunks then wait for real vectors like others that lack one."""
    return {"deleted": in_batches(mending, mending.remedy.delete_zero_vectors, BATCH, MOST_ROWS)}


def delete_orphans(mending: Mending) -> Figures:
    """What belongs to no item can be seen by nobody, and never comes back."""
    return {
        "chunks": in_batches(mending, mending.remedy.delete_chunks_without_item, BATCH, MOST_ROWS),
        "rows": in_batches(mending, mending.remedy.delete_rows_without_chunk, BATCH, MOST_ROWS),
    }


def release_leases(mending: Mending) -> Figures:
    """A lease ends by itself, but who held it is dead: the next worker need not wait."""
    return {"released": mending.remedy.release_leases()}


def index_again(mending: Mending) -> Figures:
    """Mark what lacks vectors or chunks, and index it as everything is indexed."""
    model = mending.runtime.embedder.model  # without an embedder nothing is marked that could not be indexed

    def mark(kind: str) -> int:
        # All in one: to look for the next thousand among a million costs as much again.
        return in_batches(mending, lambda most: mending.remedy.index_orphans(kind, model, most), MOST_ITEMS, MOST_ITEMS)

    marked = {kind: mark(kind) for kind in WITHOUT_VECTORS}
    return {**marked, **index_pending(mending.runtime, Queue(mending.connection), mending.seconds)}


def copy_anew(mending: Mending) -> Figures:
    """Copy who may see an item, and its state, to its terms and vectors."""
    return {"items": in_batches(mending, mending.remedy.mend_copies, MOST_ITEMS, MOST_ITEMS)}


def _differing(mending: Mending) -> Figures:
    compared = compare(mending, SAMPLE)
    return {"vectors_that_differ": compared.wrong if compared else 0}


def embed_anew(mending: Mending) -> Figures:
    """Draw samples, and index what is wrong in them, until one is right; many wrong ones take several runs."""
    done: dict[str, int] = {"compared": 0, "marked": 0}
    while done["compared"] < MOST_ITEMS and mending.seconds > 0:
        compared = compare(mending, COMPARED)
        if not compared or not compared.items:
            break
        done["compared"] += compared.chunks
        done["marked"] += mending.remedy.index_items(compared.items)
    return {**done, **index_pending(mending.runtime, Queue(mending.connection), mending.seconds)}


def delete_other_models(mending: Mending) -> Figures:
    """Vectors of a model that is no longer in force are never compared; those without a right one beside them stay."""
    model = mending.runtime.embedder.model

    def delete(most: int) -> int:
        return mending.remedy.delete_superfluous_vectors(model, most)

    return {"deleted": in_batches(mending, delete, BATCH, MOST_ROWS)}


def refresh_statistics(mending: Mending) -> Figures:
    """Count large orgs again, one a transaction."""
    return {"counted": in_batches(mending, mending.remedy.recount_drifted, 1, MOST_ORGS)}


def rebuild_indexes(mending: Mending) -> Figures:
    """Make what is missing or invalid, beside writes; one that others changed on purpose is a person's to judge."""
    faults = [each for each in mending.health.index_faults() if each[1] != "changed"]
    for name, fault, definition in faults:
        mending.remedy.mend_index(name, fault, definition)
    return {"made": [name for name, _, _ in faults]}


def _waiting_too(mending: Mending) -> Figures:
    """What was marked and is not indexed yet is not mended yet."""
    return {**mending.left_to_mend(WITHOUT_VECTORS), "waiting": mending.health.backlog()[0]}


# In this order: what goes is gone before it is counted what lacks something.
ACTIONS: tuple[Action, ...] = (
    of_orphans("delete_zero_vectors", "Deleted vectors of zeros", ("zero_vectors",), delete_zero_vectors),
    of_orphans(
        "delete_orphans",
        "Deleted chunks of no item, and terms and vectors of no chunk",
        ("chunks_without_item", "rows_without_chunk"),
        delete_orphans,
    ),
    of_orphans("release_leases", "Released what dead workers held", ("leases_over",), release_leases),
    of_orphans(
        "rebuild_indexes",
        "Made missing and invalid indexes anew",
        ("indexes_missing", "indexes_invalid"),
        rebuild_indexes,
    ),
    of_orphans("copy_anew", "Copied anew who may see an item, and its state", ("copies_that_differ",), copy_anew),
    Action("index_again", "Indexed items again that lacked vectors or chunks", _waiting_too, index_again),
    Action("embed_anew", "Embedded again what samples showed to be wrong", _differing, embed_anew),
    of_orphans("delete_other_models", "Deleted vectors of other models", ("superfluous_vectors",), delete_other_models),
    of_orphans("refresh_statistics", "Counted large orgs again", ("drifted_statistics",), refresh_statistics),
)
