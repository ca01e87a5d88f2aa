"""Licences as packages state them, and what pip-audit says."""

import json
import re
from email.message import Message
from pathlib import Path

import pytest

from infra.local import ROOT
from infra.package.wheels import read_lock
from infra.supply.audit import Finding, Unreachable, findings
from infra.supply.licences import UNKNOWN, licence_of


def metadata(**fields: str | list[str]) -> Message:
    message = Message()
    message["Name"] = "part"
    for name, values in fields.items():
        for value in [values] if isinstance(values, str) else values:
            message[name.replace("_", "-")] = value
    return message


@pytest.mark.parametrize(
    ("stated", "licence"),
    [
        ({"License_Expression": "MPL-2.0 AND MIT", "License": "other"}, "MPL-2.0 AND MIT"),
        ({"License": "Apache 2.0"}, "Apache-2.0"),
        ({"License": "MIT License\n\nCopyright (c) somebody"}, "MIT"),
        ({"License": "Dual License", "Classifier": ["License :: OSI Approved :: BSD License"]}, "BSD-3-Clause"),
        (
            {"Classifier": ["License :: OSI Approved :: MIT License", "License :: OSI Approved :: BSD License"]},
            "MIT OR BSD-3-Clause",
        ),
        ({"License": "ask me", "Classifier": ["License :: Other/Proprietary License"]}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_licences_in_the_words_of_spdx(stated: dict[str, str | list[str]], licence: str) -> None:
    assert licence_of(metadata(**stated)) == licence


def said(*dependencies: dict[str, object]) -> str:
    return json.dumps({"dependencies": dependencies})


def test_vulnerabilities_are_findings() -> None:
    clean = {"name": "a", "version": "1", "vulns": []}
    bad = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
    unknown = {"name": "c", "skip_reason": "not found"}
    assert findings(said(clean), "") == []
    assert findings(said(clean, bad), "") == [Finding("b", "2", "PYSEC-1", ("3",))]
    # What was passed over does not hide what was found.
    assert findings(said(bad, unknown), "") == [Finding("b", "2", "PYSEC-1", ("3",))]


@pytest.mark.parametrize(
    ("stdout", "stderr", "reason"),
    [
        ("", "trace\nConnectionError: no route", "no route"),
        ("", "", "without a word"),
        (said({"name": "a", "version": "1", "vulns": []}, {"name": "c", "skip_reason": "not found"}), "", "1 of 2"),
    ],
)
def test_not_being_able_to_ask_is_no_all_clear(stdout: str, stderr: str, reason: str) -> None:
    with pytest.raises(Unreachable, match=reason):
        findings(stdout, stderr)


LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_version_is_locked_by_hash(lock: Path) -> None:
    lines = read_lock(lock)
    assert len(lines) == len(re.findall(r"^[a-zA-Z].*==", lock.read_text(), re.MULTILINE)) > 1
    for line in lines:
        assert re.fullmatch(r"==[\w.]+", str(line.requirement.specifier)), line.text
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line.text), line.text
    assert "://" not in lock.read_text()


def test_the_locks_agree_with_each_other() -> None:
    """One environment is filled from several of them; the tools alone have their own."""
    versions: dict[str, set[str]] = {}
    for lock in LOCKS:
        if lock.name != "tools.txt":
            for line in read_lock(lock):
                versions.setdefault(str(line.requirement).replace(str(line.requirement.specifier), ""), set()).add(
                    str(line.requirement.specifier)
                )
    assert not {name: found for name, found in versions.items() if len(found) > 1}
