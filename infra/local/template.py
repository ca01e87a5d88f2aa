"""`template.yaml`, read as the local stack needs it: functions, their environment, their URLs and schedules.

What is deployed is what runs here. So a construct that this reader does not know is an error that names it; what only
means something on AWS is listed by name and passed over.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REGION = "us-east-1"
ACCOUNT = "000000000000"

_SECTIONS = {"AWSTemplateFormatVersion", "Transform", "Description", "Parameters", "Globals", "Resources"}
_AWS_ONLY_SECTIONS = {"Outputs", "Metadata"}
_AWS_ONLY_RESOURCES = {"AWS::Lambda::Permission", "AWS::Logs::LogGroup"}
_PARAMETER = {"Type", "Default", "Description", "NoEcho", "AllowedPattern"}
_FUNCTION = {
    *("CodeUri", "Handler", "Runtime", "Architectures", "MemorySize", "Timeout", "Environment"),
    *("ReservedConcurrentExecutions", "FunctionUrlConfig", "Events"),
}
_AWS_ONLY_FUNCTION = {"Policies", "Tags", "Description", "LoggingConfig", "Tracing"}
_SCHEDULE = {"ScheduleExpression", "Input", "State"}
_AWS_ONLY_SCHEDULE = {"Description", "Name", "RetryPolicy", "FlexibleTimeWindow"}
_PSEUDO = {
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::StackName": "almagest",
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
}


class TemplateError(Exception):
    """The template says something that the local stack does not understand; the text names it."""


@dataclass(frozen=True)
class Schedule:
    """When a function is invoked, and with what.

    `expression` is EventBridge Scheduler's; `input` its JSON text, None for Scheduler's own event.
    """

    name: str
    expression: str
    input: str | None = None


@dataclass(frozen=True)
class Function:
    """One function of the template; `timeout` in seconds, `memory` in MB, `concurrency` None when none is reserved."""

    name: str
    handler: str
    code: Path
    memory: int = 128
    timeout: int = 3
    concurrency: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    has_url: bool = False
    schedules: tuple[Schedule, ...] = ()

    @property
    def arn(self) -> str:
        """The function's ARN in the local account."""
        return function_arn(self.name)


def function_arn(name: str) -> str:
    """ARN of a function of that name in the local account."""
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"


def local_name(logical_id: str) -> str:
    """Name of a function here: `SearchFunction` is search."""
    return logical_id.removesuffix("Function").lower()


def read_template(
    path: Path, parameters: Mapping[str, str], secrets: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, Function]:
    """Read the functions of a SAM template, by name.

    Parameters
    ----------
    path
        The template; code locations are relative to it.
    parameters
        Values of its parameters; those with a default may be left out.
    secrets
        What a `{{resolve:secretsmanager:ARN:SecretString:key}}` finds: ARN -> key -> value.

    Raises
    ------
    TemplateError
        At the first construct that is not known, or a parameter that is missing or unfit.
    """
    document = _load(path)
    _check(document, _SECTIONS | _AWS_ONLY_SECTIONS, "the template")
    resources: dict[str, Any] = document.get("Resources") or {}
    resolver = _Resolver(_parameters(document.get("Parameters") or {}, parameters), resources, secrets or {})
    defaults = document.get("Globals") or {}
    _check(defaults, {"Function"}, "Globals")
    functions = {}
    for logical_id, resource in resources.items():
        kind = resource.get("Type")
        if kind in _AWS_ONLY_RESOURCES:
            continue
        if kind != "AWS::Serverless::Function":
            raise TemplateError(f"Resource {logical_id} is of type {kind}, which the local stack does not know.")
        _check(resource, {"Type", "Properties"}, logical_id)
        properties = _merge(defaults.get("Function") or {}, resource.get("Properties") or {})
        function = _function(logical_id, properties, resolver, path.parent)
        functions[function.name] = function
    return functions


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms."""


def _short_form(name: str) -> Any:
    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> dict[str, str]:
        return {name: loader.construct_scalar(node)}

    return construct


for _tag, _name in {"!Ref": "Ref", "!Sub": "Fn::Sub", "!GetAtt": "Fn::GetAtt"}.items():
    _Loader.add_constructor(_tag, _short_form(_name))


def _load(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise TemplateError(f"{path.name} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise TemplateError(f"{path.name} is no template.")
    return document


@dataclass(frozen=True)
class _Resolver:
    parameters: Mapping[str, str]
    resources: Mapping[str, Any]
    secrets: Mapping[str, Mapping[str, str]]

    def text(self, value: Any, where: str) -> str:
        """Return a property as the text that it will have on AWS."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float):
            return self._dynamic(str(value), where)
        if isinstance(value, dict) and len(value) == 1:
            (name, argument), *_ = value.items()
            if name == "Ref":
                return self._ref(argument, where)
            if name == "Fn::Sub" and isinstance(argument, str):
                return self._dynamic(re.sub(r"\$\{([^}]+)\}", lambda m: self._substitute(m[1], where), argument), where)
            if name == "Fn::GetAtt" and isinstance(argument, str):
                return self._attribute(argument, where)
            raise TemplateError(f"{where} uses {name}, which the local stack does not know in this form.")
        raise TemplateError(f"{where} is no text: {value!r}.")

    def _substitute(self, name: str, where: str) -> str:
        if name.startswith("!"):
            return "${" + name[1:] + "}"
        return self._attribute(name, where) if "." in name else self._ref(name, where)

    def _ref(self, name: str, where: str) -> str:
        if name in self.parameters:
            return self.parameters[name]
        if name in _PSEUDO:
            return _PSEUDO[name]
        if self._is_function(name):
            return local_name(name)
        raise TemplateError(f"{where} refers to {name}, which the local stack does not know.")

    def _attribute(self, path: str, where: str) -> str:
        resource, _, attribute = path.partition(".")
        if attribute == "Arn" and self._is_function(resource):
            return function_arn(local_name(resource))
        raise TemplateError(f"{where} refers to {path}, which the local stack does not know.")

    def _is_function(self, name: str) -> bool:
        return bool(self.resources.get(name, {}).get("Type") == "AWS::Serverless::Function")

    def _dynamic(self, text: str, where: str) -> str:
        return re.sub(r"\{\{resolve:(.*?)\}\}", lambda match: self._secret(match[1], where), text)

    def _secret(self, reference: str, where: str) -> str:
        found = re.fullmatch(r"secretsmanager:(?P<arn>.+):SecretString:(?P<key>\w+)", reference)
        if found is None:
            raise TemplateError(f"{where} resolves {reference}, which the local stack does not know.")
        try:
            return self.secrets[found["arn"]][found["key"]]
        except KeyError:
            raise TemplateError(
                f"{where} needs {found['key']} of the secret {found['arn']}, which is not there."
            ) from None


def _parameters(declared: dict[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    if unknown := set(given) - set(declared):
        raise TemplateError(f"The template has no parameter {', '.join(sorted(unknown))}.")
    values = {}
    for name, parameter in declared.items():
        _check(parameter, _PARAMETER, f"Parameter {name}")
        if parameter.get("Type") not in ("String", "Number"):
            raise TemplateError(
                f"Parameter {name} is of type {parameter.get('Type')}, which the local stack does not know."
            )
        value = given.get(name, parameter.get("Default"))
        if value is None:
            raise TemplateError(f"Parameter {name} has neither a value nor a default.")
        pattern = parameter.get("AllowedPattern")
        if pattern and not re.fullmatch(pattern, str(value)):
            raise TemplateError(f"Parameter {name} does not match {pattern}.")
        values[name] = str(value)
    return values


def _function(logical_id: str, properties: dict[str, Any], resolver: _Resolver, base: Path) -> Function:
    _check(properties, _FUNCTION | _AWS_ONLY_FUNCTION, logical_id)

    def text(name: str) -> str:
        if name not in properties:
            raise TemplateError(f"{logical_id} has no {name}.")
        return resolver.text(properties[name], f"{logical_id}.{name}")

    def number(name: str, default: int | None) -> Any:
        return int(text(name)) if name in properties else default

    if not text("Runtime").startswith("python3."):
        raise TemplateError(f"{logical_id} runs on {text('Runtime')}; the local stack knows Python only.")
    environment = properties.get("Environment") or {}
    _check(environment, {"Variables"}, f"{logical_id}.Environment")
    return Function(
        name=local_name(logical_id),
        handler=text("Handler"),
        code=(base / text("CodeUri")).resolve(),
        memory=number("MemorySize", 128),
        timeout=number("Timeout", 3),
        concurrency=number("ReservedConcurrentExecutions", None),
        environment={
            name: resolver.text(value, f"{logical_id}.{name}")
            for name, value in (environment.get("Variables") or {}).items()
        },
        has_url=_has_url(logical_id, properties.get("FunctionUrlConfig")),
        schedules=tuple(
            schedule
            for name, event in (properties.get("Events") or {}).items()
            if (schedule := _schedule(f"{logical_id}.{name}", name, event, resolver))
        ),
    )


def _has_url(logical_id: str, config: dict[str, Any] | None) -> bool:
    if config is None:
        return False
    _check(config, {"AuthType", "InvokeMode"}, f"{logical_id}.FunctionUrlConfig")
    for name, known in {"AuthType": "NONE", "InvokeMode": "BUFFERED"}.items():
        if config.get(name, known) != known:
            raise TemplateError(f"{logical_id} has {name} {config[name]}; the local stack knows {known} only.")
    return True


def _schedule(where: str, name: str, event: dict[str, Any], resolver: _Resolver) -> Schedule | None:
    _check(event, {"Type", "Properties"}, where)
    if event.get("Type") != "ScheduleV2":
        raise TemplateError(f"{where} is an event of type {event.get('Type')}, which the local stack does not know.")
    properties = event.get("Properties") or {}
    _check(properties, _SCHEDULE | _AWS_ONLY_SCHEDULE, where)
    if properties.get("State", "ENABLED") == "DISABLED":
        return None
    text = resolver.text(properties["Input"], f"{where}.Input") if "Input" in properties else None
    if text is not None:
        try:
            json.loads(text)
        except ValueError as error:
            raise TemplateError(f"{where}.Input is not JSON: {error}.") from error
    return Schedule(name, resolver.text(properties.get("ScheduleExpression"), where), text)


def _merge(defaults: Any, own: Any) -> Any:
    """Merge as SAM does: maps key by key, lists joined, anything else the function's own."""
    if isinstance(defaults, dict) and isinstance(own, dict):
        return defaults | {
            key: _merge(defaults[key], value) if key in defaults else value for key, value in own.items()
        }
    if isinstance(defaults, list) and isinstance(own, list):
        return defaults + own
    return own


def _check(found: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := set(found) - known:
        raise TemplateError(f"{where} has {', '.join(sorted(unknown))}, which the local stack does not know.")
