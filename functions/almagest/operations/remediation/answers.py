"""Which actions answer which check, and what a person can do where they do not help. The one place that says so."""

from dataclasses import dataclass

from almagest.operations.remediation import orphans, others
from almagest.operations.remediation.action import Action


@dataclass(frozen=True)
class Answer:
    """What is done about a check that has not passed.

    Attributes
    ----------
    title
        What people are told in the Hub.
    actions
        In the order in which they are done. Where none of them has something to do, the check is only made again.
    to_do
        What a person can do.
    """

    title: str
    actions: tuple[Action, ...]
    to_do: str


# In the order in which checks are mended: what others need comes first.
ANSWERS: dict[str, Answer] = {
    "table_access": Answer(
        "Tables or the request path are not as they should be",
        (),
        "Restore a table that is missing from a backup; run `almagest migrate --reapply` where rights or row level"
        " security have changed; look at the project's status where the request path does not answer.",
    ),
    "embedding_function": Answer(
        "Texts are not embedded as they should be",
        (others.RELOAD_MODEL,),
        "Deploy the functions again, since the model comes with them, and look at ALMAGEST_MODEL and"
        " ALMAGEST_MODEL_DIR; where vectors are only slow, give the functions more memory.",
    ),
    "semantic_accuracy": Answer(
        "Questions in other words are answered badly",
        (others.RELOAD_MODEL, others.PLANT_PARAPHRASES),
        "Compare with `make bench`: look at the model and at the search profile user_search, which may have been"
        " changed for all orgs.",
    ),
    "crud_integrity": Answer(
        "Memories cannot be written, found or erased as they should be",
        (others.CLEAR_PROBES,),
        "See at which step the check ended (`almagest health --last`), and look into the log of Postgres; a project"
        " whose disk is full takes no writes.",
    ),
    "orphaned_embeddings": Answer(
        "Chunks, vectors, statistics or indexes do not belong together",
        orphans.ACTIONS,
        "See which kinds are left (`almagest health --last --json`). An index that takes longer than a run is made by"
        " hand with `create index concurrently`; vectors of another model are made anew run by run, or at once by"
        " `almagest jobs run remediation`.",
    ),
    "staleness": Answer(
        "Scheduled work is behind",
        (others.INDEX_WAITING, others.ADD_PARTITIONS),
        "See what failed with `almagest jobs history`, and whether the schedules are enabled; `almagest jobs run NAME`"
        " does a job now.",
    ),
    "canary_quality": Answer(
        "Known memories do not come back as they were stored",
        (others.RELOAD_MODEL, others.PLANT_CANARIES),
        "Something changed the vectors or the ranking: look at the model, and at the search profile user_search.",
    ),
}
