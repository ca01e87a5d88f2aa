"""Actions for orphaned_embeddings: what belongs together is put together again, and what belongs to nothing goes."""

import re
from uuid import UUID

import psycopg

from almagest.database.queue import Queue
from almagest.operations.health.orphaned_embeddings import SAMPLE
from almagest.operations.health.sampled_vectors import compare
from almagest.operations.index_pending import index_pending
from almagest.operations.remediation.action import WAITING, Action, Figures, Mending, in_batches, of_orphans

# Rows of one transaction, and of one run: what is left is the next run's, so that none holds locks or runs for long.
BATCH = 1_000
MOST_ROWS = 100_000
# Items of a run: they are embedded at 20 to 45 chunks a second, here while there is time, then by the sweeps.
MOST_ITEMS = 5_000
MOST_ORGS = 100
# Chunks of one sample.
COMPARED = 200
# What `reindex concurrently` adds to the name of what it builds.
_LEFTOVER = re.compile(r"_cc(new|old)[0-9]*$")

IndexFault = tuple[str, str, str | None]

WITHOUT_VECTORS = ("chunks_without_vectors", "chunks_without_terms", "chunks_of_another_model", "items_without_chunks")

# What is to be marked, and what has been.
TO_INDEX = (*WITHOUT_VECTORS, "items_to_index_again")


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
    """A lease ends by itself, but who held it is dead: what it held is indexed now, or by the next sweep."""
    released = mending.remedy.release_leases()
    return {"released": released, **index_pending(mending.runtime, Queue(mending.connection), mending.seconds)}


def index_again(mending: Mending) -> Figures:
    """Mark what lacks vectors or chunks, and index it as everything is indexed."""
    model = mending.runtime.embedder.model  # without an embedder nothing is marked that could not be indexed

    # An earlier attempt, or an earlier run, may have marked some and not come to them.
    items: list[UUID] = mending.remedy.items_to_index_again()

    def mark(kind: str) -> int:
        def some(most: int) -> int:
            found = mending.remedy.mark_orphans(kind, model, most)
            items.extend(found)
            return len(found)

        # All in one: to look for the next thousand among a million costs as much again.
        return in_batches(mending, some, MOST_ITEMS, MOST_ITEMS)

    marked = {kind: mark(kind) for kind in WITHOUT_VECTORS}
    done = index_pending(mending.runtime, Queue(mending.connection), mending.seconds)
    return {**marked, **done, WAITING: mending.remedy.count_waiting(items)}


def copy_anew(mending: Mending) -> Figures:
    """Copy who may see an item, and its state, to its terms and vectors."""
    return {"items": in_batches(mending, mending.remedy.mend_copies, MOST_ITEMS, MOST_ITEMS)}


def _differing(mending: Mending) -> Figures:
    compared = compare(mending, SAMPLE)
    return {"vectors_that_differ": compared.wrong if compared else 0}


def embed_anew(mending: Mending) -> Figures:
    """Draw samples, and index what is wrong in them, until one is right; many wrong ones take several runs."""
    done: dict[str, int] = {"compared": 0}
    items: list[UUID] = []
    while done["compared"] < MOST_ITEMS and mending.seconds > 0:
        compared = compare(mending, COMPARED)
        if not compared or not compared.items:
            break
        done["compared"] += compared.chunks
        items.extend(mending.remedy.mark(compared.items))
    done |= {"marked": len(items)}
    done |= index_pending(mending.runtime, Queue(mending.connection), mending.seconds)
    return {**done, WAITING: mending.remedy.count_waiting(items)}


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
    """Make what is missing or invalid, beside writes, one after the other; one that fails is not in the others' way.

    One that others changed on purpose is a person's to judge. A table of which somebody builds an index is left alone.
    What fails leaves nothing behind that the next run would find to mend.
    """
    made: list[str] = []
    failed: list[str] = []
    for fault in _index_faults(mending):
        # Each takes minutes in a large database: what was true before the one before may have changed.
        if fault not in _index_faults(mending) or mending.remedy.is_being_indexed(fault[0], fault[2]):
            continue
        if not _can_be_made(mending, fault):
            failed.append(fault[0])
            continue
        try:
            mending.remedy.mend_index(*fault)
            made.append(fault[0])
        except psycopg.Error:
            if mending.connection.closed or mending.seconds <= 0:
                raise
            failed.append(fault[0])
            mending.remedy.drop_leftovers(fault[0])
    return {"made": made, "failed": failed}


def _index_faults(mending: Mending) -> list[IndexFault]:
    return [each for each in mending.health.index_faults() if each[1] in ("missing", "invalid", "leftover")]


def _can_be_made(mending: Mending, fault: IndexFault) -> bool:
    """Whether no duplicates are in the way of an index; to try would write them into the log of Postgres."""
    name, kind, definition = fault
    return kind == "leftover" or mending.remedy.duplicates_of(name, definition) == 0


def _indexes_to_mend(mending: Mending) -> Figures:
    """Each by the name of the index that is to be there, so that one that breaks anew is known from one tried before.

    Those with duplicates in their way are not among them: they are a person's first, and are then made untried.
    """
    faults = [fault for fault in _index_faults(mending) if _can_be_made(mending, fault)]
    return dict.fromkeys((_LEFTOVER.sub("", name) for name, _, _ in faults), 1)


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
    Action("rebuild_indexes", "Made missing and invalid indexes anew", _indexes_to_mend, rebuild_indexes),
    of_orphans("copy_anew", "Copied anew who may see an item, and its state", ("copies_that_differ",), copy_anew),
    of_orphans("index_again", "Indexed items again that lacked vectors or chunks", TO_INDEX, index_again),
    Action("embed_anew", "Embedded again what samples showed to be wrong", _differing, embed_anew),
    of_orphans("delete_other_models", "Deleted vectors of other models", ("superfluous_vectors",), delete_other_models),
    of_orphans("refresh_statistics", "Counted large orgs again", ("drifted_statistics",), refresh_statistics),
)
