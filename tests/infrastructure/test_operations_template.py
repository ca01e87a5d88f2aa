"""What watches a deployed stack: alarms that tell somebody, a dashboard of metrics that there are, and one topic."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
import yaml

from almagest.edge.metrics import tell_job
from almagest.operations.health.registry import CHECKS
from almagest.operations.registry import JOBS
from infra.local import ROOT
from infra.local.template import _Loader
from tests.infrastructure.tools import tool

OPERATIONS = ROOT / "infra" / "aws" / "operations.yaml"
FUNCTIONS = {"Search", "Write", "Bootstrap", "Index", "Jobs"}
# Of AWS' own metrics, those that are used here, by namespace, with the dimension that they are counted by.
AWS_METRICS = {
    "AWS/Lambda": (
        "FunctionName",
        {
            *("Invocations", "Errors", "Throttles", "Duration", "ConcurrentExecutions", "DestinationDeliveryFailures"),
            *("UrlRequestCount", "Url4xxCount", "Url5xxCount", "UrlRequestLatency"),
        },
    ),
    "AWS/SQS": ("QueueName", {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"}),
    "AWS/Scheduler": (
        "ScheduleGroup",
        {
            *("InvocationAttemptCount", "InvocationDroppedCount", "TargetErrorCount"),
            *("InvocationsSentToDeadLetterCount", "InvocationsFailedToBeSentToDeadLetterCount"),
        },
    ),
}
Metric = tuple[str, str, dict[str, str]]


def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a SafeLoader
    return document


TEMPLATE, PARENT = _load(OPERATIONS), _load(ROOT / "template.yaml")
RESOURCES = TEMPLATE["Resources"]
ALARMS = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::CloudWatch::Alarm"}
TIMEOUTS = {
    name: PARENT["Resources"][f"{name}Function"]["Properties"].get("Timeout", PARENT["Globals"]["Function"]["Timeout"])
    for name in FUNCTIONS
}


def _stats(alarm: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What an alarm looks at, with a metric of each."""
    if "Metrics" not in alarm:
        yield alarm | {"Stat": alarm["Statistic"]}
        return
    for each in alarm["Metrics"]:
        if "MetricStat" in each:
            stat = each["MetricStat"]
            yield stat["Metric"] | {"Stat": stat["Stat"], "Period": stat["Period"]}


def _metrics(alarm: dict[str, Any]) -> list[Metric]:
    """Namespace, name and dimensions; of a dimension's value, the parameter that it is."""
    return [
        (each["Namespace"], each["MetricName"], {d["Name"]: d["Value"]["Ref"] for d in each["Dimensions"]})
        for each in _stats(alarm)
    ]


def _dashboard() -> list[dict[str, Any]]:
    body = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    widgets: list[dict[str, Any]] = json.loads(body)["widgets"]
    return widgets


def _drawn() -> list[Metric]:
    """Metrics of the dashboard, with what `.` stands for: the same as in the row before."""
    found = []
    for widget in _dashboard():
        before: list[Any] = []
        for row in widget["properties"].get("metrics", []):
            texts = [each for each in row if isinstance(each, str)]
            before = [before[place] if each == "." else each for place, each in enumerate(texts)]
            namespace, name, *dimensions = before
            values = [value.removeprefix("${").removesuffix("}") for value in dimensions[1::2]]
            found.append((namespace, name, dict(zip(dimensions[::2], values, strict=True))))
    return found


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> dict[str, set[str]]:
    """Metrics that the jobs function writes, each with the dimensions that it is counted by."""
    checks = {name: {"status": "ok", "measured": 1, "milliseconds": 1.5} for name in CHECKS}
    figures = {
        "health": {"checks": checks, "failed": 0, "degraded": 0, "index_backlog": 0, "index_backlog_seconds": 0.0},
        "index_sweep": {"index_backlog": 0, "index_backlog_seconds": 0.0},
        "remediation": {"open_hub_entries": 0},
    }
    for job in JOBS:
        tell_job("a-stack", job, failed=False, figures=figures.get(job, {}))
    found: dict[str, set[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        for group in json.loads(line)["_aws"]["CloudWatchMetrics"]:
            assert group["Namespace"] == "Almagest"
            [dimensions] = group["Dimensions"]
            found |= {metric["Name"]: set(dimensions) for metric in group["Metrics"]}
    return found


def test_every_alarm_tells_the_one_topic_that_it_begins_and_that_it_ends() -> None:
    assert [name for name, each in RESOURCES.items() if each["Type"] == "AWS::SNS::Topic"] == ["Alarms"]
    assert len(ALARMS) >= 20
    for name, alarm in ALARMS.items():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": "Alarms"}], name
        assert alarm.get("ActionsEnabled", True) is True
        # Two stacks in one account do not fight for a name, and the topic takes alarms of such names alone.
        words = re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
        assert alarm["AlarmName"] == {"Fn::Sub": "${StackName}-" + words}
        assert alarm["AlarmDescription"].endswith(f"docs/runbook.md, {name}.")


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_looks_at_what_there_is(name: str, written: dict[str, set[str]]) -> None:
    for namespace, metric, dimensions in _metrics(ALARMS[name]):
        if namespace == "Almagest":
            assert written[metric] == {"stack"}
            assert dimensions == {"stack": "StackName"}
        else:
            dimension, names = AWS_METRICS[namespace]
            assert metric in names
            assert set(dimensions) == {dimension}
        assert set(dimensions.values()) <= set(TEMPLATE["Parameters"])
    alarm = ALARMS[name]
    if "Metrics" in alarm:
        [result] = [each for each in alarm["Metrics"] if each.get("ReturnData", True)]
        names = {each["Id"] for each in alarm["Metrics"]} - {result["Id"]}
        # FILL: where one of them has no datapoint the sum would have none.
        assert set(re.findall(r"FILL\((\w+), 0\)", result["Expression"])) == names
        assert re.sub(r"FILL\(\w+, 0\)|[ +]", "", result["Expression"]) == ""


def test_what_has_to_be_watched_is() -> None:
    watched: dict[tuple[str, str], set[str]] = {}
    for alarm in ALARMS.values():
        for namespace, metric, dimensions in _metrics(alarm):
            watched.setdefault((namespace, metric), set()).update(dimensions.values())
    functions = {f"{name}Function" for name in FUNCTIONS}
    for metric in ("Errors", "Throttles", "Duration"):
        assert watched["AWS/Lambda", metric] == functions, metric
    assert watched["AWS/SQS", "ApproximateNumberOfMessagesVisible"] == {"UndeliveredRuns", "FailedRuns"}
    assert {"TargetErrorCount", "InvocationsSentToDeadLetterCount"} <= {
        metric for namespace, metric in watched if namespace == "AWS/Scheduler"
    }
    assert {metric for namespace, metric in watched if namespace == "Almagest"} == {
        "FailedChecks", "OpenHubEntries", "IndexBacklogSeconds", "IndexBacklog",
    }  # fmt: skip


def test_thresholds() -> None:
    for name in (
        "UndeliveredRunsWait",
        "FailedRunsWait",
        "ScheduleErrors",
        "HealthFails",
        "SearchErrors",
        "JobsErrors",
    ):
        alarm = ALARMS[name]
        assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanOrEqualToThreshold", 1), name
    backlog = ALARMS["BacklogIsOld"]
    assert (backlog["ComparisonOperator"], backlog["Threshold"]) == ("GreaterThanThreshold", 900)
    for name in FUNCTIONS:
        threshold = ALARMS[f"{name}IsSlow"]["Threshold"] / 1000
        assert 0.9 * TIMEOUTS[name] <= threshold < TIMEOUTS[name], name
        assert ALARMS[f"{name}IsSlow"]["Statistic"] == "Maximum"
        assert f"{TIMEOUTS[name]} s" in ALARMS[f"{name}IsSlow"]["AlarmDescription"]
    # A run that uses up its job's time is none that hangs.
    assert ALARMS["JobsIsSlow"]["Threshold"] / 1000 > max(job.seconds for job in JOBS.values())


def test_what_does_not_come_any_more_is_an_alarm_too() -> None:
    """Those that say so: no run of health or of remediation for 13 hours, no sweep for half an hour."""
    missing = {name for name, alarm in ALARMS.items() if alarm["TreatMissingData"] == "breaching"}
    assert missing == {"HealthIsMissing", "RemediationIsMissing", "SweepIsMissing"}
    # What was found of these holds until the next run says otherwise; the others count what happens.
    holds = {name for name, alarm in ALARMS.items() if alarm["TreatMissingData"] == "ignore"}
    assert holds == {"HealthFails", "BacklogIsOld"}
    rest = {alarm["TreatMissingData"] for name, alarm in ALARMS.items() if name not in missing | holds}
    assert rest == {"notBreaching"}
    for name, seconds in (
        ("HealthIsMissing", 13 * 3600),
        ("RemediationIsMissing", 13 * 3600),
        ("SweepIsMissing", 1800),
    ):
        alarm = ALARMS[name]
        [stat] = _stats(alarm)
        assert stat["Stat"] == "SampleCount"
        assert stat["Period"] * alarm["EvaluationPeriods"] == seconds
        assert alarm["DatapointsToAlarm"] == alarm["EvaluationPeriods"]
        assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    for alarm in ALARMS.values():
        # What CloudWatch takes: a day at the most, unless a period has an hour.
        for stat in _stats(alarm):
            assert stat["Period"] * alarm["EvaluationPeriods"] <= 86400


def test_the_dashboard_draws_metrics_that_there_are(written: dict[str, set[str]]) -> None:
    drawn = _drawn()
    assert len(drawn) > 50
    for namespace, metric, dimensions in drawn:
        if namespace == "Almagest":
            assert dimensions.keys() == written[metric], metric
            assert dimensions["stack"] == "StackName"
            assert dimensions.get("job", "health") in JOBS
            assert dimensions.get("check", "staleness") in CHECKS
        else:
            dimension, names = AWS_METRICS[namespace]
            assert metric in names
            assert set(dimensions) == {dimension}
            assert dimensions[dimension] in TEMPLATE["Parameters"]
    assert {each["job"] for _, metric, each in drawn if metric == "JobFailures"} == set(JOBS)
    for metric in ("CheckStatus", "CheckDuration"):
        assert {each["check"] for _, name, each in drawn if name == metric} == set(CHECKS)
    assert written.keys() == {metric for namespace, metric, _ in drawn if namespace == "Almagest"}


def test_widgets_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for widget in _dashboard():
        assert widget["type"] in ("metric", "text")
        place = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not place & taken
        assert max(x for x, _ in place) < 24
        taken |= place
        if widget["type"] == "metric":
            assert widget["properties"]["title"]
            assert widget["properties"]["region"] == "${AWS::Region}"


def test_the_topic_takes_alarms_of_this_stack_alone() -> None:
    [statement] = RESOURCES["AlarmsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert (statement["Action"], statement["Resource"]) == ("sns:Publish", {"Ref": "Alarms"})
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    pattern, _ = statement["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Sub"]
    assert pattern.endswith(":alarm:${StackName}-*")


def test_cloudwatch_may_use_the_key_of_the_topic() -> None:
    """With the key that SNS has by itself, alarms would reach nobody."""
    assert RESOURCES["Alarms"]["Properties"]["KmsMasterKeyId"] == {"Ref": "AlarmsKey"}
    key = RESOURCES["AlarmsKey"]["Properties"]
    assert key["EnableKeyRotation"] is True
    principals = {}
    for statement in key["KeyPolicy"]["Statement"]:
        # In a key's policy this is the key itself.
        assert statement["Resource"] == "*"
        principals[json.dumps(statement["Principal"])] = statement["Action"]
    assert principals[json.dumps({"Service": "cloudwatch.amazonaws.com"})] == ["kms:Decrypt", "kms:GenerateDataKey*"]
    assert len(principals) == 2
    assert "root" in next(each for each in principals if "AWS" in each)


def test_nothing_else_reaches_everything() -> None:
    for name, resource in RESOURCES.items():
        if name != "AlarmsKey":
            for wildcard in ('"Resource": "*"', '"Action": "*"', '"Principal": "*"'):
                assert wildcard not in json.dumps(resource), name


def test_nobody_is_told_by_email_unless_an_address_is_given() -> None:
    subscription = RESOURCES["TellByEmail"]
    assert subscription["Condition"] == "TellsSomebody"
    assert TEMPLATE["Conditions"]["TellsSomebody"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "TellEmail"}, ""]}]}
    assert subscription["Properties"]["Protocol"] == "email"


def test_the_stack_gives_its_own_names() -> None:
    nested = PARENT["Resources"]["Operations"]["Properties"]
    assert nested["TemplateURL"] == OPERATIONS.relative_to(ROOT).as_posix()
    assert set(nested["Parameters"]) == set(TEMPLATE["Parameters"])
    for name, value in nested["Parameters"].items():
        expected = {
            "StackName": {"Ref": "AWS::StackName"},
            "ScheduleGroup": {"Ref": "Schedules"},
            "UndeliveredRuns": {"Fn::GetAtt": "UndeliveredRuns.QueueName"},
            "FailedRuns": {"Fn::GetAtt": "FailedRuns.QueueName"},
        }
        assert value == expected.get(name, {"Ref": name}), name


def test_every_schedule_is_in_the_group_that_is_counted() -> None:
    schedules = [
        event["Properties"]
        for resource in PARENT["Resources"].values()
        for event in resource["Properties"].get("Events", {}).values()
    ]
    assert schedules
    assert {json.dumps(each.get("GroupName")) for each in schedules} == {'{"Ref": "Schedules"}'}


def test_cfn_lint_finds_nothing() -> None:
    done = subprocess.run(
        [tool("cfn-lint"), "--regions", "us-east-1", "--template", OPERATIONS],
        env=os.environ | {"AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class _Storage(BaseHTTPRequestHandler):
    """As much of S3 as an upload needs: objects by their path."""

    objects: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self) -> None:
        self._answer(200 if self.path in self.objects else 404)

    def do_PUT(self) -> None:
        self.objects[self.path.partition("?")[0]] = self.rfile.read(int(self.headers["content-length"]))
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def storage() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A URL to upload to, and what was."""
    _Storage.objects.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Storage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", _Storage.objects
        server.shutdown()


def test_sam_uploads_the_file_and_names_it(storage: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    """What `sam deploy` does before it asks CloudFormation, on functions of one file each."""
    url, objects = storage
    for name in FUNCTIONS:
        code = tmp_path / "build" / "package" / name.lower()
        code.mkdir(parents=True)
        (code / "handler.py").write_text("")
    (tmp_path / "infra" / "aws").mkdir(parents=True)
    (tmp_path / "infra" / "aws" / OPERATIONS.name).write_text(OPERATIONS.read_text())
    (tmp_path / "template.yaml").write_text((ROOT / "template.yaml").read_text())
    environment = os.environ | {
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "SAM_CLI_TELEMETRY": "0",
    }
    options = ("--template-file", "template.yaml", "--s3-bucket", "artefacts", "--output-template-file", "out")
    done = subprocess.run(
        [tool("sam"), "package", *options], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    place = _load(tmp_path / "out")["Resources"]["Operations"]["Properties"]["TemplateURL"]
    key = re.fullmatch(r"https?://.*(/artefacts/[0-9a-f]+\.template)", place)
    assert key, place
    uploaded = tmp_path / "uploaded.yaml"
    uploaded.write_bytes(objects[key[1]])
    found = _load(uploaded)
    for resource in found["Resources"].values():
        resource.pop("Metadata")  # what `sam` calls it
    assert found == TEMPLATE
