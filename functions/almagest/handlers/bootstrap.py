"""The bootstrap function: what a session starts from."""

from typing import Any

from almagest.edge.app import App
from almagest.models.bootstrap import BootstrapRequest, BootstrapResponse
from almagest.operations.bootstrap import bootstrap

app = App("bootstrap")


@app.post("/v1/bootstrap", summary="Start a session", operation_id="bootstrap")
def post_bootstrap(request: BootstrapRequest) -> BootstrapResponse:
    """`prefix` holds what every run knows, the same bytes each time; `tail` what this one should."""
    return bootstrap(app.runtime, app.caller, request, app.call)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request."""
    return app.handle(event, context)
