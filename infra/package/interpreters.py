"""Finding an interpreter of another version of Python, where this machine has one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Where pyenv and uv put theirs.
_ELSEWHERE = (".pyenv/versions/{}*/bin/python3", ".local/share/uv/python/cpython-{}*/bin/python3")


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
    for pattern in _ELSEWHERE:
        # The newest first, and 3.1 is not to find 3.13.
        yield from sorted(Path.home().glob(pattern.format(f"{version}.")), reverse=True)


def _is_of(program: Path, version: str) -> bool:
    # What is on the PATH may be a shim without an interpreter behind it.
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([program, "-I", "-c", question], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == version
