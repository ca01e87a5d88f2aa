"""Processes that the stack starts: remembered well enough that a later run can end them, and nobody else's."""

import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

import psutil

GRACE_SECONDS = 5


@dataclass(frozen=True)
class Recorded:
    """A process as written down: its number is reused by the system, number and moment of birth together are not."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> "Recorded":
        """Write down a process that runs now.

        Raises
        ------
        psutil.NoSuchProcess
            When it has ended already.
        """
        return cls(pid, psutil.Process(pid).create_time())

    def process(self) -> psutil.Process | None:
        """Return the process when it still runs."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    def dump(self) -> dict[str, float]:
        """As JSON has it; `Recorded(**…)` reads it."""
        return asdict(self)


def end(recorded: Iterable[Recorded], *, grace: float = GRACE_SECONDS) -> None:
    """Ask those of the processes that still run to end, and end them after `grace` seconds."""
    processes = list(recorded)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for each in processes:
            if process := each.process():
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        if wait(processes, grace):
            return


def wait(recorded: Iterable[Recorded], seconds: float) -> bool:
    """Wait until none of the processes runs; return whether that came to pass in time.

    One that has ended but that its parent has not asked about yet (a zombie) does not run.
    """
    processes = list(recorded)
    until = time.monotonic() + seconds
    while any(each.process() for each in processes):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
