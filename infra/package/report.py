"""The table of sizes that `make package` prints."""

from infra.package.build import LIMIT, ROOM, Package


def table(package: Package) -> str:
    """Sizes in megabytes (10^6 bytes), a line a part and a column a function; the largest parts come first."""
    sizes: dict[str, dict[str, int]] = {}
    for artefact in package.artefacts:
        for part in artefact.parts:
            label = f"{part.name} {part.version}" if part.wheel else part.name
            sizes.setdefault(label, {})[artefact.name] = part.bytes
    names = [artefact.name for artefact in package.artefacts]
    rows = sorted(sizes.items(), key=lambda row: -max(row[1].values()))
    lines = [_line(label, [_megabytes(of.get(name)) for name in names]) for label, of in rows]
    total = {artefact.name: artefact.bytes for artefact in package.artefacts}
    head = _line(f"MB, for Python {package.python}", names)
    return "\n".join(
        [
            head,
            *lines,
            "-" * len(head),
            _line("all", [_megabytes(total[name]) for name in names]),
            _line(f"of {LIMIT / 1e6:.1f} allowed", [f"{total[name] / LIMIT:.0%}" for name in names]),
            _line(f"free below {(LIMIT - ROOM) / 1e6:.1f}", [_megabytes(LIMIT - ROOM - total[name]) for name in names]),
        ]
    )


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.2f}"


def _line(label: str, cells: list[str]) -> str:
    return f"{label:<32}" + "".join(f"{cell:>11}" for cell in cells)
