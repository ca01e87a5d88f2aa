"""The local stack reads the template that is deployed, and refuses what it does not know."""

from pathlib import Path

import pytest

from almagest.settings import Settings
from infra.local import ROOT
from infra.local.scheduler import trigger
from infra.local.template import Cors, Function, Schedule, TemplateError, read_template

PARAMETERS = {
    "SupabaseUrl": "http://127.0.0.1:1",
    "SupabaseSecretArn": "arn:aws:secretsmanager:us-east-1:000000000000:secret:supabase",
    "DatabaseSecretArn": "arn:aws:secretsmanager:us-east-1:000000000000:secret:database",
}

MINIMAL = """
Parameters:
  Size: {Type: Number, Default: 256}
  Name: {Type: String, Default: plain, AllowedPattern: "[a-z]+"}
  Most: {Type: Number, Default: 2, MinValue: -1, MaxValue: 9}
  Origins: {Type: CommaDelimitedList, Default: "https://a.example, https://b.example"}
  Days: {Type: Number, Default: 30, AllowedValues: [1, 30]}
Conditions:
  Reserves: !Not [!Equals [!Ref Most, -1]]
Globals:
  Function:
    Runtime: python3.13
    CodeUri: code/
    Environment: {Variables: {SHARED: !Ref Name, COMMON: "1"}}
Resources:
  OneFunction:
    Type: AWS::Serverless::Function
    Properties:
      Handler: rooms.one
      MemorySize: !Ref Size
      Timeout: 7
      ReservedConcurrentExecutions: !If [Reserves, !Ref Most, !Ref AWS::NoValue]
      Policies: [{Statement: []}]
      Role: !GetAtt OneRole.Arn
      Environment:
        Variables:
          SHARED: !Sub own
          NAME: !Sub "${Name}-${AWS::Region}-${!Literal}"
          OTHER: !Ref TwoFunction
          ARN: !GetAtt TwoFunction.Arn
      FunctionUrlConfig:
        AuthType: NONE
        Cors: {AllowOrigins: !Ref Origins, AllowMethods: [get], AllowHeaders: [Authorization], MaxAge: 60}
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
    return read_template(file, parameters)


def test_a_local_stack_is_the_one_that_a_command_speaks_for() -> None:
    """Or what its schedules find and what is asked for by hand would be of two installations."""
    functions = read_template(ROOT / "template.yaml", PARAMETERS)
    assert functions["jobs"].environment["ALMAGEST_STACK"] == Settings.model_fields["stack"].default


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
        },
        has_url=True,
        cors=Cors(("https://a.example", "https://b.example"), ("GET",), ("authorization",), (), 60),
        schedules=(Schedule("Often", "rate(5 minutes)", '{"a": 1}'),),
    )
    two = functions["two"]
    assert (two.memory, two.timeout, two.concurrency, two.has_url) == (128, 3, None, False)
    assert two.environment == {"SHARED": "plain", "COMMON": "1"}


def test_parameters(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL, Size="512")["one"].memory == 512
    with pytest.raises(TemplateError, match="no parameter Colour"):
        read(tmp_path, MINIMAL, Colour="red")
    with pytest.raises(TemplateError, match=r"Name does not match \[a-z\]\+"):
        read(tmp_path, MINIMAL, Name="NO")
    for wrong in ("-2", "10", "many"):
        with pytest.raises(TemplateError, match="Parameter Most is"):
            read(tmp_path, MINIMAL, Most=wrong)
    with pytest.raises(TemplateError, match="Days is none of 1, 30"):
        read(tmp_path, MINIMAL, Days="31")
    with pytest.raises(TemplateError, match="Size has neither a value nor a default"):
        read(tmp_path, MINIMAL.replace("Default: 256", "Description: x"))


def test_a_condition_chooses_whether_there_is_a_value(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL, Most="-1")["one"].concurrency is None
    assert read(tmp_path, MINIMAL, Most="0")["one"].concurrency == 0


@pytest.mark.parametrize(
    ("known", "unknown", "named"),
    [
        ("Timeout: 7", "Layers: []", "Layers"),
        ("AuthType: NONE", "AuthType: AWS_IAM", "AWS_IAM"),
        ("MaxAge: 60", "AllowCredentials: true", "AllowCredentials"),
        ("Type: ScheduleV2", "Type: Api", "Api"),
        ("RetryPolicy: {}", "ScheduleExpressionTimezone: UTC", "ScheduleExpressionTimezone"),
        ("Handler: rooms.two", "Handler: !Select [0, [a]]", "!Select"),
        ("[Reserves, ", "[Other, ", "Other"),
        ("!Not [!Equals", "!Not [!Ref", "Condition Reserves"),
        ("Handler: rooms.two", 'Handler: {"Fn::Join": ["", []]}', "Fn::Join"),
        ("!Ref TwoFunction", "!Ref Nothing", "Nothing"),
        ("!GetAtt TwoFunction.Arn", "!GetAtt TwoFunction.Colour", "TwoFunction.Colour"),
        ("OTHER: !Ref TwoFunction", 'OTHER: "{{resolve:ssm:name}}"', "dynamic reference"),
        ("Outputs:", "Mappings: {}\nOutputs:", "Mappings"),
        ("Type: Number", "Type: List<Number>", "List<Number>"),
        ("Runtime: python3.13", "Runtime: nodejs22.x", "nodejs22"),
        ("Handler: rooms.two", "Timeout: 3", "has no Handler"),
        ("Outputs:", "  Bucket: {Type: 'AWS::S3::Bucket'}\nOutputs:", "Bucket is of type AWS::S3::Bucket"),
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
    functions = read_template(ROOT / "template.yaml", PARAMETERS)
    assert {name for name, function in functions.items() if function.has_url} == {"search", "write", "bootstrap"}
    assert functions["write"].environment["ALMAGEST_INDEX_FUNCTION"] == "index"
    # Only scheduled work holds a connection of its own.
    knows = {
        name for name, function in functions.items() if "secret:database" in function.environment["ALMAGEST_SECRETS"]
    }
    assert knows == {"index", "jobs"}
    for function in functions.values():
        assert function.handler == f"almagest.handlers.{function.name}.handler"
        assert function.code == ROOT / "build" / "package" / function.name
        for schedule in function.schedules:
            trigger(schedule.expression)
