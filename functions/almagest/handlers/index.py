"""The index function: brings the index up to date, by schedule or when a large write asks for it."""

from typing import Any

from almagest.database.queue import Queue
from almagest.database.session import connect
from almagest.edge.observe import logger
from almagest.operations.index_pending import index_pending
from almagest.operations.retokenise import retokenise
from almagest.runtime import container


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Index until nothing is outstanding or the time is over; the event only wakes the function."""
    logger.clear_state()
    logger.append_keys(request_id=context.aws_request_id)
    runtime = container()
    with connect(runtime.settings, autocommit=True) as connection:
        queue = Queue(connection)
        counts = index_pending(runtime, queue, _seconds_left(context))
        counts["retokenised"] = retokenise(queue, _seconds_left(context))
        counts["counted"] = queue.refresh_statistics()
    logger.info("index", extra=counts)
    return counts


def _seconds_left(context: Any) -> float:
    return float(context.get_remaining_time_in_millis()) / 1000
