"""`almagest configure` reads the URLs of a deployed stack out of its outputs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from almagest.cli import main
from almagest.cli.configure import OUTPUTS
from infra.local import ROOT
from infra.local.template import _Loader

URLS = {name: f"https://{name}.lambda-url.eu-central-1.on.aws" for name in ("search", "write", "bootstrap")}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """AWS CloudFormation, in memory, and a directory of the command's own."""
    monkeypatch.setenv("ALMAGEST_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    with mock_aws():
        yield boto3.client("cloudformation")


def deploy(cloud: Any, name: str, outputs: dict[str, str]) -> None:
    template = {
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    cloud.create_stack(StackName=name, TemplateBody=json.dumps(template))


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["configure", *words])
    return int(ended.value.code or 0)


def test_urls_are_read_kept_and_shown(cloud: Any, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = {key: URLS[name] + "/" for key, name in OUTPUTS.items()}
    deploy(cloud, "almagest", {**outputs, "IndexFunctionName": "index"})
    assert run("--stack", "almagest", "--json") == 0
    assert json.loads(capsys.readouterr().out) == URLS
    # Without a stack, what was read is shown, and AWS is not asked.
    cloud.delete_stack(StackName="almagest")
    assert run("--shell") == 0
    assert capsys.readouterr().out.splitlines() == [f"export {name.upper()}_URL={url}" for name, url in URLS.items()]
    assert run() == 0
    shown = capsys.readouterr().out
    assert all(url in shown for url in URLS.values())


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--stack", "other"), "no_such_stack"), (("--stack", "queue"), "not_almagest"), ((), "not_configured")],
)
def test_what_is_in_the_way_is_said(
    cloud: Any, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: str
) -> None:
    deploy(cloud, "queue", {"SearchUrl": "https://only.one"})
    assert run(*words) == 1
    said = capsys.readouterr().err
    assert code in said
    assert "Traceback" not in said


def test_without_credentials_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert run("--stack", "almagest", "--region", "eu-central-1") == 1
    assert "aws_unavailable" in capsys.readouterr().err


def test_the_template_has_these_outputs() -> None:
    template = yaml.load((ROOT / "template.yaml").read_text(), _Loader)  # noqa: S506 - a SafeLoader
    assert set(OUTPUTS) <= set(template["Outputs"])
