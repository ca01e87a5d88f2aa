"""How the package is put together: what is reached, what fits, what is left out."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.tags import parse_tag

from infra.local import ROOT
from infra.package.build import LIMIT, Artefact, Package, Part, handlers
from infra.package.interpreters import find
from infra.package.places import FUNCTIONS, LOCKED
from infra.package.reach import reach
from infra.package.report import table
from infra.package.target import HERE, Target
from infra.package.trim import kept
from infra.package.wheels import Locked, Wheel, fetch, read_lock


def write(root: Path, **modules: str) -> None:
    (root / "almagest").mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (root / "almagest" / f"{name}.py").write_text(text)


def test_an_import_in_a_function_counts_where_its_name_is_mentioned(tmp_path: Path) -> None:
    shared = """
from typing import TYPE_CHECKING
import json
if TYPE_CHECKING:
    import heavy.types
class Runtime:
    def __init__(self): import always
    def embedder(self):
        import heavy
        from almagest import model
        def inner(): import never
    def other(self): from almagest.unused import thing
"""
    write(
        tmp_path,
        shared=shared,
        model="import weights",
        unused="import unwanted",
        plain="from almagest.shared import Runtime\ndef handler(): ...",
        embeds="from almagest.shared import Runtime\ndef handler(): Runtime().embedder()",
    )
    plain = reach(tmp_path, "almagest.plain")
    assert plain.outside == {"typing", "json", "always"}
    assert set(plain.modules) == {"almagest", "almagest.plain", "almagest.shared"}
    embeds = reach(tmp_path, "almagest.embeds")
    assert embeds.outside - plain.outside == {"heavy", "weights"}
    assert set(embeds.modules) - set(plain.modules) == {"almagest.embeds", "almagest.model"}


def test_functions_reach_what_they_use_and_no_more() -> None:
    found = {name: reach(ROOT / FUNCTIONS, module) for name, module in handlers().items()}
    assert set(found) == {"search", "write", "bootstrap", "index", "jobs"}
    # All turn text into vectors: bootstrap has a question, too.
    assert all("fastembed" in each.outside for each in found.values())
    users = {part: {name for name, each in found.items() if part in each.outside} for part in ("psycopg", "boto3")}
    assert users == {"psycopg": {"index", "jobs"}, "boto3": {"write", "jobs"}}
    cut = {name for name, each in found.items() if "semantic_text_splitter" in each.outside}
    assert cut == {"write", "index", "jobs"}
    for each in found.values():
        assert not [
            module for module in each.modules if module.startswith(("almagest.cli", "almagest.database.migrate"))
        ]


def test_wheels_fit_the_target_or_not() -> None:
    lambda_ = Target().tags
    for fits in ("cp313-cp313-manylinux_2_28_x86_64", "cp39-abi3-manylinux2014_x86_64", "py3-none-any"):
        assert parse_tag(fits) & lambda_, fits
    for other in (
        "cp313-cp313-manylinux_2_39_x86_64",
        "cp313-cp313-musllinux_1_2_x86_64",
        "cp313-cp313-manylinux_2_28_aarch64",
        "cp314-abi3-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp313-cp313t-manylinux_2_28_x86_64",
        "cp313-cp313-macosx_14_0_arm64",
    ):
        assert not parse_tag(other) & lambda_, other


def test_markers_are_those_of_the_target() -> None:
    lines = read_lock(ROOT / LOCKED)
    assert all("--hash=sha256:" in line.text for line in lines)
    numpy = {
        python: [line.requirement for line in lines if line.name == "numpy" and line.is_for(Target(python))]
        for python in ("3.11", "3.13")
    }
    assert all(len(found) == 1 for found in numpy.values())
    assert numpy["3.11"] != numpy["3.13"]
    assert not [line.name for line in lines if line.is_for(Target()) and line.name in ("colorama", "tzdata")]


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Wheel]:
    """Fetches one small wheel, which is downloaded where it is not cached."""
    built = tmp_path / "index" / "part-1-py3-none-any.whl"
    built.parent.mkdir()
    with ZipFile(built, "w") as archive:
        archive.writestr("part/__init__.py", "VALUE = 1\n")
        archive.writestr("part-1.data/purelib/other.py", "VALUE = 2\n")
        archive.writestr("part-1.data/scripts/run", "#!python\n")
        archive.writestr("part-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: part\nVersion: 1\n")
        archive.writestr("part-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("part-1.dist-info/RECORD", "")
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    monkeypatch.setenv("PIP_FIND_LINKS", str(built.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    line = Locked(Requirement("part==1"), f"part==1 --hash=sha256:{digest}")

    def fetched() -> Wheel:
        [wheel] = fetch([line], Target(HERE), tmp_path / "cache")
        return wheel

    return fetched


def test_a_wheel_is_had_once(cached: Callable[[], Wheel], monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached()
    modules = [file.as_posix() for file in first.files if file.suffix == ".py"]
    assert modules == ["other.py", "part/__init__.py"]
    inode = (first.folder / "other.py").stat().st_ino
    monkeypatch.setenv("PIP_FIND_LINKS", "")  # nothing can be downloaded any more
    assert (cached().folder / "other.py").stat().st_ino == inode


@pytest.mark.parametrize("change", ["changed", "added", "removed", "compiled"])
def test_what_changed_in_the_cache_is_not_used(cached: Callable[[], Wheel], change: str) -> None:
    folder = cached().folder
    module = folder / "part" / "__init__.py"
    if change == "changed":
        module.write_text("EVIL = 1\n")  # as long as before
    elif change == "added":
        (folder / "sitecustomize.py").write_text("EVIL = 1\n")
    elif change == "removed":
        module.unlink()
    else:
        (module.parent / "__pycache__").mkdir()
        (module.parent / "__pycache__" / "__init__.cpython-313.pyc").write_bytes(b"evil")
        cached().forget_compiled()
    again = cached()
    assert again.folder == folder
    assert module.read_text() == "VALUE = 1\n"
    assert {path.name for path in folder.rglob("*.py*")} == {"__init__.py", "other.py"}


@pytest.mark.parametrize("damage", [b"another file", None])
def test_an_archive_that_is_not_the_locked_one_is_had_anew(cached: Callable[[], Wheel], damage: bytes | None) -> None:
    file = cached().file
    genuine = file.read_bytes()
    file.unlink()
    if damage:
        file.write_bytes(damage)
    assert cached().file.read_bytes() == genuine


def test_a_list_that_was_cut_short_is_made_anew(cached: Callable[[], Wheel]) -> None:
    [note] = cached().file.parents[1].glob("*.json")
    note.write_text('["part-1-')
    assert cached().version == "1"


def test_what_is_left_out() -> None:
    used = {Path("botocore/data/lambda/2015-03-31/service-2.json.gz"), Path("part.libs/libused-89abcdef.so.1")}
    left = {
        "part/tests/test_it.py",
        "part/_core/include/part.h",
        "part/types.pyi",
        "botocore/data/s3/2006-03-01/service-2.json.gz",
        "part.libs/libunused-89abcdef.so.6.4",
    }
    stays = {
        "part/testing/__init__.py",
        "part/lazy.py",
        "part/_fast.cpython-313-x86_64-linux-gnu.so",
        "part-1.dist-info/licenses/LICENSE",
        "botocore/data/endpoints.json",
        "botocore/data/lambda/2015-03-31/paginators-1.json",
        *map(str, used),
    }
    everything = [Path(name) for name in sorted(left | stays)]
    assert set(map(str, kept(everything, used))) == stays
    # Seen with another build of the wheel, where a library has another hash in its name.
    other = {*used, Path("part.libs/libused-0123abcd.so.1")} - {Path("part.libs/libused-89abcdef.so.1")}
    assert set(map(str, kept(everything, other))) == stays


def test_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(HERE) == Path(sys.executable)
    assert find("3.99") is None
    # A shim that knows no such version is none.
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho not found >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find("3.99") is None
    for variable, place in (("PYENV_ROOT", "versions/3.99.1"), ("UV_PYTHON_INSTALL_DIR", "cpython-3.99.1-linux")):
        program = tmp_path / variable / place / "bin" / "python3"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho 3.99\n")
        program.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(tmp_path / variable))
            assert find("3.99") == program
    assert find("3.99") is None
    shim.write_text("#!/bin/sh\necho 3.99\n")
    assert find("3.99") == shim


def test_the_table_adds_up() -> None:
    parts = (Part("numpy", "2", 20_000_000, "numpy.whl"), Part("model", "1", 1_500_000))
    package = Package("3.13", (Artefact("search", "m", parts), Artefact("write", "m", parts[:1])))
    lines = [line.split() for line in table(package).splitlines()]
    assert ["numpy", "2", "20.00", "20.00"] in lines
    assert ["model", "1.50"] in lines
    assert ["all", "21.50", "20.00"] in lines
    assert LIMIT == 262_144_000
