"""Whatever is sent, valid or not: never a 5xx, and no answer that `openapi.json` does not describe."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.stack import Stack

DOCUMENT = Path(__file__).parents[2] / "openapi.json"
# What a schema cannot say (which fields go together, which names there are) is a 422: not all that is valid is taken. A
# batch takes what is right in it and says of the rest what is wrong: not all that is invalid is refused as a whole.
SETTINGS = """
[checks]
positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = "write_memories"
checks.negative_data_rejection.enabled = false
"""


@dataclass(frozen=True)
class Tenant:
    """An org of its own, since what is sent archives, erases and turns every knob.

    Attributes
    ----------
    key
        Its owner's.
    known
        Values of path parameters that lead somewhere.
    """

    url: str
    key: str
    known: dict[str, list[str]]


@pytest.fixture(scope="module")
def tenant(stack: Stack) -> Iterator[Tenant]:
    slug = f"contract-{uuid4().hex[:8]}"
    stack.almagest("org", "create", slug, "--owner-email", "owner@contract.example")
    member = ("--member", "owner@contract.example")
    created = json.loads(stack.almagest("key", "create", "--org", slug, "--name", "x", *member, "--json"))
    # A run sends as fast as it can; limits have tests of their own.
    stack.almagest("key", "limit", created["id"], "--org", slug, "--rate", "10000")
    with httpx.Client(base_url=stack.url, headers={"authorization": f"Bearer {created['secret']}"}, timeout=60) as http:
        memories = [
            {"content": f"A turn that is number {number}.", "conversation": {"id": "c", "position": number}}
            for number in range(60)
        ]
        answer = http.post("/v1/write/memories/batch", json={"memories": memories}).raise_for_status().json()
        items = [result["id"] for result in answer["results"]]
        traces = [http.post("/v1/search", json={"query": "turn"}).raise_for_status().json()["trace_id"] for _ in "12"]
        known = {
            "item": items,
            "trace": traces,
            "name": ["user_search", "injection", "own"],
            "entry": told_in_the_hub(stack, slug),
        }
        yield Tenant(stack.url, created["secret"], known)


def told_in_the_hub(stack: Stack, slug: str) -> list[str]:
    """Ids of entries of every scope that the org's owner is told of."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        opened = connection.execute(
            """
            select engine.open_hub_entry(
                s.org, s.person, 'test', m.slug || s.key, s.severity, 'T', 'F', '[{"action": "x"}]', 'D', '{"n": 1}'
            )::text
            from (select o.id, o.slug, u.user_id from almagest.orgs as o join almagest.members as u on u.org_id = o.id
                where o.slug = %s) as m,
            lateral (values (null::uuid, null::uuid, 'a', 'info'), (m.id, null, 'b', 'warning'),
                (m.id, m.user_id, 'c', 'critical')) as s (org, person, key, severity)
            """,
            (slug,),
        ).fetchall()
    return [entry for (entry,) in opened]


def leading_somewhere(known: dict[str, list[str]]) -> dict[str, Any]:
    """The document, with the values of path parameters that are worth trying."""
    document: dict[str, Any] = json.loads(DOCUMENT.read_text())
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    parameter["schema"] = {"type": "string", "enum": known[parameter["name"]]}
    return document


def run(tenant: Tenant, directory: Path, known: bool, *options: str) -> None:
    """Let schemathesis send what it makes up, and fail with what it says.

    Parameters
    ----------
    known
        Whether paths lead somewhere; then one that is not in the list of them is no wrong one.
    """
    settings = directory / "schemathesis.toml"
    settings.write_text(SETTINGS)
    document = DOCUMENT
    if known:
        settings.write_text(SETTINGS.replace("[checks]", "[checks]\nnegative_data_rejection.enabled = false"))
        document = directory / "openapi.json"
        document.write_text(json.dumps(leading_somewhere(tenant.known)))
    program = (sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()")
    done = subprocess.run(
        [
            *program, "--config-file", str(settings), "--no-color", "run", str(document), "--url", tenant.url,
            "--header", f"Authorization: Bearer {tenant.key}", "--mode", "all",
            "--continue-on-failure", "--warnings", "off", "--suppress-health-check", "all", *options,
        ],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    operations = sum(len(methods) for methods in json.loads(DOCUMENT.read_text())["paths"].values())
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert f"Tested: {operations}" in done.stdout


@pytest.mark.timeout(300)
def test_a_draw_of_requests(tenant: Tenant, tmp_path: Path) -> None:
    run(tenant, tmp_path, True, "--phases", "fuzzing", "--max-examples", "12", "--seed", "1", "--no-shrink")


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("known", [False, True], ids=["any paths", "paths that lead somewhere"])
def test_every_bound_and_many_requests(tenant: Tenant, tmp_path: Path, known: bool) -> None:
    run(tenant, tmp_path, known, "--phases", "coverage,fuzzing", "--max-examples", "100", "--seed", "7")
