"""What scheduled work tells CloudWatch: names, units and dimensions that the alarms rely on."""

import json
from typing import Any

import pytest

from almagest.edge.metrics import tell_job

HEALTH = {
    "status": "failed",
    "failed": 1,
    "degraded": 2,
    "checks": {
        "staleness": {"status": "degraded", "measured": 3, "milliseconds": 12.5},
        "canary_quality": {"status": "failed", "measured": 2, "milliseconds": 40},
        "table_access": {"status": "ok", "measured": 43, "milliseconds": 8},
    },
    "index_backlog": 7,
    "index_backlog_seconds": 61.5,
}


def told(capsys: pytest.CaptureFixture[str]) -> list[tuple[dict[str, str], dict[str, tuple[str, float]]]]:
    """Each line's dimensions, and its metrics with unit and value."""
    lines = []
    for line in capsys.readouterr().out.splitlines():
        record: dict[str, Any] = json.loads(line)
        [directive] = record["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == "Almagest"
        [names] = directive["Dimensions"]
        metrics = {}
        for metric in directive["Metrics"]:
            [value] = record[metric["Name"]]
            metrics[metric["Name"]] = (metric["Unit"], value)
        assert set(record) == {"_aws", *names, *metrics}
        lines.append(({name: record[name] for name in names}, metrics))
    return lines


def test_a_health_run(capsys: pytest.CaptureFixture[str]) -> None:
    tell_job("prod", "health", failed=False, figures=HEALTH)
    assert told(capsys) == [
        ({"stack": "prod", "job": "health"}, {"JobFailures": ("Count", 0)}),
        (
            {"stack": "prod"},
            {
                "IndexBacklog": ("Count", 7),
                "IndexBacklogSeconds": ("Seconds", 61.5),
                "FailedChecks": ("Count", 1),
                "DegradedChecks": ("Count", 2),
            },
        ),
        (
            {"stack": "prod", "check": "staleness"},
            {"CheckStatus": ("Count", 1), "CheckDuration": ("Milliseconds", 12.5)},
        ),
        (
            {"stack": "prod", "check": "canary_quality"},
            {"CheckStatus": ("Count", 2), "CheckDuration": ("Milliseconds", 40)},
        ),
        (
            {"stack": "prod", "check": "table_access"},
            {"CheckStatus": ("Count", 0), "CheckDuration": ("Milliseconds", 8)},
        ),
    ]


def test_a_sweep_and_a_remediation(capsys: pytest.CaptureFixture[str]) -> None:
    tell_job(
        "prod", "index_sweep", failed=False, figures={"indexed": 3, "index_backlog": 0, "index_backlog_seconds": 0.0}
    )
    tell_job("prod", "remediation", failed=False, figures={"checks": {"staleness": {}}, "open_hub_entries": 2})
    assert told(capsys) == [
        ({"stack": "prod", "job": "index_sweep"}, {"JobFailures": ("Count", 0)}),
        ({"stack": "prod"}, {"IndexBacklog": ("Count", 0), "IndexBacklogSeconds": ("Seconds", 0)}),
        ({"stack": "prod", "job": "remediation"}, {"JobFailures": ("Count", 0)}),
        ({"stack": "prod"}, {"OpenHubEntries": ("Count", 2)}),
    ]


def test_a_run_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    tell_job("prod", "retention", failed=True, figures={})
    assert told(capsys) == [({"stack": "prod", "job": "retention"}, {"JobFailures": ("Count", 1)})]


def test_what_could_not_be_counted_is_no_metric(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"index_backlog": None, "index_backlog_seconds": None}
    tell_job("prod", "index_sweep", failed=False, figures=figures)
    assert told(capsys) == [({"stack": "prod", "job": "index_sweep"}, {"JobFailures": ("Count", 0)})]
