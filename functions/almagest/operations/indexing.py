"""How much indexing is outstanding, and having it begin."""

import json
import logging

from almagest.models.caller import Caller
from almagest.models.write import IndexStatus
from almagest.runtime import Runtime

logger = logging.getLogger(__name__)


def index_status(runtime: Runtime, caller: Caller) -> IndexStatus:
    """How many of the items that the caller may see are outstanding."""
    return IndexStatus.model_validate(runtime.rpc.call("index_status", caller, {}, retry=True))


def invoke_index_function(runtime: Runtime, caller: Caller) -> None:
    """Have the index function start now; when that fails, its schedule finds the work a little later."""
    name = runtime.settings.index_function
    if not name:
        return
    try:
        payload = json.dumps({"org": str(caller.org)}).encode()
        runtime.functions.invoke(FunctionName=name, InvocationType="Event", Payload=payload)
    except Exception as error:
        # Whatever it was, the write itself has succeeded and is not to be reported as failed.
        logger.warning("index function not invoked", extra={"error": type(error).__name__})
