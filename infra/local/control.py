"""Starting and stopping a stack from outside: what another process than its supervisor does."""

import os
import subprocess
import sys
import time

from almagest.settings import Settings
from infra.local import ROOT
from infra.local.errors import StackError, disk_faults
from infra.local.postgres import Postgres
from infra.local.processes import end
from infra.local.state import Running, StateDirectory

STOP_SECONDS = 30


def start_detached(settings: Settings, *options: str) -> Running:
    """Start a stack that outlives this process, and return when it serves; `options` are the supervisor's.

    Raises
    ------
    StackError
        With the sentence that the stack ended with.
    """
    state = StateDirectory(settings.directory)
    with disk_faults(state.path):
        state.make()
        log = state.logs / "stack.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "infra.local.stack", *options],
                cwd=ROOT,
                env=os.environ | {"ALMAGEST_DIR": str(state.path)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            while process.poll() is None:
                running = state.running()
                if running and running.pid == process.pid:
                    return running
                time.sleep(0.05)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    said = log.read_text(errors="replace").strip().splitlines()
    raise StackError(said[-1] if said else f"The stack ended without a word; see {log}.")


def stop(settings: Settings) -> bool:
    """Stop the stack of a directory and what a killed one left; return whether one ran."""
    state = StateDirectory(settings.directory)
    supervisor = state.supervisor()
    if supervisor is not None:
        end([supervisor], grace=STOP_SECONDS)
    if state.path.exists():
        with disk_faults(state.path), state.lock():
            state.clear()
            Postgres(state.path / "postgres").stop()
    return supervisor is not None
