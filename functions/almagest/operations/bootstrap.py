"""Starting a session from what the team knows."""

from almagest.models.bootstrap import BootstrapRequest, BootstrapResponse, Knowledge
from almagest.models.call import Call
from almagest.models.caller import Caller
from almagest.operations import context
from almagest.operations.vectors import query_fields
from almagest.runtime import Runtime

RESULTS = 10
TITLES = 20


def bootstrap(runtime: Runtime, caller: Caller, request: BootstrapRequest, call: Call) -> BootstrapResponse:
    """The prefix that every run of this caller shares, and the tail for this one.

    The prefix is whole, whatever the budget: a policy that is cut is another policy. The tail takes what is left.
    """
    fields = {"query": request.query, **query_fields(runtime, request.query), "k": RESULTS, "titles": TITLES}
    answer = runtime.rpc.call("bootstrap", caller, {**fields, "request_id": call.request_id}, retry=True)
    known = Knowledge.model_validate(answer)
    prefix = context.prefix(known.canon)
    results = known.search.results if known.search else []
    return BootstrapResponse(
        prefix=prefix,
        tail=context.tail(known.contents, results, request.budget_tokens - context.tokens(prefix)),
        mode=known.search.mode if known.search else None,
        degraded_reason=known.search.degraded_reason if known.search else None,
        trace_id=known.trace_id,
    )
