"""Logs and metrics of a request: ids and figures only, never what was asked, written or sent as a credential."""

import traceback
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

# Modules log to children of this one by the standard library, so that the same code logs plainly outside of a function.
logger = Logger(service="almagest")
metrics = Metrics(namespace="Almagest", service="almagest")


def begin(request_id: str) -> None:
    """Forget the request before this one, and note this one's id."""
    logger.clear_state()
    logger.append_keys(request_id=request_id)


def note(**ids: object) -> None:
    """Note who asks, or for which route."""
    logger.append_keys(**{name: str(value) for name, value in ids.items() if value is not None})


def finish(function: str, status: int, seconds: float, mode: str | None) -> None:
    """One log line and one metric record for the whole request."""
    milliseconds = round(seconds * 1000, 1)
    logger.info("request", function=function, status=status, milliseconds=milliseconds, mode=mode)
    metrics.add_dimension("function", function)
    metrics.add_dimension("status", f"{status // 100}xx")
    if mode:
        metrics.add_dimension("mode", mode)
    metrics.add_metric("requests", MetricUnit.Count, 1)
    metrics.add_metric("latency", MetricUnit.Milliseconds, milliseconds)
    metrics.flush_metrics()


def unexpected(error: BaseException) -> None:
    """Where an error came from. Its message stays out of the log, since it may quote what a caller sent."""
    logger.error("unexpected error", errors=[_describe(cause) for cause in _chain(error)])


def _chain(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _describe(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "frames": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
