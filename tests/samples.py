"""Fills docs/dashboard.md with samples of rows: a stack is used, broken, checked and mended, and its views are read.

python -m tests.samples
"""

import json
import re
import sys
import tempfile
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from infra.local import ROOT
from tests.client import Client
from tests.stack import Stack, own_stack

PAGE = ROOT / "docs" / "dashboard.md"
NOTES = ROOT / "tests" / "quality" / "notes.json"
QUERIES = (
    "when do we deploy?",
    "how is the database restored?",
    "rate limits",
    "who answers the phone?",
    "ECONNREFUSED",
)
# Answered in part: by meaning alone, since it has no terms, and as it stands.
DEGRADED = ("of the", "<->")
SAMPLES = 2
LONGEST = 80


def main() -> None:
    """Make the samples, and write them into the page."""
    with (
        tempfile.TemporaryDirectory() as directory,
        own_stack(Path(directory) / "stack") as stack,
        psycopg.connect(stack.database_url, autocommit=True) as connection,
    ):
        _use(stack, connection)
        stack.almagest("jobs", "run", "health", "--json")
        _break(connection)
        for job in ("index_sweep", "health", "remediation"):
            stack.almagest("jobs", "run", job, "--json")
        connection.execute("revoke select on almagest.item_types from anon")
        connection.execute(
            "update almagest.items set index_status = 'text_ready', index_after = now() - interval '20 seconds'"
            " where id in (select i.id from almagest.items as i join almagest.orgs as o on o.id = i.org_id"
            " where not o.is_system limit 3)"
        )
        connection.execute("analyze")
        PAGE.write_text(filled(PAGE.read_text(), connection))


def _use(stack: Stack, connection: psycopg.Connection[Any]) -> None:
    """Write, ask, and ask once while somebody holds a table."""
    with Client(stack.url, stack.key) as client:
        notes = json.loads(NOTES.read_text())
        client.write([{"content": note["content"], "type": "note"} for note in notes])
        client.wait_for_index()
        for query in (*QUERIES, *QUERIES[:2], *DEGRADED):
            client.search(query, 5)
        for seconds in (0.4, 0.3):
            with _Held(stack, "almagest.chunks", seconds):
                client.search(QUERIES[0], 5)
    connection.execute("update almagest.items set updated_at = updated_at - interval '40 days' where random() < 0.5")


class _Held:
    """Lets nobody read a table for some time."""

    def __init__(self, stack: Stack, table: str, seconds: float) -> None:
        self._url, self._table, self._seconds = stack.database_url, table, seconds
        self._locked = threading.Event()

    def _hold(self) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute(f"lock table {self._table} in access exclusive mode".encode())
            self._locked.set()
            time.sleep(self._seconds)

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._hold)
        self._thread.start()
        self._locked.wait(10)

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def _break(connection: psycopg.Connection[Any]) -> None:
    """One fault that is mended by itself, and one that is a person's."""
    connection.execute(
        "delete from almagest.embeddings where chunk_id in (select chunk_id from almagest.embeddings limit 5)"
    )
    connection.execute("grant select on almagest.item_types to anon")


def filled(page: str, connection: psycopg.Connection[Any]) -> str:
    """The page with two rows of each view beside its columns."""
    head, *parts = re.split(r"(?m)^(?=## )", page)
    return head + "".join(_section(part, connection) for part in parts)


def _section(text: str, connection: psycopg.Connection[Any]) -> str:
    view = re.match(r"## (\w+)", text)
    assert view is not None
    cursor = connection.execute(f"select * from dashboard.{view[1]} limit {SAMPLES}".encode())
    rows = cursor.fetchall()
    names = [column.name for column in cursor.description or []]
    lines = []
    for line in text.splitlines():
        cells = re.split(r"(?<!\\) ?\| ?", line)[1:-1] if line.startswith("|") else []
        if not cells:
            lines.append(line)
        elif cells[0] == "column":
            lines.append("| column | means |" + " sample |" * len(rows))
        elif set(cells[0]) == {"-"}:
            lines.append("|---|---|" + "---|" * len(rows))
        else:
            place = names.index(cells[0].strip("`"))
            lines.append(f"| {cells[0]} | {cells[1]} |" + "".join(f" {_shown(row[place])} |" for row in rows))
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, (float, bool)):
        return f"{value:g}" if isinstance(value, float) else str(value).lower()
    text = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
    return (text if len(text) <= LONGEST else text[:LONGEST] + " …").replace("|", "\\|")


if __name__ == "__main__":
    main()
    sys.stdout.write(f"{PAGE} is filled.\n")
