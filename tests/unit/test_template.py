"""The local stack reads the template that is deployed, and refuses what it does not know."""

from pathlib import Path

import pytest
import yaml

from infra.local import ROOT
from infra.local.scheduler import trigger
from infra.local.template import Function, Schedule, TemplateError, read_template

SECRETS = {"arn": {"supabase_secret_key": "sb_secret_1", "database_url": "postgresql://", "jwt_secret": ""}}
PARAMETERS = {"SupabaseUrl": "http://127.0.0.1:1", "SupabaseSecretArn": "arn"}

MINIMAL = """
Parameters:
  Size: {Type: Number, Default: 256}
  Name: {Type: String, Default: plain, AllowedPattern: "[a-z]+"}
Globals:
  Function:
    Runtime: python3.13
    CodeUri: code/
    Environment: {Variables: {SHARED: globals, COMMON: "1"}}
Resources:
  OneFunction:
    Type: AWS::Serverless::Function
    Properties:
      Handler: rooms.one
      MemorySize: !Ref Size
      Timeout: 7
      ReservedConcurrentExecutions: 2
      Policies: [{Statement: []}]
      Environment:
        Variables:
          SHARED: own
          NAME: !Sub "${Name}-${AWS::Region}-${!Literal}"
          OTHER: !Ref TwoFunction
          ARN: !GetAtt TwoFunction.Arn
          SECRET: !Sub "{{resolve:secretsmanager:arn:SecretString:key}}"
      FunctionUrlConfig: {AuthType: NONE}
      Events:
        Often:
          Type: ScheduleV2
          Properties: {ScheduleExpression: rate(5 minutes), Input: '{"a": 1}', RetryPolicy: {}}
        Never:
          Type: ScheduleV2
          Properties: {ScheduleExpression: rate(1 day), State: DISABLED}
  TwoFunction: {Type: "AWS::Serverless::Function", Properties: {Handler: rooms.two}}
Outputs: {Url: {Value: !GetAtt OneFunctionUrl.FunctionUrl}}
"""


def read(path: Path, text: str, **parameters: str) -> dict[str, Function]:
    file = path / "template.yaml"
    file.write_text(text)
    return read_template(file, parameters, {"arn": {"key": "hidden"}})


def test_functions_as_they_are_deployed(tmp_path: Path) -> None:
    functions = read(tmp_path, MINIMAL)
    assert functions["one"] == Function(
        name="one",
        handler="rooms.one",
        code=tmp_path / "code",
        memory=256,
        timeout=7,
        concurrency=2,
        environment={
            "SHARED": "own",
            "COMMON": "1",
            "NAME": "plain-us-east-1-${Literal}",
            "OTHER": "two",
            "ARN": "arn:aws:lambda:us-east-1:000000000000:function:two",
            "SECRET": "hidden",
        },
        has_url=True,
        schedules=(Schedule("Often", "rate(5 minutes)", '{"a": 1}'),),
    )
    two = functions["two"]
    assert (two.memory, two.timeout, two.concurrency, two.has_url) == (128, 3, None, False)
    assert two.environment == {"SHARED": "globals", "COMMON": "1"}


def test_parameters(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL, Size="512")["one"].memory == 512
    with pytest.raises(TemplateError, match="no parameter Colour"):
        read(tmp_path, MINIMAL, Colour="red")
    with pytest.raises(TemplateError, match=r"Name does not match \[a-z\]\+"):
        read(tmp_path, MINIMAL, Name="NO")
    with pytest.raises(TemplateError, match="Size has neither a value nor a default"):
        read(tmp_path, MINIMAL.replace("Default: 256", "Description: x"))


@pytest.mark.parametrize(
    ("known", "unknown", "named"),
    [
        ("Timeout: 7", "Layers: []", "Layers"),
        ("AuthType: NONE", "AuthType: AWS_IAM", "AWS_IAM"),
        ("AuthType: NONE", "AuthType: NONE, Cors: {}", "Cors"),
        ("Type: ScheduleV2", "Type: Api", "Api"),
        ("RetryPolicy: {}", "ScheduleExpressionTimezone: UTC", "ScheduleExpressionTimezone"),
        ("Handler: rooms.two", "Handler: !If [a, b, c]", "!If"),
        ("Handler: rooms.two", 'Handler: {"Fn::Join": ["", []]}', "Fn::Join"),
        ("!Ref TwoFunction", "!Ref Nothing", "Nothing"),
        ("!GetAtt TwoFunction.Arn", "!GetAtt TwoFunction.Colour", "TwoFunction.Colour"),
        ("resolve:secretsmanager:arn", "resolve:ssm", "ssm"),
        ("SecretString:key", "SecretString:other", "other"),
        ("Outputs:", "Conditions: {}\nOutputs:", "Conditions"),
        ("Type: Number", "Type: CommaDelimitedList", "CommaDelimitedList"),
        ("Runtime: python3.13", "Runtime: nodejs22.x", "nodejs22"),
        ("Handler: rooms.two", "Timeout: 3", "has no Handler"),
        ("Outputs:", "  Queue: {Type: 'AWS::SQS::Queue'}\nOutputs:", "Queue is of type AWS::SQS::Queue"),
        ("Globals:", "Globals:\n  Api: {}", "Api"),
        ("'{\"a\": 1}'", "'{'", "Input is not JSON"),
    ],
)
def test_what_is_not_known_is_named(tmp_path: Path, known: str, unknown: str, named: str) -> None:
    assert known in MINIMAL
    with pytest.raises(TemplateError) as raised:
        read(tmp_path, MINIMAL.replace(known, unknown, 1))
    assert named in str(raised.value)


def test_the_repositorys_own_template() -> None:
    functions = read_template(ROOT / "template.yaml", PARAMETERS, SECRETS)
    assert {name for name, function in functions.items() if function.has_url} == {"search", "write", "bootstrap"}
    assert functions["write"].environment["ALMAGEST_INDEX_FUNCTION"] == "index"
    # Only scheduled work holds a connection of its own.
    assert [name for name, function in functions.items() if "DATABASE_URL" in function.environment] == ["index"]
    for function in functions.values():
        assert function.handler == f"almagest.handlers.{function.name}.handler"
        for schedule in function.schedules:
            trigger(schedule.expression)


def test_public_urls_have_both_permissions() -> None:
    """R8: SAM grants lambda:InvokeFunctionUrl, the template the second one."""
    text = (ROOT / "template.yaml").read_text().replace("!Ref", "").replace("!Sub", "").replace("!GetAtt", "")
    resources = yaml.safe_load(text)["Resources"]
    public = {name for name, resource in resources.items() if "FunctionUrlConfig" in resource["Properties"]}
    granted = [
        resource["Properties"] for resource in resources.values() if resource["Type"] == "AWS::Lambda::Permission"
    ]
    assert {grant["FunctionName"] for grant in granted} == public
    for grant in granted:
        assert (grant["Action"], grant["Principal"], grant["InvokedViaFunctionUrl"]) == (
            "lambda:InvokeFunction",
            "*",
            True,
        )
