"""The runbook and the page of the dashboard: they name all that there is, and nothing that there is not."""

import re
from collections.abc import Iterator

import pytest
import typer.core
import yaml
from typer.main import get_command

from almagest.cli import app
from almagest.operations.health.registry import CHECKS
from almagest.operations.remediation.answers import ANSWERS
from infra.local import ROOT
from infra.local.template import _Loader

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
DASHBOARD = (ROOT / "docs" / "dashboard.md").read_text()
VIEWS = {file.stem for file in (ROOT / "sql" / "dashboard").glob("*.sql")}
OPERATIONS = yaml.load((ROOT / "infra/aws/operations.yaml").read_text(), _Loader)  # noqa: S506 - a SafeLoader
ALARMS = [name for name, resource in OPERATIONS["Resources"].items() if resource["Type"] == "AWS::CloudWatch::Alarm"]


def sections(page: str, level: int) -> dict[str, str]:
    """Text below each heading of a level, up to the next heading of this or a higher one, by the heading."""
    parts = re.split(rf"^{'#' * level} (.+)$", page, flags=re.MULTILINE)
    ends = re.compile(rf"^#{{1,{level}}} ", re.MULTILINE)
    return {heading: ends.split(text)[0] for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("check", CHECKS)
def test_the_runbook_says_of_each_check_what_it_is_and_what_to_do(check: str) -> None:
    text = sections(RUNBOOK, 3)[check]
    for said in ("Means", "See", "By itself", "To do"):
        assert f"**{said}.**" in text, said


def test_the_runbook_knows_what_remediation_asks_of_people() -> None:
    """Each command and setting that an entry of the Hub names is in the section of its check."""
    assert ANSWERS.keys() == CHECKS.keys()
    for check, answer in ANSWERS.items():
        text = sections(RUNBOOK, 3)[check]
        for named in re.findall(r"`([^`]+)`|\b(ALMAGEST_\w+)", answer.to_do):
            assert "".join(named) in text, (check, named)


@pytest.mark.parametrize("alarm", ALARMS)
def test_the_runbook_says_of_each_alarm_what_it_is_and_what_to_do(alarm: str) -> None:
    [text] = [
        text
        for heading, text in sections(RUNBOOK, 3).items()
        if re.search(rf"\b{alarm}\b", heading) or re.search(rf"^\| [^|]*\b{alarm}\b", text, re.MULTILINE)
    ]
    assert re.search(r"\*\*Means?\.\*\*|means \|", text)
    for said in ("See", "By itself", "To do"):
        assert f"**{said}.**" in text, said


def test_no_section_is_of_what_is_gone() -> None:
    named = set(sections(RUNBOOK, 3))
    checks = {heading for heading in named if re.fullmatch(r"[a-z_]+", heading)}
    assert checks == CHECKS.keys()
    words = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", " ".join(named)))
    assert words <= set(ALARMS)


@pytest.mark.parametrize("page", [RUNBOOK, DASHBOARD], ids=["runbook", "dashboard"])
def test_links_lead_somewhere(page: str) -> None:
    for file, anchor in re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", page):
        target = page if not file else (ROOT / "docs" / file).read_text()
        assert not anchor or anchor in anchors(target), (file, anchor)


def _commands() -> Iterator[str]:
    waiting = [("almagest", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        yield name
        if isinstance(command, typer.core.TyperGroup):
            waiting += [(f"{name} {child}", found) for child, found in command.commands.items()]


def test_commands_and_views_that_are_named_are_there() -> None:
    known = set(_commands())
    for page in (RUNBOOK, DASHBOARD):
        for command in re.findall(r"\balmagest(?: [a-z]+)+", page):
            words = command.split()
            assert " ".join(words[:2]) in known, command
        for view in re.findall(r"\bdashboard\.(\w+)", page):
            assert view in VIEWS | {"md"}, view


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_each_view_has_a_section_with_samples(view: str) -> None:
    text = sections(DASHBOARD, 2)[view]
    rows = [line.split(" |") for line in text.splitlines() if line.startswith("| `")]
    assert rows, "no columns"
    samples = [cell.strip() for row in rows for cell in row[2:] if cell.strip()]
    assert len(samples) >= len(rows) / 2, "run python -m tests.samples"
