"""`openapi.json`, from the routes of all functions: `python -m almagest.edge.openapi [--check]`."""

import argparse
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import almagest
from almagest.edge.app import App
from almagest.edge.problems import CONTENT_TYPE

FILE = Path("openapi.json")

PROBLEMS = {
    "400": "The body or a header cannot be read.",
    "401": "A valid credential is required.",
    "403": "The caller's role does not allow this.",
    "404": "There is nothing here that the caller may see.",
    "409": "The request does not fit with what was done before: `version_conflict`, `idempotency_conflict`.",
    "413": "The body, or the answer, is larger than 6 MB.",
    "415": "The body is not JSON in UTF-8.",
    "422": "A field is not valid; `errors` names it.",
    "429": "Too many requests: `rate_limited` for those of a second, `quota_exceeded` for those of a UTC day; "
    "try again after `Retry-After` seconds.",
    "500": "Something went wrong here.",
    "503": "The database is not available, or of another version; try again after `Retry-After` seconds.",
}

PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457; `code` is stable, and more members may be there.",
    "required": ["type", "title", "status", "code", "detail", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/FieldError"}},
    },
}

# What the platform answers by itself, before a function runs: a request that is too large, or one too many at once.
PLATFORM_ANSWERS = {"413", "429"}

PLATFORM_MESSAGE = {
    "type": "object",
    "title": "PlatformMessage",
    "description": "What AWS says of a request that no function has seen.",
    "properties": {"Message": {"type": "string"}},
}

DESCRIPTION = """\
Every path begins with the name of its function. What is not described here is a 404, and another method on what is, a
405 with `Allow`; both are problems like all others. A field of a body and a parameter of a query that are not described
here are a 422 that names them.

A 404 is the same for what is not there and for what the caller may not see.

Limits. A key has a rate, in requests a second; each container of a function counts for itself and lets twice the rate
through at once, so what passes is at most the rate times the containers that serve the key at that moment. It may have
a daily quota, in requests a UTC day, which all containers share: they report what they have served whenever they ask
whose a key is, at the latest after 30 seconds, so a quota may be exceeded by what other containers serve meanwhile.
Requests count that passed authentication and both limits, whatever their answer. A user's token has the default rate
and no quota. Other limits, like the end of a key, take up to 30 seconds to be known everywhere."""

HEADERS = {
    "x-request-id": "Of this request; it is in the logs and in the trace too.",
    "Retry-After": "Seconds after which a retry may succeed.",
    "WWW-Authenticate": "Always `Bearer`.",
}
# Headers of some problems alone, by status.
OWN_HEADERS = {"401": ["WWW-Authenticate"], "429": ["Retry-After"], "503": ["Retry-After"]}

# What a path says as the id of something. A function reads it as text, so that what is no id is a 404 like all others.
ID_PARAMETERS = {"item", "trace", "entry"}

IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and request have their effect once; the same key with another request is a 409.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}

ORG = {
    "name": "x-almagest-org",
    "in": "header",
    "description": "Slug or id of the org, for a user's token where the user belongs to several; a key has one org.",
    "schema": {"type": "string"},
}


def document(apps: Iterable[App]) -> dict[str, Any]:
    """One OpenAPI document of several functions."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for app in apps:
        described = json.loads(app.get_openapi_json_schema())
        for route in app.routes:
            described["paths"][route.openapi_path][route.method.lower()]["description"] = inspect.getdoc(route.func)
        paths |= described["paths"]
        schemas |= described["components"]["schemas"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            _complete(path, method, operation, schemas)
    schemas |= {"Problem": PROBLEM, "PlatformMessage": PLATFORM_MESSAGE}
    for generated in ("HTTPValidationError", "ValidationError", "ResponseValidationError"):
        schemas.pop(generated, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Almagest",
            "version": almagest.__version__,
            "summary": "A knowledge system for AI agents.",
            "description": DESCRIPTION,
        },
        "servers": [{"url": "http://127.0.0.1:8787", "description": "The local stack."}],
        "security": [{"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {f"Problem{status}": _problem(status) for status in PROBLEMS},
            "headers": {
                name: {"description": description, "schema": {"type": "string"}}
                for name, description in HEADERS.items()
            },
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`alm_…`) or a Supabase user's token; what is revoked ends within 30 s.",
                }
            },
        },
    }


def apps() -> list[App]:
    """The app of every function that has a URL."""
    # By name, since nothing imports handlers: this module is a tool that is run, not a part that is used.
    package = import_module("almagest.handlers")
    modules = [import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)]
    return [module.app for module in modules if hasattr(module, "app")]


def render() -> str:
    """The text of the file."""
    return json.dumps(document(apps()), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the file, or with `--check` compare it."""
    parser = argparse.ArgumentParser(prog="python -m almagest.edge.openapi", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    arguments = parser.parse_args()
    if not arguments.check:
        arguments.file.write_text(render(), encoding="utf-8")
        return 0
    if arguments.file.read_text(encoding="utf-8") == render():
        return 0
    sys.stderr.write(f"{arguments.file} is not what the routes say; run: python -m almagest.edge.openapi\n")
    return 1


def _complete(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add what all operations share and Powertools does not know of."""
    succeeded = {status: response for status, response in operation["responses"].items() if status.startswith("2")}
    for response in succeeded.values():
        response["headers"] = _headers("x-request-id")
    problems = {status: {"$ref": f"#/components/responses/Problem{status}"} for status in PROBLEMS}
    operation["responses"] = succeeded | problems
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path" and parameter["name"] in ID_PARAMETERS:
            parameter["schema"]["format"] = "uuid"
    shared = [ORG] if method == "get" or not path.startswith("/v1/write/") else [IDEMPOTENCY_KEY, ORG]
    operation["parameters"] = operation.get("parameters", []) + shared
    if "requestBody" in operation:
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        # An absent body reads as an object without fields.
        operation["requestBody"]["required"] = bool(schemas[name].keys() & {"required", "anyOf"})


def _problem(status: str) -> dict[str, Any]:
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    if status in PLATFORM_ANSWERS:
        content["application/json"] = {"schema": {"$ref": "#/components/schemas/PlatformMessage"}}
    return {
        "description": PROBLEMS[status],
        "headers": _headers("x-request-id", *OWN_HEADERS.get(status, [])),
        "content": content,
    }


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


if __name__ == "__main__":
    sys.exit(main())
