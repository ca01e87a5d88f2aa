"""CloudWatch metrics of scheduled work, as lines of the embedded metric format: figures, names of jobs and checks."""

from typing import Any

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

NAMESPACE = "Almagest"
STATUSES = {"ok": 0, "degraded": 1, "failed": 2}

# What figures of a job are told as metrics, whichever job has them.
_FIGURES = {
    "index_backlog": ("IndexBacklog", MetricUnit.Count),
    "index_backlog_seconds": ("IndexBacklogSeconds", MetricUnit.Seconds),
    "open_hub_entries": ("OpenHubEntries", MetricUnit.Count),
}

Values = dict[str, tuple[MetricUnit, float]]


def tell_job(stack: str, job: str, *, failed: bool, figures: dict[str, Any]) -> None:
    """Tell how a run of a job ended, and what it found.

    Parameters
    ----------
    stack
        Dimension of every metric: the name of the deployed stack.
    job
        Its name, a dimension of `JobFailures`.
    failed
        Whether the run failed.
    figures
        What the job returned; those of health, sweep and remediation that are metrics are known by their names.
    """
    _tell({"stack": stack, "job": job}, {"JobFailures": (MetricUnit.Count, int(failed))})
    values: Values = {
        name: (unit, figures[key]) for key, (name, unit) in _FIGURES.items() if figures.get(key) is not None
    }
    checks: dict[str, Any] = figures.get("checks", {}) if job == "health" else {}
    if checks:
        values["FailedChecks"] = (MetricUnit.Count, figures["failed"])
        values["DegradedChecks"] = (MetricUnit.Count, figures["degraded"])
    _tell({"stack": stack}, values)
    for name, check in checks.items():
        found: Values = {
            "CheckStatus": (MetricUnit.Count, STATUSES[check["status"]]),
            "CheckDuration": (MetricUnit.Milliseconds, check["milliseconds"]),
        }
        _tell({"stack": stack, "check": name}, found)


def _tell(dimensions: dict[str, str], values: Values) -> None:
    if not values:
        return
    # Apart from the metrics of requests, whose dimensions would otherwise stand here too.
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    for name, value in dimensions.items():
        metrics.add_dimension(name, value)
    for metric, (unit, figure) in values.items():
        metrics.add_metric(metric, unit, figure)
    metrics.flush_metrics()
