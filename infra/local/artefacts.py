"""The artefacts of `make package`, as the local stack runs them: on their own Python, with nothing else on its path."""

import json

from infra.local import ROOT
from infra.local.environment import Runner
from infra.local.errors import StackError
from infra.package.interpreters import find
from infra.package.places import PACKAGES


def packaged() -> Runner:
    """Find what runs the artefacts.

    Raises
    ------
    StackError
        When they are not there, or no interpreter of their version is.
    """
    try:
        version = json.loads((ROOT / PACKAGES / "package.json").read_text())["python"]
    except (OSError, ValueError, KeyError):
        raise StackError(f"There is no package in {ROOT / PACKAGES}; make it with `make package`.") from None
    program = find(version)
    if program is None:
        raise StackError(
            f"The package is for Python {version}, which is not here: install it, or name it in "
            "ALMAGEST_PACKAGE_PYTHON, or make a package for this Python with `make package TARGET=here`."
        )
    return Runner(program, ROOT / PACKAGES / "runtime")
