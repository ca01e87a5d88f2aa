"""The programs of requirements/tools.txt, which have an environment of their own; `make` puts it there."""

from pathlib import Path

import pytest

from infra.local import ROOT


def tool(name: str) -> Path:
    """A program of that environment; the test is skipped where it was not made."""
    program = ROOT / ".venv-tools" / "bin" / name
    if not program.exists():
        pytest.skip(f"{name} is not there; `make .venv-tools/tools.stamp` installs it")
    return program
