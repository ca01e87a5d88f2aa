"""Locked requirements -> unpacked wheels for the target, every one checked by its hash whenever it is used."""

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
from zlib import crc32

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

    @property
    def hashes(self) -> frozenset[str]:
        """SHA-256 of the files that it may be, in hex."""
        return frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", self.text))

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

    def forget_compiled(self) -> None:
        """Remove what was compiled of it, which no hash vouches for."""
        for folder in [*self.folder.rglob("__pycache__")]:
            shutil.rmtree(folder)

    @property
    def _information(self) -> Path:
        return next(self.folder.glob("*.dist-info"))


def read_lock(file: Path) -> list[Locked]:
    """Read a lock file as `uv pip compile --generate-hashes` writes it."""
    lines = re.findall(r"^\w(?:.*\\\n)*.*", file.read_text(), re.MULTILINE)
    return [Locked(Requirement(re.split(r"\s--hash|\s*\\\n", line, maxsplit=1)[0]), line) for line in lines]


def fetch(locked: Iterable[Locked], target: Target, into: Path) -> list[Wheel]:
    """Have the wheels of a lock for the target, unpacked; what a former run left is used where nothing changed it.

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
    names = _listed(list_of_files)
    if names is None or not _are_locked([files / name for name in names], wanted):
        names = _download(wanted, target, files, into)
        part = list_of_files.with_suffix(".part")
        part.write_text(json.dumps(names))
        part.replace(list_of_files)
    wheels = [_unpacked(files / name, into / "unpacked") for name in names]
    for wheel in wheels:
        if not wheel.tags & target.tags:
            raise PackageError(f"{wheel.file.name} does not run on Python {target.python} on x86_64.")
    return sorted(wheels, key=lambda wheel: wheel.name)


def _listed(list_of_files: Path) -> list[str] | None:
    """The files of a former run; None where there was none that ended."""
    try:
        names: list[str] = json.loads(list_of_files.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return names


def _are_locked(files: list[Path], wanted: list[Locked]) -> bool:
    """Whether files are there and are still what the lock names."""
    hashes = {line.name: line.hashes for line in wanted}
    return all(file.is_file() and (wheel := Wheel(file, file)).sha256 in hashes[wheel.name] for file in files)


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
    if not _is_whole(folder, file):
        part = folder.with_suffix(".part")
        for old in (part, folder):
            shutil.rmtree(old, ignore_errors=True)
        with ZipFile(file) as archive:
            archive.extractall(part)
        _spread(part)
        part.replace(folder)
    return Wheel(file, folder)


def _is_whole(folder: Path, file: Path) -> bool:
    """Whether a folder holds what an archive does, and nothing else but what was compiled."""
    with ZipFile(file) as archive:
        packed = {place: each.CRC for each in archive.infolist() if (place := _place(each.filename))}
    found = {path.as_posix(): crc32((folder / path).read_bytes()) for path in Wheel(file, folder).files}
    return found == packed


def _place(name: str) -> str | None:
    """Where `_spread` leaves a file of an archive; None for a folder, and for what it takes away."""
    top, _, rest = name.partition("/")
    if name.endswith("/"):
        return None
    if not top.endswith(".data"):
        return name
    kind, _, place = rest.partition("/")
    return place if kind in ("purelib", "platlib") else None


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
