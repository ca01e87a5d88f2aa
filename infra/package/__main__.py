"""`python -m infra.package`: make the artefacts, print what is in them, and write the bill of materials."""

import argparse
import os
import sys
from pathlib import Path

from infra.package.build import build, locked_wheels
from infra.package.places import PACKAGES, ROOT, SBOM
from infra.package.report import table
from infra.package.target import HERE, Target
from infra.package.wheels import PackageError
from infra.supply.sbom import write_sbom


def main() -> int:
    """Make the package; one sentence on standard error when it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m infra.package", description=__doc__)
    parser.add_argument("--python", default=Target().python, help="the version it is for, or `here` for this one's")
    parser.add_argument("--into", type=Path, default=ROOT / PACKAGES, help="folder of the artefacts")
    options = parser.parse_args()
    # Lambda runs as another user than the one who packages, and takes the files' rights as they are.
    os.umask(0o022)
    target = Target(HERE if options.python == "here" else options.python)
    try:
        package = build(target, options.into, lambda line: print(line, file=sys.stderr, flush=True))
    except PackageError as error:
        print(error, file=sys.stderr)
        return 1
    write_sbom(package, {wheel.name: wheel for wheel in locked_wheels(target)}, options.into / SBOM)
    print(table(package))
    print(f"The bill of materials is in {options.into / SBOM}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
