"""Starting a session from what the team knows."""

from almagest.models.bootstrap import BootstrapRequest, BootstrapResponse
from almagest.models.call import Call
from almagest.models.caller import Caller
from almagest.operations.vectors import query_fields
from almagest.runtime import Runtime


def bootstrap(runtime: Runtime, caller: Caller, request: BootstrapRequest, call: Call) -> BootstrapResponse:
    """The prefix that every run of this caller shares, and the tail for this one."""
    fields = {**request.model_dump(mode="json"), **query_fields(runtime, request.query)}
    answer = runtime.rpc.call("bootstrap", caller, {**fields, "request_id": call.request_id}, retry=True)
    return BootstrapResponse.model_validate(answer)
