"""What a function imports before its first request: a cold start pays for each of these."""

import subprocess
import sys

import pytest

HEAVY = {
    "aiohttp", "boto3", "botocore.session", "fastembed", "huggingface_hub", "numpy", "onnxruntime", "psycopg",
    "semantic_text_splitter", "tokenizers", "typer",
}  # fmt: skip
CPU_SECONDS = 1.5


def run(program: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("function", ["search", "write", "bootstrap"])
def test_request_functions_import_nothing_heavy(function: str) -> None:
    modules = set(run(f"import sys, almagest.handlers.{function}\nprint(*sys.modules)").split())
    assert "aws_lambda_powertools" in modules  # the look itself works
    assert not modules & HEAVY


def test_import_opens_nothing() -> None:
    run("import almagest.handlers.search, almagest.runtime as r; assert r._container.cache_info().misses == 0")


def test_import_stays_within_its_budget() -> None:
    seconds = float(run("import time, almagest.handlers.search; print(time.process_time())"))
    assert seconds < CPU_SECONDS


WITH_MODEL = """
import time
import almagest.handlers.search
from almagest.embedding.embedder import Embedder
from almagest.settings import Settings
settings = Settings()
Embedder(settings.model_path, settings.model_name, settings.threads).embed_query("ready")
print(time.process_time())
"""


def test_import_and_model_stay_within_their_budget() -> None:
    """The design's number, 1.5 s on 2 cores, of processor time: what else the machine does is not counted.

    The best of a few, since a processor that is shared works with a cold cache; `python -m tests.bench coldstart` has
    the stages.
    """
    seconds = []
    while len(seconds) < 4 and min(seconds, default=CPU_SECONDS) >= CPU_SECONDS:
        seconds.append(float(run(WITH_MODEL)))
    assert min(seconds) < CPU_SECONDS, seconds
