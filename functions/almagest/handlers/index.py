"""The index function: woken by a large write, it makes the chunks and vectors of what is outstanding."""

from typing import Any

from almagest.database.queue import Queue
from almagest.database.session import connect, demand_schema
from almagest.edge.observe import logger
from almagest.operations.index_pending import index_pending
from almagest.runtime import container


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Index what is outstanding; the event only wakes the function."""
    logger.clear_state()
    logger.append_keys(request_id=context.aws_request_id)
    runtime = container()
    with connect(runtime.settings, autocommit=True) as connection:
        demand_schema(connection)
        counts = index_pending(runtime, Queue(connection), context.get_remaining_time_in_millis() / 1000)
    logger.info("index", extra=counts)
    return counts
