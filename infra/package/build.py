"""Puts the artefacts together: a folder for each function of the template, and a note of what is in them."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from almagest import __version__
from almagest.embedding.model import FILES, assemble
from infra.local.template import read_template
from infra.package.compiled import Compiler
from infra.package.interpreters import find
from infra.package.measure import Used, measure
from infra.package.places import FUNCTIONS, LOCKED, LOCKED_LOCAL, NOTE, ROOT, RUNTIME, TEMPLATE, WHEELS
from infra.package.reach import Reached, reach
from infra.package.target import HERE, Target
from infra.package.trim import kept
from infra.package.wheels import PackageError, Wheel, fetch, read_lock

# Lambda's limit for a function unpacked; a tenth stays free, so that a dependency may grow a little in a bad moment.
LIMIT = 262_144_000
ROOM = LIMIT // 10
# Where an import of this is reached, the model goes along.
EMBEDS = "fastembed"
OWN, MODEL = "almagest", "model"
# The Runtime API's client and what it needs, which Lambda has of its own.
_RUNTIME_PARTS = {"awslambdaric", "simplejson", "snapshot-restore-py"}

Report = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """A distribution in an artefact, our own code (`almagest`), or the `model`.

    Attributes
    ----------
    bytes
        Its size there, compiled modules included.
    wheel
        File name of the wheel; empty for what is none.
    """

    name: str
    version: str
    bytes: int
    wheel: str = ""


@dataclass(frozen=True)
class Artefact:
    """One function's folder."""

    name: str
    handler: str
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """Unpacked."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Package:
    """All artefacts of one target."""

    python: str
    artefacts: tuple[Artefact, ...]

    def write(self, into: Path) -> None:
        """Note down what was made."""
        (into / NOTE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Package":
        """Read what `write` noted down.

        Raises
        ------
        OSError
            When there is no package.
        """
        found = json.loads((folder / NOTE).read_text())
        artefacts = (
            Artefact(each["name"], each["handler"], tuple(Part(**part) for part in each["parts"]))
            for each in found["artefacts"]
        )
        return cls(found["python"], tuple(artefacts))


@dataclass(frozen=True)
class _Plan:
    """What goes into one artefact."""

    name: str
    handler: str
    reached: Reached
    used: Used


def handlers() -> dict[str, str]:
    """Functions of the template, by name, and the modules of their handlers."""
    secret = "arn:aws:secretsmanager:::secret:any"  # noqa: S105 - no secret
    parameters = {"SupabaseUrl": "https://localhost", "SupabaseSecretArn": secret, "DatabaseSecretArn": secret}
    functions = read_template(ROOT / TEMPLATE, parameters)
    return {name: function.handler.rpartition(".")[0] for name, function in functions.items()}


def locked_wheels(target: Target) -> list[Wheel]:
    """All that the functions may import, for a target."""
    return fetch(read_lock(ROOT / LOCKED), target, ROOT / WHEELS / target.python)


def build(target: Target, into: Path, report: Report = lambda _: None) -> Package:
    """Make all artefacts anew.

    Parameters
    ----------
    target
        What they are to run on.
    into
        Folder of the artefacts; whatever it holds is replaced.
    report
        Receives a line for each step.

    Raises
    ------
    PackageError
        When a wheel cannot be had, a handler does not run, or an artefact is too large.
    """
    report(f"Getting wheels for Python {target.python} …")
    wheels = {wheel.name: wheel for wheel in locked_wheels(target)}
    for wheel in wheels.values():
        wheel.forget_compiled()
    plans = list(_plans(target, report))
    interpreter = find(target.python)
    compiler = Compiler(interpreter, target.cache_tag) if interpreter else None
    if compiler is None:
        report(f"No Python {target.python} is here: modules are not compiled, so that cold starts take longer.")
    shutil.rmtree(into, ignore_errors=True)
    artefacts = []
    for plan in plans:
        report(f"Making {plan.name} …")
        artefacts.append(_assemble(plan, wheels, into / plan.name, compiler))
    _put_runtime(target, into / RUNTIME)
    package = Package(target.python, tuple(artefacts))
    for artefact in artefacts:
        if artefact.bytes > LIMIT - ROOM:
            raise PackageError(f"{artefact.name} has {artefact.bytes:,} bytes, and {LIMIT - ROOM:,} is the most.")
    package.write(into)
    return package


def _plans(target: Target, report: Report) -> Iterator[_Plan]:
    # Without an interpreter of the target's, this one shows what is used, on the same versions built for it.
    measured = target if find(target.python) else Target(HERE)
    interpreter, wheels = find(measured.python), locked_wheels(measured)
    assert interpreter is not None  # noqa: S101 - this one at least
    for name, handler in handlers().items():
        report(f"Running {name} on Python {measured.python} …")
        reached = reach(ROOT / FUNCTIONS, handler)
        used = measure(interpreter, ROOT / FUNCTIONS, handler, reached, wheels)
        yield _Plan(name, handler, reached, used)


def _assemble(plan: _Plan, wheels: dict[str, Wheel], into: Path, compiler: Compiler | None) -> Artefact:
    parts = [Part(OWN, __version__, _put_own(plan.reached, into, compiler))]
    if EMBEDS in plan.reached.outside:
        model = ROOT / WHEELS / MODEL
        assemble(model)
        files = {model / file.name: Path(MODEL) / file.name for file in FILES}
        parts.append(Part(MODEL, __version__, _link(files, into)))
    # What an older Python needs beside is not among the target's wheels.
    for name in sorted(plan.used.keys() & wheels.keys()):
        wheel, used = wheels[name], plan.used[name]
        files = {wheel.folder / file: file for file in kept(wheel.files, used)}
        if compiler:
            modules = {file: place for file, place in files.items() if place in used and place.suffix == ".py"}
            compiler.compile(modules)
            files |= {compiler.place(file): compiler.place(place) for file, place in modules.items()}
        parts.append(Part(name, wheel.version, _link(files, into), wheel.file.name))
    return Artefact(plan.name, plan.handler, tuple(parts))


def _put_own(reached: Reached, into: Path, compiler: Compiler | None) -> int:
    places = {file: into / file.relative_to(ROOT / FUNCTIONS) for file in reached.modules.values()}
    for file, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    if compiler:
        compiler.compile({place: place.relative_to(into) for place in places.values()})
    return sum(file.stat().st_size for file in (into / OWN).rglob("*") if file.is_file())


def _put_runtime(target: Target, into: Path) -> None:
    lines = [line for line in read_lock(ROOT / LOCKED_LOCAL) if line.name in _RUNTIME_PARTS]
    for wheel in fetch(lines, target, ROOT / WHEELS / target.python):
        _link({wheel.folder / file: file for file in wheel.files}, into)


def _link(files: dict[Path, Path], into: Path) -> int:
    """Put files where they belong, as links where the disk allows it, and return their bytes."""
    size = 0
    for source, place in files.items():
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
        size += target.stat().st_size
    return size
