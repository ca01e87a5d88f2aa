"""Where benchmarks read their data, keep what is dear to make again, and leave their results."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from almagest.database.sql_files import sql_directory

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("ALMAGEST_BENCH_DATA", ROOT.parent / "shared" / "data"))
REPORTS = ROOT / "build" / "bench"
# The engine that is measured; another folder, to compare two versions of it.
SQL = Path(os.environ.get("ALMAGEST_BENCH_SQL", sql_directory()))
CACHE = Path(os.environ.get("ALMAGEST_BENCH_CACHE", REPORTS / "cache"))

NEEDED = ("cranfield/docs.json", "cranfield/queries.json", "cranfield/qrels.json", "locomo/dev.json")


def missing() -> str | None:
    """Why nothing can be measured, in a sentence; None when the data are there."""
    absent = [name for name in NEEDED if not (DATA / name).is_file()]
    if not absent:
        return None
    return f"Nothing is measured: {DATA} lacks {', '.join(absent)}; set ALMAGEST_BENCH_DATA to the folder of the data."


def leave(reports: Path, name: str, result: Mapping[str, Any]) -> Path:
    """Write a result as JSON, and return where it is."""
    reports.mkdir(parents=True, exist_ok=True)
    path = reports / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path
