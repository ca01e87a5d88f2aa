"""What a stack keeps in its directory: its lock, its lasting keys, and what runs now."""

import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.local.errors import StackError
from infra.local.keys import Keys
from infra.local.processes import Recorded, end


@dataclass(frozen=True)
class Running:
    """What a running stack tells of itself; `key` is None where a real project's keys are its owner's business."""

    url: str
    key: str | None
    supabase_url: str
    supabase_key: str
    database_url: str
    jwt_secret: str
    pid: int


class StateDirectory:
    """The files of one stack.

    `stack.json` is there while the stack serves; `run.json` lists its processes, for whoever has to clear up after it;
    `project.json` outlives it and holds the project's keys and the owner's API key. All are private to their owner.

    Parameters
    ----------
    path
        ALMAGEST_DIR.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.logs = self.path / "logs"
        self._running = self.path / "stack.json"
        self._run = self.path / "run.json"
        self._project = self.path / "project.json"

    def make(self) -> None:
        """Make the directories.

        Raises
        ------
        StackError
            When no directory can be there.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP):
                raise
            raise StackError(
                f"{self.path} cannot be made ({error.strerror}); set ALMAGEST_DIR to another directory."
            ) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory for one stack; the system lets go of it however the process ends.

        Raises
        ------
        StackError
            When another stack holds it.
        """
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackError(self._already()) from None
            yield

    def _already(self) -> str:
        supervisor = self.supervisor()
        by = f" (pid {supervisor.pid})" if supervisor else ""
        return (
            f"A stack is running in {self.path} already{by}; use that one, end it with `almagest stack stop`, "
            "or set ALMAGEST_DIR and ALMAGEST_PORT for another beside it."
        )

    def running(self) -> Running | None:
        """Return what runs now; None when nothing does."""
        found = _read(self._running)
        if found is None or self.supervisor() is None:
            return None
        return Running(**found)

    def announce(self, running: Running) -> None:
        """Let others know that the stack serves."""
        _write(self._running, asdict(running))

    def supervisor(self) -> Recorded | None:
        """Return the process that holds the stack together, when it lives."""
        found = _read(self._run)
        if not found:
            return None
        recorded = Recorded(**found["supervisor"])
        return recorded if recorded.process() else None

    def record(self, children: Iterable[int] = ()) -> None:
        """Write down this process and its children."""
        _write(
            self._run,
            {
                "supervisor": Recorded.of(os.getpid()).dump(),
                "children": [Recorded.of(pid).dump() for pid in children],
            },
        )

    def clear(self) -> None:
        """End what a run left behind, and forget the run."""
        found = _read(self._run)
        if found:
            end(Recorded(**child) for child in found["children"])
        self._running.unlink(missing_ok=True)
        self._run.unlink(missing_ok=True)

    def keys(self) -> Keys:
        """Return the project's keys, drawn on first use."""
        project = _read(self._project) or {}
        if "secret" not in project:
            project |= asdict(Keys.create())
            _write(self._project, project)
        return Keys(project["secret"], project["publishable"], project["jwt_secret"])

    def note(self, name: str) -> str | None:
        """Return what `keep_note` kept in an earlier run."""
        found = (_read(self._project) or {}).get(name)
        return None if found is None else str(found)

    def keep_note(self, name: str, value: str) -> None:
        """Keep a word for later runs."""
        _write(self._project, (_read(self._project) or {}) | {name: value})


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replace a file at once, so that a reader sees the old content or the new."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.replace(path)
