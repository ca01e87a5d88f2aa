"""Locked requirements -> unpacked wheels for the target, every one checked by its hash."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name, parse_wheel_filename

from infra.package.target import Target


class PackageError(Exception):
    """The package cannot be made; the text says why."""


@dataclass(frozen=True)
class Locked:
    """One line of a lock file: a version, and the hashes of the files that it may be."""

    requirement: Requirement
    text: str

    @property
    def name(self) -> str:
        """Normalised name of the distribution."""
        return canonicalize_name(self.requirement.name)

    def is_for(self, target: Target) -> bool:
        """Whether the target needs it at all."""
        marker = self.requirement.marker
        return marker is None or marker.evaluate(dict(target.environment))


@dataclass(frozen=True)
class Wheel:
    """A wheel as it came, and where it lies unpacked.

    Attributes
    ----------
    file
        The archive.
    folder
        Its content, as it stands in a path of Python's.
    """

    file: Path
    folder: Path

    @property
    def name(self) -> str:
        """Normalised name of the distribution."""
        return str(parse_wheel_filename(self.file.name)[0])

    @property
    def version(self) -> str:
        """Version of the distribution."""
        return str(parse_wheel_filename(self.file.name)[1])

    @cached_property
    def sha256(self) -> str:
        """Of the archive, in hex."""
        with self.file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    @property
    def tags(self) -> frozenset[Tag]:
        """What it says it runs on, inside; file names are easily changed."""
        text = (self._information / "WHEEL").read_text()
        return frozenset(tag for line in Parser().parsestr(text).get_all("Tag", []) for tag in parse_tag(line))

    @property
    def metadata(self) -> Message:
        """Name, licence and so on, as its maker wrote it."""
        return Parser().parsestr((self._information / "METADATA").read_text("utf-8"))

    @cached_property
    def files(self) -> list[Path]:
        """All that was in it, relative to the folder; not what was compiled since."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        return sorted(path.relative_to(self.folder) for path in found)

    @property
    def _information(self) -> Path:
        return next(self.folder.glob("*.dist-info"))


def read_lock(file: Path) -> list[Locked]:
    """Read a lock file as `uv pip compile --generate-hashes` writes it."""
    lines = re.findall(r"^\w(?:.*\\\n)*.*", file.read_text(), re.MULTILINE)
    return [Locked(Requirement(re.split(r"\s--hash|\s*\\\n", line, maxsplit=1)[0]), line) for line in lines]


def fetch(locked: Iterable[Locked], target: Target, into: Path) -> list[Wheel]:
    """Have the wheels of a lock for the target, unpacked; what a former run left is used again.

    Parameters
    ----------
    locked
        What is wanted; lines that are not for the target are passed over.
    into
        Folder of this target's wheels.

    Raises
    ------
    PackageError
        When one cannot be had as a wheel with a known hash, or is not for the target.
    """
    wanted = [line for line in locked if line.is_for(target)]
    files = into / "files"
    files.mkdir(parents=True, exist_ok=True)
    note = _fingerprint(wanted, target)
    list_of_files = into / f"{note}.json"
    if not list_of_files.is_file():
        list_of_files.write_text(json.dumps(_download(wanted, target, files, into)))
    wheels = [_unpacked(files / name, into / "unpacked") for name in json.loads(list_of_files.read_text())]
    for wheel in wheels:
        if not wheel.tags & target.tags:
            raise PackageError(f"{wheel.file.name} does not run on Python {target.python} on x86_64.")
    return sorted(wheels, key=lambda wheel: wheel.name)


def _download(wanted: list[Locked], target: Target, files: Path, into: Path) -> list[str]:
    # Markers are taken off: pip would evaluate them for the Python that it runs on.
    text = "\n".join(re.sub(r"\s*;[^\\\n]*", " ", line.text, count=1) for line in wanted)
    requirements = into / "requirements.txt"
    requirements.write_text(text + "\n")
    part = into / "part"
    shutil.rmtree(part, ignore_errors=True)
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", str(part), "-r", str(requirements)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", *target.pip_options, *options],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise PackageError(f"The wheels could not be had: {' '.join(said) or done.stderr[-500:]}")
    names = sorted(path.name for path in part.iterdir())
    for name in names:
        (part / name).replace(files / name)
    return names


def _unpacked(file: Path, into: Path) -> Wheel:
    folder = into / file.stem
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with ZipFile(file) as archive:
            archive.extractall(part)
        _spread(part)
        part.replace(folder)
    return Wheel(file, folder)


def _spread(folder: Path) -> None:
    """Put what a wheel keeps apart (`*.data`) where an installer puts it; scripts are nobody's at run time."""
    for data in folder.glob("*.data"):
        for kind in ("purelib", "platlib"):
            if (data / kind).is_dir():
                shutil.copytree(data / kind, folder, dirs_exist_ok=True)
        shutil.rmtree(data)


def _fingerprint(wanted: list[Locked], target: Target) -> str:
    text = "\n".join([target.python, *sorted(line.text for line in wanted)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
