"""Compiled modules: Lambda's folder of code cannot be written to, so that without them every cold start compiles."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The hash of the source is not looked at: file times do not survive an upload, and nobody edits what is deployed.
_PROGRAM = """
import json, py_compile, sys
for source, place, shown in json.load(sys.stdin):
    py_compile.compile(
        source, cfile=place, dfile="/var/task/" + shown, doraise=True, optimize=-1,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
"""
_SECONDS = 300


@dataclass(frozen=True)
class Compiler:
    """Compiles for one version of CPython.

    Attributes
    ----------
    interpreter
        Of that version.
    tag
        The version's, as in `cpython-313`.
    """

    interpreter: Path
    tag: str

    def compile(self, modules: Mapping[Path, Path]) -> None:
        """Compile the modules that are not yet: files, and what these are called in an artefact."""
        missing = [
            (str(file), str(self.place(file)), shown.as_posix())
            for file, shown in modules.items()
            if file.suffix == ".py" and not self.place(file).is_file()
        ]
        command = [str(self.interpreter), "-S", "-c", _PROGRAM]
        # With one seed the same module compiles to the same bytes, and what has not changed is not uploaded again.
        environment = {"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")}
        subprocess.run(command, env=environment, input=json.dumps(missing), text=True, check=True, timeout=_SECONDS)

    def place(self, module: Path) -> Path:
        """Where a module's compiled form lies."""
        return module.parent / "__pycache__" / f"{module.stem}.{self.tag}.pyc"
