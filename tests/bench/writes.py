"""What neighbours cost those who write: messages a second, as turns of conversations and as notes by themselves."""

import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from rich.console import Console
from rich.table import Table

from tests.bench.cluster import cluster, database, storing_hash
from tests.bench.datasets import Memory, read_locomo
from tests.bench.door import new_org, prepare, write
from tests.bench.places import CACHE, leave

MESSAGES = 500
BATCH = 20  # a request, as a client that catches up sends them
ROUNDS = 3  # in turns; the fastest counts


def run(console: Console, reports: Path) -> None:
    """Write the same messages in both ways, print a table, and leave the figures as JSON."""
    turns = prepare(read_locomo())[:MESSAGES]
    notes = [{**turn, "conversation": None} for turn in turns]
    with cluster(CACHE / "cluster", console) as postgres:
        url = database(postgres, f"writes_{storing_hash()}")
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            rates: dict[str, list[float]] = {"turns of conversations": [], "notes by themselves": []}
            for _ in range(ROUNDS):
                for (_, found), memories in zip(rates.items(), (turns, notes), strict=True):
                    found.append(_rate(connection, memories))
    report = {name: round(max(found)) for name, found in rates.items()}
    table = Table("written as", "messages a second", title=f"{MESSAGES} messages, {BATCH} a request")
    for name, rate in report.items():
        table.add_row(name, str(rate))
    console.print(table)
    console.print(f"Left in {leave(reports, 'writes', report)}.")


def _rate(connection: psycopg.Connection[Any], memories: list[Memory]) -> float:
    caller = new_org(connection, f"writes-{uuid4().hex[:12]}")
    begun = time.perf_counter()
    for start in range(0, len(memories), BATCH):
        write(connection, caller, memories[start : start + BATCH])
    return len(memories) / (time.perf_counter() - begun)
