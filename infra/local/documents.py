"""This repository's own documents, as knowledge for a new stack."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from infra.local import ROOT
from infra.local.errors import StackError

# About as many characters as the write function indexes before it answers; short documents have more chunks of them.
BATCH_CHARACTERS = 20_000

Memory = dict[str, Any]


def read_documents(root: Path = ROOT) -> list[Memory]:
    """Return the README, the decision records and the comments of the SQL API, as memories to be written."""
    files = [root / "README.md", *sorted(root.glob("docs/decisions/*.md")), *sorted(root.glob("sql/api/*.sql"))]
    memories = [_memory(file, root) for file in files if file.exists()]
    return [memory for memory in memories if memory["content"]]


def write_documents(client: httpx.Client, documents: list[Memory]) -> int:
    """Write documents that are not there yet, and return how many there are.

    Parameters
    ----------
    client
        With the stack's URL and a key.
    documents
        As `read_documents` returns them.

    Raises
    ------
    StackError
        When one is refused.
    """
    for batch in _batches(documents):
        key = hashlib.sha256(repr(batch).encode()).hexdigest()
        answer = client.post("/v1/write/memories/batch", json={"memories": batch}, headers={"Idempotency-Key": key})
        refused = [result["problem"]["detail"] for result in answer.json().get("results", []) if "problem" in result]
        if answer.status_code != 207 or refused:
            raise StackError(f"The documents could not be written: {refused[0] if refused else answer.text}")
    return len(documents)


def _memory(file: Path, root: Path) -> Memory:
    text = file.read_text()
    path = file.relative_to(root).as_posix()
    if file.suffix == ".sql":
        text, title = _comment(text), f"SQL API: {file.stem}"
    else:
        heading = re.search(r"^# (.+)$", text, re.MULTILINE)
        title = heading[1] if heading else path
    return {
        "content": text,
        "title": title,
        "type": "document",
        "origin": "upload",
        "source_ref": path,
        "tags": ["almagest", file.suffix.lstrip(".")],
    }


def _comment(sql: str) -> str:
    """Return the comment at the head of a SQL file."""
    lines = re.match(r"(?:--.*\n)*", sql)
    return "\n".join(line.removeprefix("--").strip() for line in (lines[0] if lines else "").splitlines())


def _batches(documents: list[Memory]) -> Iterator[list[Memory]]:
    batch: list[Memory] = []
    for document in documents:
        if batch and sum(len(each["content"]) for each in batch) + len(document["content"]) > BATCH_CHARACTERS:
            yield batch
            batch = []
        batch.append(document)
    if batch:
        yield batch
