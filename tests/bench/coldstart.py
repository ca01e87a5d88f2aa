"""What a container costs before it answers, stage by stage, and what a request costs after that."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

import almagest
from almagest.settings import Settings
from infra.local.emulator import Emulator
from infra.local.template import Function
from tests.bench.container import request_of
from tests.bench.places import leave
from tests.stack import Stack, own_stack

REPEATS = 7  # of each cold start, in turns; the fastest counts, since what else the machine does is not measured
WARM = 100  # requests after the first
FUNCTIONS = ("search", "write", "bootstrap", "index")
CODE = Path(almagest.__file__).parents[1]
MEMORY = 1769


def run(console: Console, reports: Path) -> None:
    """Measure on a stack of its own, print tables, and leave the figures as JSON."""
    with tempfile.TemporaryDirectory(prefix="almagest-bench-") as directory, own_stack(Path(directory)) as stack:
        environment = _environment(stack)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in FUNCTIONS}
        for repeat in range(REPEATS):
            for name, lives in found.items():
                lives.append(_live(name, environment, stack.key, WARM if repeat == 0 and name != "index" else 0))
        report: dict[str, Any] = {
            "cpus": os.cpu_count(),
            "threads": Settings().threads,
            "functions": {name: _summary(lives) for name, lives in found.items()},
        }
        with console.status("In the real runtime client"):
            runtime = asyncio.run(_in_runtime(environment, stack.key, Path(directory)))
        for name, milliseconds in runtime.items():
            report["functions"][name]["runtime"] = milliseconds
    console.print(_table(report))
    console.print(f"Left in {leave(reports, 'coldstart', report)}.")


def _environment(stack: Stack) -> dict[str, str]:
    """The variables of the functions of a stack."""
    state = json.loads((Path(stack.environment["ALMAGEST_DIR"]) / "stack.json").read_text())
    return {
        "SUPABASE_URL": state["supabase_url"],
        "SUPABASE_SECRET_KEY": state["supabase_key"],
        "DATABASE_URL": state["database_url"],
    }


def _live(function: str, environment: Mapping[str, str], key: str, warm: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.container", function, repr(time.time()), key, str(warm)]
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    life: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])  # after the function's own log
    return life


def _summary(lives: list[dict[str, Any]]) -> dict[str, Any]:
    """Milliseconds: the fastest of each stage, and what requests take in a warm container."""
    stages = {stage: round(min(life["stages"][stage] for life in lives) * 1000, 1) for stage in lives[0]["stages"]}
    warm = sorted(value * 1000 for life in lives for value in life["warm"])
    summary: dict[str, Any] = {"stages": stages, "cold": round(sum(stages.values()), 1)}
    if warm:
        mean = round(sum(warm) / len(warm), 2)
        summary["warm"] = {"mean": mean, "p50": round(median(warm), 2), "p95": round(warm[int(len(warm) * 0.95)], 2)}
    return summary


async def _in_runtime(environment: Mapping[str, str], key: str, logs: Path) -> dict[str, dict[str, float]]:
    """By function: milliseconds from the start of its process to its first answer, and of the one after that."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in FUNCTIONS if name != "index"}
    for _ in range(REPEATS):
        for name, times in found.items():
            function = Function(
                name,
                f"almagest.handlers.{name}.handler",
                CODE,
                MEMORY,
                60,
                environment=dict(environment),
                has_url=False,
            )
            emulator = Emulator({name: function}, logs)
            await emulator.start()
            url = f"{emulator.url}/2015-03-31/functions/{name}/invocations"
            async with httpx.AsyncClient(timeout=60) as client:
                pair = [await _invoke(client, url, request_of(name, number, key)) for number in range(2)]
            times.append((pair[0], pair[1]))
            await emulator.stop()
    return {
        name: {
            "first answer": round(min(first for first, _ in times) * 1000, 1),
            "second answer": round(min(second for _, second in times) * 1000, 1),
        }
        for name, times in found.items()
    }


async def _invoke(client: httpx.AsyncClient, url: str, sent: dict[str, Any]) -> float:
    begun = time.perf_counter()
    answer = await client.post(url, json=sent)
    taken = time.perf_counter() - begun
    assert answer.json()["statusCode"] < 300, answer.text
    return taken


def _table(report: dict[str, Any]) -> Table:
    names = list(report["functions"])
    table = Table("ms", *names, title=f"Cold starts, {report['cpus']} processors, {report['threads']} threads")
    stages = list(dict.fromkeys(stage for each in report["functions"].values() for stage in each["stages"]))
    for stage in stages:
        table.add_row(stage, *(_cell(report["functions"][name]["stages"].get(stage)) for name in names))
    table.add_section()
    table.add_row("all of them", *(_cell(report["functions"][name]["cold"]) for name in names))
    for figure in ("first answer", "second answer"):
        cells = (_cell(report["functions"][name].get("runtime", {}).get(figure)) for name in names)
        table.add_row(f"runtime client: {figure}", *cells)
    for figure in ("mean", "p50", "p95"):
        cells = (_cell(report["functions"][name].get("warm", {}).get(figure)) for name in names)
        table.add_row(f"warm request, {figure}", *cells)
    return table


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
