"""`python -m infra.supply audit` and `python -m infra.supply licences`."""

import sys

from infra.supply.audit import Unreachable, audit
from infra.supply.licences import UNKNOWN, all_parts


def _audit() -> int:
    try:
        found = audit()
    except Unreachable as error:
        print(f"SKIPPED: the advisory service could not be asked: {error}", file=sys.stderr)
        return 0
    for each in found:
        print(f"{each.name} {each.version}: {each.advisory}; mended in {', '.join(each.fixed) or 'no version'}")
    print(f"{len(found)} known vulnerabilities.", file=sys.stderr)
    return 1 if found else 0


def _licences() -> int:
    parts = all_parts()
    for part in parts:
        print(f"{part.name:<28} {part.version:<24} {part.licence:<36} {part.where}")
    if unknown := [part.name for part in parts if part.licence == UNKNOWN]:
        print(f"No licence is stated by {', '.join(unknown)}.", file=sys.stderr)
        return 1
    return 0


_COMMANDS = {"audit": _audit, "licences": _licences}


def main() -> int:
    """Run the command that is named."""
    if len(sys.argv) != 2 or sys.argv[1] not in _COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    return _COMMANDS[sys.argv[1]]()


if __name__ == "__main__":
    sys.exit(main())
