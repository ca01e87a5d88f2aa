"""Which files of which wheels a handler uses, seen by running it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.package.places import PROBE, ROOT
from infra.package.reach import Reached
from infra.package.wheels import PackageError, Wheel

SECONDS = 120


Used = dict[str, set[Path]]


def measure(interpreter: Path, root: Path, handler: str, reached: Reached, wheels: Sequence[Wheel]) -> Used:
    """Run a handler over all wheels; return the names of those that it needs, and the files that it used of each.

    Parameters
    ----------
    interpreter
        Of the version that the wheels are for.
    root
        The folder that our own code is imported from.
    handler
        The module.
    reached
        What it can come to import; all of it is imported.
    wheels
        Unpacked.

    Raises
    ------
    PackageError
        When the handler cannot be run at all.
    """
    outside = sorted(name for name in reached.outside if name.split(".")[0] not in sys.stdlib_module_names)
    path = [root.absolute(), *(wheel.folder.absolute() for wheel in wheels)]
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ALMAGEST_MODEL_DIR": str(Path(sys.prefix) / "share" / "almagest" / "model"),
    }
    done = subprocess.run(
        [interpreter, "-S", ROOT / PROBE, handler, *outside],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    answers = [line.removeprefix("USED ") for line in done.stdout.splitlines() if line.startswith("USED ")]
    if done.returncode or not answers:
        raise PackageError(f"{handler} does not run on {interpreter}: {done.stderr[-2000:]}")
    by_folder = {wheel.folder.absolute(): wheel.name for wheel in wheels}
    used: Used = {}
    for file in map(Path, json.loads(answers[0])):
        for folder in by_folder.keys() & set(file.parents):
            used.setdefault(by_folder[folder], set()).add(file.relative_to(folder))
    return {name: files for name, files in used.items() if any(file.suffix in (".py", ".so") for file in files)}
