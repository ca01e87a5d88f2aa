"""Where the functions of a deployed stack answer: read from its outputs, and kept beside the other settings."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almagest.cli import output
from almagest.cli.context import read_environment
from almagest.cli.options import Json, examples
from almagest.problems import Problem

if TYPE_CHECKING:
    from pathlib import Path

FILE = "urls.json"
# An output of template.yaml for each function with a URL -> what the URL is kept as.
OUTPUTS = {"SearchUrl": "search", "WriteUrl": "write", "BootstrapUrl": "bootstrap"}
Urls = dict[str, str]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples("almagest configure --stack almagest", 'eval "$(almagest configure --shell)"'),
    )(configure)


def configure(
    stack: Annotated[
        str | None, typer.Option(help="Name of the CloudFormation stack; without it, what was read last is shown.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="AWS region; default that of the AWS environment.")] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Print exports of SEARCH_URL, WRITE_URL and BOOTSTRAP_URL for a shell.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read the function URLs of a deployed stack, and keep them in the stack's directory."""
    file = read_environment().directory / FILE
    if stack is None:
        urls = _kept(file)
    else:
        urls = read_urls(stack, region)
        _keep(file, urls)
    if as_json:
        output.print_json(urls)
    elif shell:
        for name, url in urls.items():
            output.print_text(f"export {name.upper()}_URL={shlex.quote(url)}")
    else:
        output.print_record(urls)


def read_urls(stack: str, region: str | None) -> Urls:
    """Read the URLs out of the outputs of a CloudFormation stack; they end without a slash.

    Raises
    ------
    Problem
        404 `no_such_stack`, 409 `not_almagest` where an output is missing, 503 `aws_unavailable`.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
    try:
        client = boto3.client("cloudformation", region_name=region, config=config)
        [found] = client.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        message = error.response["Error"]["Message"]
        if error.response["Error"]["Code"] == "ValidationError" and "does not exist" in message:
            raise Problem(404, "no_such_stack", f"There is no stack {stack} in this account and region.") from None
        raise Problem(503, "aws_unavailable", f"AWS refused: {message}") from None
    except BotoCoreError as error:
        raise Problem(503, "aws_unavailable", f"AWS cannot be asked: {error}") from None
    outputs = {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}
    if missing := [name for name in OUTPUTS if name not in outputs]:
        status = found["StackStatus"]
        detail = f"The stack {stack} ({status}) has no output {', '.join(missing)}: is it Almagest's, and deployed?"
        raise Problem(409, "not_almagest", detail)
    return {name: outputs[key].rstrip("/") for key, name in OUTPUTS.items()}


def _kept(file: "Path") -> Urls:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
        return {name: str(found[name]) for name in OUTPUTS.values()}
    except (OSError, ValueError, KeyError, TypeError):
        raise Problem(404, "not_configured", "Nothing was read yet: name the stack with --stack.") from None


def _keep(file: "Path", urls: Urls) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(urls, indent=2) + "\n")
    except OSError as error:
        raise Problem(500, "not_kept", f"{file} cannot be written ({error.strerror}).") from None
