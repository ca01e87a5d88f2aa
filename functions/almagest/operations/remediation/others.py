"""Actions for the other checks: a new model, a new planting, a sweep, partitions, and nothing but another look."""

from datetime import UTC, datetime

from almagest.database.queue import Queue
from almagest.database.retention import Retention
from almagest.operations.health.canary_quality import canaries
from almagest.operations.health.crud_integrity import PREFIX
from almagest.operations.health.planted import PlantedSet
from almagest.operations.health.semantic_accuracy import paraphrases
from almagest.operations.index_pending import index_pending
from almagest.operations.remediation.action import Action, Figures, Mending
from almagest.operations.retention import retain


def reload_model(mending: Mending) -> Figures:
    """Load the model from its files again; what is in memory may be broken where they are not."""
    mending.runtime.renew_embedder()
    return {"model": mending.runtime.embedder.model}


def plant_paraphrases(mending: Mending) -> Figures:
    """Put the memories of semantic_accuracy in place again."""
    return _plant(paraphrases(mending))


def plant_canaries(mending: Mending) -> Figures:
    """Put the canaries in place again."""
    return _plant(canaries(mending))


def _plant(planted: PlantedSet) -> Figures:
    planted.plant()
    return {"planted": len(planted.items())}


def clear_probes(mending: Mending) -> Figures:
    """Take out what a check that was ended has left of its memories."""
    return {"cleared": mending.health.clear_system_items(PREFIX)}


def _waiting(mending: Mending) -> Figures:
    return {"waiting": mending.health.backlog()[0]}


def index_waiting(mending: Mending) -> Figures:
    """Index what waits, as the sweep does."""
    return dict(index_pending(mending.runtime, Queue(mending.connection), mending.seconds))


def _partitions(mending: Mending) -> Figures:
    return {"missing": len(mending.health.partitions_missing(datetime.now(UTC)))}


def add_partitions(mending: Mending) -> Figures:
    """Make the partitions for the months to come, as the daily job does."""
    return dict(retain(Retention(mending.connection), mending.seconds))


RELOAD_MODEL = Action("reload_model", "Loaded the embedding model again", None, reload_model)
PLANT_PARAPHRASES = Action("plant_paraphrases", "Stored the paraphrase set again", None, plant_paraphrases)
PLANT_CANARIES = Action("plant_canaries", "Stored the canaries again", None, plant_canaries)
CLEAR_PROBES = Action("clear_probes", "Took out what an earlier check had left", None, clear_probes)
INDEX_WAITING = Action("index_waiting", "Indexed what was waiting", _waiting, index_waiting)
ADD_PARTITIONS = Action("add_partitions", "Made the partitions of the months to come", _partitions, add_partitions)
