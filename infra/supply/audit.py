"""What is known against the versions that are locked: pip-audit, told apart from not being able to ask."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.package.places import ROOT

PROGRAM = ROOT / ".venv-tools" / "bin" / "pip-audit"
LOCKS = (ROOT / "requirements" / "runtime.txt", ROOT / "requirements" / "model.txt")
SECONDS = 300


class Unreachable(Exception):
    """The advisory service did not answer, so nothing is known; the text says what came instead."""


@dataclass(frozen=True)
class Finding:
    """One advisory about one version; `fixed` names the versions without it."""

    name: str
    version: str
    advisory: str
    fixed: tuple[str, ...]


def audit(locks: Sequence[Path] = LOCKS, program: Path = PROGRAM) -> list[Finding]:
    """Ask about every version in lock files, with the hashes that they have there.

    Raises
    ------
    Unreachable
        When the service cannot be asked.
    """
    files = [word for lock in locks for word in ("--requirement", str(lock))]
    options = ["--format", "json", "--disable-pip", "--require-hashes", "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run([program, *options, *files], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"no answer within {SECONDS} s") from None
    return findings(done.stdout, done.stderr)


def findings(stdout: str, stderr: str) -> list[Finding]:
    """Read what pip-audit said.

    Raises
    ------
    Unreachable
        When it ended without a report, or found nothing and passed over something.
    """
    try:
        dependencies = json.loads(stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = [line for line in stderr.splitlines() if line.strip()]
        raise Unreachable(said[-1].strip()[:300] if said else "pip-audit ended without a word") from None
    found = [
        Finding(each["name"], each["version"], vulnerability["id"], tuple(vulnerability["fix_versions"]))
        for each in dependencies
        for vulnerability in each.get("vulns", [])
    ]
    passed_over = [each for each in dependencies if "skip_reason" in each]
    if passed_over and not found:
        first = passed_over[0]
        raise Unreachable(
            f"{len(passed_over)} of {len(dependencies)} not asked about, {first['name']}: {first['skip_reason']}"
        )
    return found
