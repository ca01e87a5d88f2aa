"""What AWS is told to make: the template as SAM transforms it. R7, R8, and least privileges."""

import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from almagest.operations.registry import JOBS
from infra.local import ROOT
from tests.infrastructure.tools import tool

PUBLIC = {"SearchFunction", "WriteFunction", "BootstrapFunction"}
# Those that are invoked asynchronously, and hold a database connection of their own.
SCHEDULED = {"IndexFunction", "JobsFunction"}
Resource = dict[str, Any]


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    """The transformed template."""
    done = subprocess.run(
        [tool("python"), Path(__file__).with_name("transform.py"), ROOT / "template.yaml"],
        env=os.environ | {"AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    transformed: dict[str, Any] = json.loads(done.stdout)
    return transformed


@pytest.fixture
def resources(template: dict[str, Any]) -> dict[str, Resource]:
    found: dict[str, Resource] = template["Resources"]
    return found


def of_type(resources: dict[str, Resource], kind: str) -> dict[str, Any]:
    """Properties of the resources of a type, by name."""
    return {name: each["Properties"] for name, each in resources.items() if each["Type"] == kind}


def statements(resources: dict[str, Resource]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Statements of all roles' own policies, with the role's name."""
    for name, role in of_type(resources, "AWS::IAM::Role").items():
        for policy in role["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                yield name, statement


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def allowed(resources: dict[str, Resource], role: str) -> dict[str, list[Any]]:
    """What a role may do: action -> resources."""
    return {
        action: as_list(statement["Resource"])
        for name, statement in statements(resources)
        for action in as_list(statement["Action"])
        if name == role
    }


def test_public_urls_have_both_permissions(resources: dict[str, Resource]) -> None:
    """R8"""
    urls = of_type(resources, "AWS::Lambda::Url")
    assert {url["TargetFunctionArn"]["Ref"] for url in urls.values()} == PUBLIC
    assert {url["AuthType"] for url in urls.values()} == {"NONE"}
    granted = of_type(resources, "AWS::Lambda::Permission").values()
    for function in PUBLIC:
        conditions = {
            (grant["Action"], grant.get("FunctionUrlAuthType"), grant.get("InvokedViaFunctionUrl"))
            for grant in granted
            if grant["FunctionName"]["Ref"] == function and grant["Principal"] == "*"
        }
        assert conditions == {
            ("lambda:InvokeFunctionUrl", "NONE", None),
            ("lambda:InvokeFunction", None, True),
        }
    # Nobody may invoke a function past its URL, and nothing public invokes the index.
    assert {grant["FunctionName"]["Ref"] for grant in granted} == PUBLIC


def test_the_url_alone_knows_cors(resources: dict[str, Resource]) -> None:
    """R7"""
    for name, url in of_type(resources, "AWS::Lambda::Url").items():
        cors = url["Cors"]
        assert cors["AllowOrigins"] == {"Ref": "AllowedOrigins"}
        assert "AllowCredentials" not in cors
        assert {"authorization", "content-type", "x-almagest-org"} <= set(cors["AllowHeaders"])
        spec = importlib.util.find_spec(f"almagest.handlers.{name.removesuffix('FunctionUrl').lower()}")
        assert spec is not None
        assert spec.origin is not None
        routes = set(re.findall(r"^@app\.(\w+)\(", Path(spec.origin).read_text(), re.MULTILINE))
        assert set(cors["AllowMethods"]) == {method.upper() for method in routes}
    code = "".join(file.read_text() for file in (ROOT / "functions").rglob("*.py"))
    assert "access-control" not in code.lower()
    assert "cors" not in re.findall(r"\w+", code.lower())


def test_no_role_reaches_further_than_it_must(resources: dict[str, Resource]) -> None:
    seen = 0
    for name, statement in statements(resources):
        assert statement["Effect"] == "Allow"
        for action in as_list(statement["Action"]):
            assert re.fullmatch(r"[a-z]+:[A-Za-z]+", action), (name, action)
        for resource in as_list(statement["Resource"]):
            # A reference to one thing of this stack or to one parameter; never a pattern.
            assert isinstance(resource, dict), (name, resource)
            assert set(resource) <= {"Ref", "Fn::GetAtt"}, (name, resource)
            seen += 1
    assert seen >= 12
    for name, role in of_type(resources, "AWS::IAM::Role").items():
        assert "ManagedPolicyArns" not in role, name
        for statement in role["AssumeRolePolicyDocument"]["Statement"]:
            assert list(statement["Principal"]) == ["Service"]


def test_each_function_has_a_role_of_its_own(resources: dict[str, Resource]) -> None:
    roles = {name: each["Role"]["Fn::GetAtt"][0] for name, each in of_type(resources, "AWS::Lambda::Function").items()}
    assert len(set(roles.values())) == len(roles) == 5
    supabase, database = {"Ref": "SupabaseSecretArn"}, {"Ref": "DatabaseSecretArn"}
    for function, role in roles.items():
        may = allowed(resources, role)
        logs = {"Fn::GetAtt": [function.replace("Function", "Logs"), "Arn"]}
        assert may.pop("logs:CreateLogStream") == may.pop("logs:PutLogEvents") == [logs]
        assert may.pop("secretsmanager:GetSecretValue") == (
            [supabase, database] if function in SCHEDULED else [supabase]
        )
        rest = {
            "WriteFunction": {"lambda:InvokeFunction": [{"Fn::GetAtt": ["IndexFunction", "Arn"]}]},
            **{key: {"sqs:SendMessage": [{"Fn::GetAtt": ["FailedRuns", "Arn"]}]} for key in SCHEDULED},
        }
        assert may == rest.get(function, {})


def test_functions(resources: dict[str, Resource], template: dict[str, Any]) -> None:
    functions = of_type(resources, "AWS::Lambda::Function")
    for name, function in functions.items():
        short = name.removesuffix("Function")
        assert function["Runtime"] == "python3.13"
        assert function["Architectures"] == ["x86_64"]
        assert function["MemorySize"] == {"Ref": f"{short}Memory"}
        assert function["ReservedConcurrentExecutions"] == {
            "Fn::If": [f"{short}Reserves", {"Ref": f"{short}Concurrency"}, {"Ref": "AWS::NoValue"}]
        }
        assert template["Conditions"][f"{short}Reserves"] == {
            "Fn::Not": [{"Fn::Equals": [{"Ref": f"{short}Concurrency"}, -1]}]
        }
        assert function["LoggingConfig"] == {"LogGroup": {"Ref": f"{short}Logs"}}
        assert resources[f"{short}Logs"]["Properties"]["RetentionInDays"] == {"Ref": "LogRetentionDays"}


def test_handlers_exist(resources: dict[str, Resource]) -> None:
    for name, function in of_type(resources, "AWS::Lambda::Function").items():
        module, _, handler = function["Handler"].rpartition(".")
        assert module.rpartition(".")[2] == name.removesuffix("Function").lower()
        assert callable(getattr(importlib.import_module(module), handler))
    handlers = {file.stem for file in (ROOT / "functions/almagest/handlers").glob("*.py")} - {"__init__"}
    assert {name.removesuffix("Function").lower() for name in of_type(resources, "AWS::Lambda::Function")} == handlers


def test_no_secret_is_in_the_environment(template: dict[str, Any]) -> None:
    """What CloudFormation resolved would stay in the configuration of a function until the next deploy."""
    text = json.dumps(template)
    assert "{{resolve" not in text
    for function in of_type(template["Resources"], "AWS::Lambda::Function").values():
        names = set(function["Environment"]["Variables"])
        assert {"ALMAGEST_SECRETS", "ALMAGEST_SECRET_SECONDS"} <= names
        assert not names & {"SUPABASE_SECRET_KEY", "SUPABASE_JWT_SECRET", "DATABASE_URL"}


def test_schedules(resources: dict[str, Resource]) -> None:
    schedules = of_type(resources, "AWS::Scheduler::Schedule")
    expressions = {
        json.loads(each["Target"]["Input"])["job"]: each["ScheduleExpression"] for each in schedules.values()
    }
    assert expressions == {job.name: job.schedule for job in JOBS.values()}
    assert {each["Target"]["Arn"]["Fn::GetAtt"][0] for each in schedules.values()} == {"JobsFunction"}
    for schedule in schedules.values():
        # Another zone than UTC would have to be asked for.
        assert schedule.keys() <= {
            *("Name", "GroupName", "Description", "ScheduleExpression", "FlexibleTimeWindow", "Target", "State"),
        }
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        assert schedule.get("State", "ENABLED") == "ENABLED"
        # Two stacks in one account must not fight for a name.
        assert "${AWS::StackName}" in schedule["Name"]["Fn::Sub"]
        target = schedule["Target"]
        assert json.loads(target["Input"])["scheduled_for"] == "<aws.scheduler.scheduled-time>"
        assert 1 <= target["RetryPolicy"]["MaximumRetryAttempts"] <= 5
        assert 60 <= target["RetryPolicy"]["MaximumEventAgeInSeconds"] <= 3600
        queue = target["DeadLetterConfig"]["Arn"]
        assert allowed(resources, target["RoleArn"]["Fn::GetAtt"][0]) == {
            "lambda:InvokeFunction": [target["Arn"]],
            "sqs:SendMessage": [queue],
        }


def test_failures_are_kept(resources: dict[str, Resource]) -> None:
    """A function that is invoked asynchronously, by a schedule or another function, has a place for what failed."""
    invoked = {
        resource["Fn::GetAtt"][0]
        for _, statement in statements(resources)
        for resource in as_list(statement["Resource"])
        if "lambda:InvokeFunction" in as_list(statement["Action"])
    }
    configured = {
        config["FunctionName"]["Ref"]: config
        for config in of_type(resources, "AWS::Lambda::EventInvokeConfig").values()
    }
    assert set(configured) == invoked == SCHEDULED
    queues = of_type(resources, "AWS::SQS::Queue")
    for config in configured.values():
        queue = config["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
        assert queue in queues
        assert config["MaximumRetryAttempts"] == 2
    for queue in queues.values():
        assert queue["SqsManagedSseEnabled"] is True
        assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600


@pytest.mark.parametrize(
    "command",
    [("sam", "validate", "--lint", "--template"), ("cfn-lint", "--regions", "us-east-1", "--template")],
    ids=["sam", "cfn-lint"],
)
def test_linters_find_nothing(command: tuple[str, ...]) -> None:
    environment = os.environ | {"AWS_DEFAULT_REGION": "us-east-1", "SAM_CLI_TELEMETRY": "0"}
    program, *options = command
    done = subprocess.run(
        [tool(program), *options, str(ROOT / "template.yaml")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
