"""Which actions answer which check, and what a person can do where they do not help. The one place that says so."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    causes
        What a person can do where the fault is of a kind that says it; by what `kinds_found` names, or begins with.
    """

    title: str
    actions: tuple[Action, ...]
    to_do: str
    causes: dict[str, str] = field(default_factory=dict)

    def advice(self, kinds: Sequence[str]) -> str:
        """What a person can do about faults of some kinds; in general, where none of them says it."""
        told = [advice for kind, advice in self.causes.items() if any(each.startswith(kind) for each in kinds)]
        return " ".join(dict.fromkeys(told)) or self.to_do


_REAPPLY = "Run `almagest migrate --reapply`, which closes and forces what has to be."
_DEPLOY = "Deploy the functions again, since the model comes with them; look at ALMAGEST_MODEL and ALMAGEST_MODEL_DIR."


# In the order in which checks are mended: what others need comes first.
ANSWERS: dict[str, Answer] = {
    "table_access": Answer(
        "Tables or the request path are not as they should be",
        (),
        "Restore a table that is missing from a backup; run `almagest migrate --reapply` where rights or row level"
        " security have changed; look at the project's status where the request path does not answer.",
        {
            "missing": "Restore the table that is missing from a backup.",
            "un": _REAPPLY,
            "function_": _REAPPLY,
            "policy_missing": _REAPPLY,
            "policy_changed": _REAPPLY,
            "policy_unexpected": "Find out whose policy it is, and drop it: `almagest migrate --reapply` leaves it.",
            "constraint_": "Make the constraint again as its migration does, or drop one of others: `almagest migrate"
            " --reapply` does neither.",
            "open": "Find out who opened it (log of statements), then run `almagest migrate --reapply`: it closes it.",
            "request_path: misconfigured": "Give the functions a secret key that is valid, and expose the schema `api`"
            " in the project's API settings: the API refuses the one or the other.",
            "request_path: schema_mismatch": "Run `almagest migrate`, then deploy the functions of the same version.",
            "request_path: database": "Look at the project's status and at its connections: the API does not answer.",
        },
    ),
    "embedding_function": Answer(
        "Texts are not embedded as they should be",
        (others.RELOAD_MODEL,),
        "Deploy the functions again, since the model comes with them, and look at ALMAGEST_MODEL and"
        " ALMAGEST_MODEL_DIR; where vectors are only slow, give the functions more memory.",
        {"reason: model_": _DEPLOY},
    ),
    "semantic_accuracy": Answer(
        "Questions in other words are answered badly",
        (others.RELOAD_MODEL, others.PLANT_PARAPHRASES),
        "Compare with `make bench`: look at the model and at the search profile user_search, which may have been"
        " changed for all orgs.",
        {"reason: model_": _DEPLOY},
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
        {
            "items_to_index_again": "The sweeps index what is marked, 20 to 45 chunks a second; `almagest jobs run"
            " index_sweep` does it now. Where they do not, see embedding_function.",
            "duplicates": "Rows are there twice that may be there once, so that an index (`figures.indexes` names it)"
            " cannot be made, by hand neither: its failure would write them into the log of Postgres. Group its table"
            " by the columns that `engine.expected_indexes()` says, and change or remove all but one row of each group;"
            " remediation then makes the index.",
            "indexes_changed": "Ask who made an index of the same name otherwise, and why; drop it, and remediation"
            " makes the one that has to be.",
            "indexes_": "An index that takes longer than a run is made by hand with `create index concurrently`; drop"
            " one that is invalid before.",
        },
    ),
    "staleness": Answer(
        "Scheduled work is behind",
        (others.INDEX_WAITING, others.ADD_PARTITIONS),
        "See what failed with `almagest jobs history`, and whether the schedules are enabled; `almagest jobs run NAME`"
        " does a job now.",
        {
            "job.": "See what failed with `almagest jobs history`, and whether the schedules are enabled; `almagest"
            " jobs run NAME` does a job now.",
            "index": "See `dashboard.index_backlog`: many that wait are a large import, and items that fail have an"
            " `index_error`; `almagest jobs run index_sweep` indexes now.",
        },
    ),
    "canary_quality": Answer(
        "Known memories do not come back as they were stored",
        (others.RELOAD_MODEL, others.PLANT_CANARIES),
        "Something changed the vectors or the ranking: look at the model, and at the search profile user_search.",
        {"reason: model_": _DEPLOY},
    ),
}
