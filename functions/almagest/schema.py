"""Which schema this code was made for, and whether a database fits it."""

import logging

from almagest.problems import RETRY_AFTER_SECONDS, Problem

# The last migration that this code knows: what it may rely on. A test compares it with the files.
SCHEMA = 12

logger = logging.getLogger(__name__)


def demand_fit(version: int, serves_since: int) -> None:
    """See that this code and a database may work together.

    Parameters
    ----------
    version
        The database's last migration.
    serves_since
        The last migration of the oldest code that the database still serves.

    Raises
    ------
    Problem
        503 `schema_mismatch`; what to do about it is in the log.
    """
    if version < SCHEMA:
        raise mismatch(f"the database has schema {version}, this function needs {SCHEMA}: run `almagest migrate`")
    if serves_since > SCHEMA:
        raise mismatch(
            f"the database has schema {version} and serves functions from {serves_since} on, this one is from {SCHEMA}:"
            " deploy the functions of this version"
        )


def mismatch(what_to_do: str) -> Problem:
    """Return the problem that callers are told, and log what the operator has to know."""
    logger.error("schema mismatch: %s", what_to_do)
    detail = "The function and its database are of different versions."
    return Problem(503, "schema_mismatch", detail, retry_after=RETRY_AFTER_SECONDS)
