"""Disks that can be filled under a running Postgres."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from tests.chaos.parts import postgres
from tests.stack import Stack

PIECE = bytes(1 << 16)


class Disk(Protocol):
    """What Postgres keeps its files on."""

    def fill(self, stack: Stack) -> None:
        """Leave no room for anything more."""

    def clear(self, stack: Stack) -> None:
        """Make room again."""


class SmallFileSystem:
    """A file system of its own in memory, which a ballast fills.

    Parameters
    ----------
    folder
        Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self, stack: Stack) -> None:
        """Leave no room for anything more."""
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(PIECE)

    def clear(self, stack: Stack) -> None:
        """Make room again."""
        self._ballast.unlink()


class Quota:
    """A stand-in where nothing may be mounted: no file of Postgres' may be written beyond its first byte."""

    def fill(self, stack: Stack) -> None:
        """Leave no room for anything more."""
        self._limit(stack, "1")

    def clear(self, stack: Stack) -> None:
        """Make room again."""
        self._limit(stack, "unlimited")

    def _limit(self, stack: Stack, size: str) -> None:
        # The postmaster hands it on to those who come. A process may be limited by its own user, not by any root.
        for process in postgres(stack):
            with suppress(psutil.NoSuchProcess):
                identity = {"user": process.uids().real, "group": process.gids().real, "extra_groups": []}
                done = _run("prlimit", f"--fsize={size}:unlimited", f"--pid={process.pid}", **identity)
                assert done or not process.is_running()


@contextmanager
def small_file_system(folder: Path, megabytes: int) -> Iterator[SmallFileSystem]:
    """Mount one for as long as the context lasts; skips the test where that is not allowed."""
    folder.mkdir(parents=True)
    mounted = os.geteuid() == 0 and _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "almagest", str(folder))
    if not mounted:
        pytest.skip("this process may not mount a small file system")
    try:
        yield SmallFileSystem(folder)
    finally:
        assert _run("umount", str(folder))


def _run(*command: str, **identity: Any) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, **identity).returncode == 0
    except FileNotFoundError:
        return False
