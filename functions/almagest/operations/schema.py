"""Whether this container's code fits its database: asked once, by the first request."""

from almagest.runtime import Runtime
from almagest.schema import demand_fit


def demand_schema(runtime: Runtime) -> None:
    """Ask the database until it fits, and never again: a later migration keeps serving the code that is running.

    Raises
    ------
    Problem
        503 `schema_mismatch`, or what keeps the database from answering.
    """
    if runtime.fits_schema:
        return
    answer = runtime.rpc.call("get_schema", None, {}, retry=True)
    demand_fit(int(answer["version"]), int(answer["serves_since"]))
    runtime.fits_schema = True
