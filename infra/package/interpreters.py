"""Finding an interpreter of another version of Python, where this machine has one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Where pyenv and uv put theirs: a variable that says where, else a folder of the home's; and what they call one.
_ELSEWHERE = (
    ("PYENV_ROOT", ".pyenv", "versions/{}*/bin/python3"),
    ("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", "cpython-{}*/bin/python3"),
)


def find(version: str) -> Path | None:
    """Return an interpreter of a version such as `3.13`, or None.

    ALMAGEST_PACKAGE_PYTHON may name one that is nowhere else to be found.
    """
    return next((program for program in _candidates(version) if _is_of(program, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    if named := os.environ.get("ALMAGEST_PACKAGE_PYTHON"):
        yield Path(named)
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    for variable, folder, pattern in _ELSEWHERE:
        base = Path(os.environ.get(variable) or Path.home() / folder)
        # The newest first, and 3.1 is not to find 3.13.
        yield from sorted(base.glob(pattern.format(f"{version}.")), reverse=True)


def _is_of(program: Path, version: str) -> bool:
    # What is on the PATH may be a shim without an interpreter behind it.
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([program, "-I", "-c", question], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == version
