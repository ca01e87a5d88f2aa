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

_SECTIONS = {
    *("AWSTemplateFormatVersion", "Transform", "Description", "Parameters", "Conditions", "Globals", "Resources"),
}
_AWS_ONLY_SECTIONS = {"Outputs", "Metadata"}
_AWS_ONLY_RESOURCES = {
    *("AWS::Lambda::Permission", "AWS::Logs::LogGroup", "AWS::IAM::Role", "AWS::SQS::Queue"),
    *("AWS::Scheduler::ScheduleGroup", "AWS::CloudFormation::Stack"),
}
_PARAMETER = {"Type", "Default", "Description", "NoEcho", "AllowedPattern", "AllowedValues", "MinValue", "MaxValue"}
_FUNCTION = {
    *("CodeUri", "Handler", "Runtime", "Architectures", "MemorySize", "Timeout", "Environment"),
    *("ReservedConcurrentExecutions", "FunctionUrlConfig", "Events"),
}
_AWS_ONLY_FUNCTION = {"Policies", "Role", "Tags", "Description", "LoggingConfig", "Tracing", "EventInvokeConfig"}
_SCHEDULE = {"ScheduleExpression", "Input", "State"}
_AWS_ONLY_SCHEDULE = {
    *("Description", "Name", "GroupName", "RoleArn", "RetryPolicy", "DeadLetterConfig", "FlexibleTimeWindow"),
}
_CORS = {"AllowOrigins", "AllowMethods", "AllowHeaders", "ExposeHeaders", "MaxAge"}
_PSEUDO = {
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::StackName": "local",
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
class Cors:
    """What a function URL lets pages of other origins do; header names in lower case, `max_age` in seconds."""

    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    max_age: int = 0


@dataclass(frozen=True)
class Function:
    """One function of the template; `timeout` in seconds, `memory` in MB, `concurrency` None when none is reserved.

    `cors` is None where the URL, if there is one, answers no other origin.
    """

    name: str
    handler: str
    code: Path
    memory: int = 128
    timeout: int = 3
    concurrency: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    has_url: bool = False
    cors: Cors | None = None
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


def read_template(path: Path, parameters: Mapping[str, str]) -> dict[str, Function]:
    """Read the functions of a SAM template, by name.

    Parameters
    ----------
    path
        The template; code locations are relative to it.
    parameters
        Values of its parameters; those with a default may be left out. A list is one text with commas.
    Raises
    ------
    TemplateError
        At the first construct that is not known, or a parameter that is missing or unfit.
    """
    document = _load(path)
    _check(document, _SECTIONS | _AWS_ONLY_SECTIONS, "the template")
    resources: dict[str, Any] = document.get("Resources") or {}
    values = _parameters(document.get("Parameters") or {}, parameters)
    resolver = _Resolver(values, resources, document.get("Conditions") or {})
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
    def construct(loader: yaml.SafeLoader, node: yaml.Node) -> dict[str, Any]:
        if isinstance(node, yaml.SequenceNode):
            return {name: loader.construct_sequence(node, deep=True)}
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - no short form is written over a map
        return {name: loader.construct_scalar(node)}

    return construct


for _name in ("Ref", "Fn::Sub", "Fn::GetAtt", "Fn::If", "Fn::Equals", "Fn::Not"):
    _Loader.add_constructor("!" + _name.removeprefix("Fn::"), _short_form(_name))


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
    conditions: Mapping[str, Any]

    def chosen(self, value: Any, where: str) -> Any:
        """Return what an `!If` chooses, any other value as it is, and None for no value at all."""
        if isinstance(value, dict) and list(value) == ["Fn::If"]:
            condition, *alternatives = value["Fn::If"]
            value = self.chosen(alternatives[0 if self._holds(condition, where) else 1], where)
        return None if value == {"Ref": "AWS::NoValue"} else value

    def texts(self, value: Any, where: str) -> tuple[str, ...]:
        """Return a list of texts, also one that a parameter gives."""
        if isinstance(value, list):
            return tuple(self.text(each, where) for each in value)
        return tuple(part.strip() for part in self.text(value, where).split(","))

    def _holds(self, name: str, where: str) -> bool:
        if name not in self.conditions:
            raise TemplateError(f"{where} depends on {name}, which the local stack does not know.")
        return self._true(self.conditions[name], f"Condition {name}")

    def _true(self, value: Any, where: str) -> bool:
        if isinstance(value, dict) and list(value) == ["Fn::Not"]:
            return not self._true(value["Fn::Not"][0], where)
        if isinstance(value, dict) and list(value) == ["Fn::Equals"]:
            one, other = (self.text(side, where) for side in value["Fn::Equals"])
            return one == other
        raise TemplateError(f"{where} has a form that the local stack does not know.")

    def text(self, value: Any, where: str) -> str:
        """Return a property as the text that it will have on AWS."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float):
            if "{{resolve:" in str(value):
                raise TemplateError(f"{where} has a dynamic reference, which the local stack does not know.")
            return str(value)
        if isinstance(value, dict) and len(value) == 1:
            (name, argument), *_ = value.items()
            if name == "Ref":
                return self._ref(argument, where)
            if name == "Fn::Sub" and isinstance(argument, str):
                return self.text(re.sub(r"\$\{([^}]+)\}", lambda m: self._substitute(m[1], where), argument), where)
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


def _parameters(declared: dict[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    if unknown := set(given) - set(declared):
        raise TemplateError(f"The template has no parameter {', '.join(sorted(unknown))}.")
    values = {}
    for name, parameter in declared.items():
        _check(parameter, _PARAMETER, f"Parameter {name}")
        if parameter.get("Type") not in ("String", "Number", "CommaDelimitedList"):
            raise TemplateError(
                f"Parameter {name} is of type {parameter.get('Type')}, which the local stack does not know."
            )
        value = given.get(name, parameter.get("Default"))
        if value is None:
            raise TemplateError(f"Parameter {name} has neither a value nor a default.")
        _check_value(name, parameter, str(value))
        values[name] = str(value)
    return values


def _check_value(name: str, parameter: dict[str, Any], value: str) -> None:
    pattern = parameter.get("AllowedPattern")
    if pattern and not re.fullmatch(pattern, value):
        raise TemplateError(f"Parameter {name} does not match {pattern}.")
    allowed = [str(each) for each in parameter.get("AllowedValues") or [value]]
    if value not in allowed:
        raise TemplateError(f"Parameter {name} is none of {', '.join(allowed)}.")
    if parameter["Type"] == "Number":
        try:
            number = float(value)
        except ValueError:
            raise TemplateError(f"Parameter {name} is no number.") from None
        least, most = parameter.get("MinValue", number), parameter.get("MaxValue", number)
        if not least <= number <= most:
            raise TemplateError(f"Parameter {name} is not within {least} and {most}.")


def _function(logical_id: str, properties: dict[str, Any], resolver: _Resolver, base: Path) -> Function:
    _check(properties, _FUNCTION | _AWS_ONLY_FUNCTION, logical_id)

    def text(name: str) -> str:
        if name not in properties:
            raise TemplateError(f"{logical_id} has no {name}.")
        return resolver.text(properties[name], f"{logical_id}.{name}")

    def number(name: str, default: int | None) -> Any:
        value = resolver.chosen(properties.get(name), f"{logical_id}.{name}")
        return default if value is None else int(resolver.text(value, f"{logical_id}.{name}"))

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
        cors=_cors(logical_id, properties.get("FunctionUrlConfig"), resolver),
        schedules=tuple(
            schedule
            for name, event in (properties.get("Events") or {}).items()
            if (schedule := _schedule(f"{logical_id}.{name}", name, event, resolver))
        ),
    )


def _has_url(logical_id: str, config: dict[str, Any] | None) -> bool:
    if config is None:
        return False
    _check(config, {"AuthType", "InvokeMode", "Cors"}, f"{logical_id}.FunctionUrlConfig")
    for name, known in {"AuthType": "NONE", "InvokeMode": "BUFFERED"}.items():
        if config.get(name, known) != known:
            raise TemplateError(f"{logical_id} has {name} {config[name]}; the local stack knows {known} only.")
    return True


def _cors(logical_id: str, config: dict[str, Any] | None, resolver: _Resolver) -> Cors | None:
    found = (config or {}).get("Cors")
    if found is None:
        return None
    where = f"{logical_id}.Cors"
    _check(found, _CORS, where)

    def texts(name: str) -> tuple[str, ...]:
        return resolver.texts(found[name], where) if name in found else ()

    return Cors(
        origins=texts("AllowOrigins"),
        methods=tuple(method.upper() for method in texts("AllowMethods")),
        headers=tuple(name.lower() for name in texts("AllowHeaders")),
        exposed=tuple(name.lower() for name in texts("ExposeHeaders")),
        max_age=int(resolver.text(found.get("MaxAge", 0), where)),
    )


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
    """Merge as SAM does: maps key by key, lists joined, anything else (a reference is one value) the function's own."""
    if isinstance(defaults, dict) and isinstance(own, dict) and not _is_reference(own):
        return defaults | {
            key: _merge(defaults[key], value) if key in defaults else value for key, value in own.items()
        }
    if isinstance(defaults, list) and isinstance(own, list):
        return defaults + own
    return own


def _is_reference(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith(("Ref", "Fn::"))


def _check(found: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := set(found) - known:
        raise TemplateError(f"{where} has {', '.join(sorted(unknown))}, which the local stack does not know.")
