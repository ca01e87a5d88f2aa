"""Dollars of Lambda for a thousand requests, and room in Postgres, computed from what the other benchmarks measured."""

import json
import math
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from tests.bench.places import ROOT, leave

# AWS Lambda, x86, us-east-1, first tier, without the free tier; as published in 2025, to be checked before it is used.
DOLLARS_A_GB_SECOND = 0.0000166667
DOLLARS_A_REQUEST = 0.20 / 1_000_000
PRICES_OF = "2025"
REQUESTS = 1_000
COLD_SHARES = (0.0, 0.01, 0.10)

SIZES = (100_000, 1_000_000)
FULL_CHUNK = 1_200  # characters, the longest
# What grows with the characters of a chunk; all else is a row, a number or a vector.
BY_TEXT = {
    "chunks",
    "items",
    "items (long values)",
    "lexical",
    "lexical (long values)",
    "lexical_terms",
    "item_versions",
}
# What a search reads, so what should be in memory.
HOT = {
    *("embeddings_vector_1", "embeddings_pkey", "lexical", "lexical_terms", "lexical_pkey", "lexical_sequence"),
    *("chunks_place", "items_pkey", "strength_signals", "strength_signals_pkey"),
}


def run(console: Console, reports: Path) -> None:
    """Compute what there are figures for, print tables, and leave the result as JSON."""
    report: dict[str, Any] = {"prices_of": PRICES_OF, "gb_second": DOLLARS_A_GB_SECOND, "request": DOLLARS_A_REQUEST}
    if starts := _read(reports, "coldstart"):
        memory = {name: memory_of(ROOT / "template.yaml", name) for name in ("search", "write", "bootstrap")}
        report["lambda"] = lambda_costs(starts, memory, _read(reports, "speed"))
        console.print(_lambda_table(report["lambda"]))
    else:
        console.print("Run the part coldstart first: there are no durations.")
    if capacity := _read(reports, "capacity"):
        report["postgres"] = {str(size): room(capacity, size) for size in SIZES}
        report["trace_bytes_a_search"] = capacity["traces"]["bytes_a_search"]
        console.print(_room_table(report["postgres"], capacity))
    else:
        console.print("Run the part capacity first: there are no sizes.")
    console.print(f"Left in {leave(reports, 'cost', report)}.")


def dollars(milliseconds: float, megabytes: int, requests: int = REQUESTS) -> float:
    """What Lambda asks for so many requests: each, and each begun millisecond of each in the memory of the function."""
    gb_seconds = math.ceil(milliseconds) / 1000 * megabytes / 1024
    return requests * (DOLLARS_A_REQUEST + gb_seconds * DOLLARS_A_GB_SECOND)


def lambda_costs(
    starts: dict[str, Any], memory: dict[str, int], speed: dict[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """By kind of request: milliseconds, MB, and dollars a thousand by the share that meets a cold container."""
    kinds = {name: (name, starts["functions"][name]["warm"]["mean"]) for name in memory}
    for size, found in ((speed or {}).get("sizes") or {}).items():
        times = found["warm"]["all"]["request"]
        kinds[f"search, {int(size):,} chunks, p50"] = ("search", times["p50"])
        kinds[f"search, {int(size):,} chunks, p95"] = ("search", times["p95"])
    return {
        kind: {
            "milliseconds": milliseconds,
            "megabytes": memory[function],
            # The start of a container is paid for as the request that it delays.
            "dollars": {
                str(share): round(
                    dollars(milliseconds + share * starts["functions"][function]["cold"], memory[function]), 6
                )
                for share in COLD_SHARES
            },
        }
        for kind, (function, milliseconds) in kinds.items()
    }


def room(capacity: dict[str, Any], chunks: int) -> dict[str, float]:
    """Megabytes for so many chunks: all, and what a search reads; of the measured texts, and of full chunks."""
    longer = FULL_CHUNK / capacity["characters_a_chunk"]
    parts = {name: part["bytes"] / capacity["chunks"] * chunks / 1e6 for name, part in capacity["parts"].items()}
    full = {name: size * (longer if name in BY_TEXT else 1) for name, size in parts.items()}
    return {
        "measured texts": round(sum(parts.values())),
        "measured texts, hot": round(sum(size for name, size in parts.items() if name in HOT)),
        "full chunks": round(sum(full.values())),
        "full chunks, hot": round(sum(size for name, size in full.items() if name in HOT)),
    }


def memory_of(template: Path, function: str) -> int:
    """The MB that a template gives a function: its own, or all functions'; by a parameter, that one's default."""
    document = yaml.load(template.read_text(), _Loader)  # noqa: S506 - a safe loader that knows short forms
    own = document["Resources"][f"{function.capitalize()}Function"]["Properties"]
    size = own.get("MemorySize", document["Globals"]["Function"].get("MemorySize"))
    if isinstance(size, str):
        size = document["Parameters"][size]["Default"]
    return int(size)


class _Loader(yaml.SafeLoader):
    """Reads `!Ref name` and the like as what they hold."""


def _construct(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_Loader.add_multi_constructor("!", _construct)


def _read(reports: Path, name: str) -> dict[str, Any] | None:
    path = reports / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _lambda_table(costs: dict[str, dict[str, Any]]) -> Table:
    title = f"Lambda, dollars for {REQUESTS:,}, prices of {PRICES_OF}"
    table = Table("request", "ms", "MB", *(f"{share:.0%} cold" for share in COLD_SHARES), title=title)
    for kind, each in costs.items():
        amounts = (f"{amount:.5f}" for amount in each["dollars"].values())
        table.add_row(kind, f"{each['milliseconds']:.1f}", str(each["megabytes"]), *amounts)
    return table


def _room_table(sizes: dict[str, dict[str, float]], capacity: dict[str, Any]) -> Table:
    measured = (
        f"Postgres, MB; measured with {capacity['chunks']:,} chunks of {capacity['characters_a_chunk']} characters"
    )
    table = Table("chunks", *next(iter(sizes.values())), title=measured)
    for size, each in sizes.items():
        table.add_row(f"{int(size):,}", *(f"{value:,.0f}" for value in each.values()))
    return table
