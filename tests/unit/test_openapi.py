"""The committed description of the routes is what the routes say."""

import json
import re
from pathlib import Path
from typing import Any

from almagest.edge.openapi import apps, render

FILE = Path(__file__).parents[2] / "openapi.json"


def test_committed_document_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == render(), "run: python -m almagest.edge.openapi"


def test_every_route_is_described() -> None:
    paths = json.loads(render())["paths"]
    for app in apps():
        for route in app.routes:
            operation = paths[re.sub(r"<(\w+)>", r"{\1}", route.path)][route.method.lower()]
            assert operation["summary"]
            assert operation["description"]
            assert {"401", "422", "503"} <= operation["responses"].keys()


def test_every_answer_tells_its_headers() -> None:
    document = json.loads(render())
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if "$ref" in response:
                    response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
                assert "x-request-id" in response["headers"]
                assert ("Retry-After" in response["headers"]) == (status in ("429", "503"))
                assert ("WWW-Authenticate" in response["headers"]) == (status == "401")


def test_a_body_is_required_where_one_of_its_fields_is() -> None:
    document = json.loads(render())
    required = {
        operation["operationId"]: operation["requestBody"]["required"]
        for operations in document["paths"].values()
        for operation in operations.values()
        if "requestBody" in operation
    }
    assert required == {
        "search": True, "write_memory": True, "write_memories": True, "update_item": True,
        "bootstrap": False, "archive_item": False, "restore_item": False, "pin_item": False, "validate_item": False,
            "put_profile": True, "read_hub": False, "dismiss_hub": False,
    }  # fmt: skip


def test_every_reference_has_its_target() -> None:
    document = json.loads(render())
    for reference in references(document):
        target = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for child in value.values() for found in references(child)]
    return [found for child in value for found in references(child)] if isinstance(value, list) else []
