"""The command line without a stack: its help, its errors, and what it imports."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.core
from typer.main import get_command

from almagest.cli import app, items, main
from almagest.cli.context import read_settings
from almagest.models.bootstrap import DEFAULT_BUDGET
from almagest.models.search import DEFAULT_K, Filters

Command = Any  # typer carries a copy of click's class, which has no public name
HEAVY = {"fastembed", "httpx", "numpy", "onnxruntime", "psycopg", "pydantic", "supabase"}


def _commands() -> Iterator[tuple[str, Command]]:
    waiting: list[tuple[str, Command]] = [("almagest", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        yield name, command
        if isinstance(command, typer.core.TyperGroup):
            waiting += [(f"{name} {child}", found) for child, found in command.commands.items()]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a stack in it."""
    monkeypatch.chdir(tmp_path)


def _fails(*arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 1


@pytest.mark.parametrize(("name", "command"), [pytest.param(*pair, id=pair[0]) for pair in _commands()])
def test_every_command_and_every_parameter_has_help(name: str, command: Command) -> None:
    assert command.help, name
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"


def test_the_help_of_search_names_every_filter_and_the_defaults_are_the_models_own() -> None:
    assert items.FILTERS.split(", ") == list(Filters.model_fields)
    assert inspect.signature(items.search).parameters["k"].default == DEFAULT_K
    assert inspect.signature(items.bootstrap).parameters["budget"].default == DEFAULT_BUDGET


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from almagest.cli import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print(*sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert "remember" in done.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("almagest 0.")


@pytest.mark.parametrize("arguments", [("search", "x"), ("org", "list"), ("migrate",)])
def test_without_a_stack_it_says_how_to_start_one(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _fails(*arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error (no_stack): ")
    assert err.count("\n") == 1
    assert "almagest stack start" in err


def test_a_stack_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".almagest").mkdir()
    state = {
        "supabase_url": "http://127.0.0.1:1",
        "supabase_key": "sb_secret_x",
        "database_url": "postgresql://postgres@127.0.0.1:1/postgres",
        "key": "alm_x",
    }
    (tmp_path / ".almagest" / "stack.json").write_text(json.dumps(state))

    _fails("search", "x")
    assert "Error (database_unavailable): No answer from the stack at http://127.0.0.1:1" in capsys.readouterr().err
    _fails("migrate")
    assert "Error (migration_failed): cannot reach Postgres" in capsys.readouterr().err


def test_a_project_in_the_environment_replaces_the_stack_and_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"supabase_url": "http://local", "supabase_key": "sb_secret_x", "database_url": "postgres://", "key": "alm"}
    (tmp_path / "stack.json").write_text(json.dumps(state))
    monkeypatch.setenv("ALMAGEST_DIR", str(tmp_path))
    local = read_settings()
    assert (local.supabase_url, local.api_key and local.api_key.get_secret_value()) == ("http://local", "alm")

    monkeypatch.setenv("SUPABASE_URL", "https://ref.supabase.co")
    remote = read_settings()
    assert (remote.supabase_url, remote.supabase_key, remote.api_key) == ("https://ref.supabase.co", None, None)
    _fails("org", "list")
    assert "SUPABASE_SECRET_KEY is not" in capsys.readouterr().err
    monkeypatch.setenv("SUPABASE_SECRET_KEY", "sb_secret_y")
    _fails("search", "x")
    assert "Error (no_key)" in capsys.readouterr().err


def test_a_stack_over_a_real_project_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"supabase_url": "http://127.0.0.1:1", "supabase_key": "k", "database_url": "postgres://", "key": None}
    (tmp_path / "stack.json").write_text(json.dumps(state))
    monkeypatch.setenv("ALMAGEST_DIR", str(tmp_path))
    _fails("search", "x")
    assert "Error (no_key): Set ALMAGEST_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ALMAGEST_PORT", "70000", "less than or equal to 65535"),
        ("SUPABASE_URL", "ref.supabase.co", "must be a URL such as https://"),
        ("SUPABASE_URL", "https://", "must be a URL such as https://"),
        ("SUPABASE_SECRET_KEY", "sb_secret_ü", "must be printable ASCII"),
    ],
)
def test_an_impossible_setting_is_named(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUPABASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SUPABASE_SECRET_KEY", "sb_secret_x")
    monkeypatch.setenv(name, value)
    _fails("org", "list")
    assert "Error (invalid_settings)" in (err := capsys.readouterr().err)
    assert name in err
    assert says in err
    assert "ü" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("search", " "), "query: must not be blank"),
        (("search", "x", "-k", "101"), "k: input should be less than or equal to 100"),
        (("search", "x", "--filter", "colour=red"), "filters.colour: unknown field"),
        (("search", "x", "--filter", "priority_min=much"), "filters.priority_min: "),
        (("remember", "x", "--importance", "2"), "importance: "),
        (("remember", "x", "--metadata", "[1]"), "metadata: "),
    ],
)
def test_a_wrong_value_is_named_without_asking_the_stack(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _fails(*arguments)
    err = capsys.readouterr().err
    assert err.startswith("Error (invalid_request): ")
    assert message in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "x", "--filter", "type"),
        ("remember", "x", "--metadata", "{"),
        ("remember", "x", "--conversation", "c"),
        ("get", "not-an-id"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_filters_are_parsed_into_fields() -> None:
    assert items.parse_filters(["tags=a,b", "type=decision", "priority_min=0.5", "source_ref=a=b"]) == {
        "tags": ["a", "b"],
        "type": "decision",
        "priority_min": 0.5,
        "source_ref": "a=b",
    }
