"""The index function: brings the index up to date, by schedule or for a large write; ends what is over, once a day."""

from typing import Any

from almagest.database.queue import Queue
from almagest.database.retention import Retention
from almagest.database.session import connect, demand_schema
from almagest.edge.observe import logger
from almagest.operations.index_pending import index_pending
from almagest.operations.retention import retain
from almagest.operations.retokenise import retokenise
from almagest.runtime import Runtime, container

# What a schedule's event names as its job, where it is not the sweep.
RETENTION = "retention"


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Do the job that the event names; any other event only wakes the function to index what is outstanding."""
    logger.clear_state()
    logger.append_keys(request_id=context.aws_request_id)
    job = RETENTION if event.get("job") == RETENTION else "index"
    runtime = container()
    with connect(runtime.settings, autocommit=True) as connection:
        demand_schema(connection)
        if job == RETENTION:
            counts = retain(Retention(connection), _seconds_left(context))
        else:
            counts = _index(runtime, Queue(connection), context)
    logger.info(job, extra=counts)
    return counts


def _index(runtime: Runtime, queue: Queue, context: Any) -> dict[str, int]:
    counts = index_pending(runtime, queue, _seconds_left(context))
    counts["retokenised"] = retokenise(queue, _seconds_left(context))
    counts["counted"] = queue.refresh_statistics()
    return counts


def _seconds_left(context: Any) -> float:
    return float(context.get_remaining_time_in_millis()) / 1000
