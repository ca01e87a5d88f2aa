"""What the README tells people to type works, in its order, on a stack of the test's own.

Only ```console blocks are run, line by line where a line begins with `$ `.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.local.ports import free_port

ROOT = Path(__file__).parents[2]
UP = "make up"
LEFT_OUT = re.compile(r"make (test|test-all|bench)\b|\.ci/run|git clone|cd |sam |aws |.*\bconfigure\b")
STOP = [sys.executable, "-c", "from almagest.cli import main; main()", "stack", "stop"]
SECONDS = 240


def commands(page: str) -> list[str]:
    """Commands of the page, each with its continued lines."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = [command for block in blocks for command in re.findall(r"^\$ ((?:.*\\\n)*.*)", block, re.MULTILINE)]
    return [command for command in found if not LEFT_OUT.match(command)]


@contextmanager
def _serving(environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run `make up` until Ctrl-C, which has to end it."""
    with log.open("w") as output:
        # A session of its own, as a terminal gives it one: Ctrl-C reaches every process in it.
        up = subprocess.Popen(
            UP.split(), cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + SECONDS
        while "until Ctrl-C" not in log.read_text():
            assert up.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield
    finally:
        os.killpg(up.pid, signal.SIGINT)
        up.wait(30)


def _run(script: list[str], environment: dict[str, str]) -> None:
    """Run commands in one shell, so that what one exports the next one has."""
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(script)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for nothing in ("Nothing that is known", '"results":[]', '"results": []', '"chunks":[]', '"before":[],"after":[]'):
        assert nothing not in done.stdout + done.stderr
    for nothing in ("There is nothing around it", "Nothing was found", "has no chunks"):
        assert nothing not in done.stderr


@pytest.mark.timeout(2 * SECONDS)
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    environment = os.environ | {"ALMAGEST_DIR": str(tmp_path / "stack"), "ALMAGEST_PORT": str(free_port())}
    typed = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert UP in typed

    before = typed[: typed.index(UP)]
    after = typed[typed.index(UP) + 1 :]
    try:
        _run(before, environment)
        with _serving(environment, tmp_path / "up.log"):
            _run(after, environment)
    finally:
        stopped = subprocess.run(STOP, env=environment, capture_output=True, text=True, check=True)
    assert "was not running" in stopped.stderr


def test_commands_are_found() -> None:
    page = """
```console
$ make up
serving …
$ almagest search \\
    'a question'
$ make test
```

```sh
$ not this
```
"""
    assert commands(page) == ["make up", "almagest search \\\n    'a question'"]
