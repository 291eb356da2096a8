"""Object-store servers for tests: on loopback, without root or containers, gone when the test process is.

Every server says in `environment` which variables make `open_store` talk to it: tests go the way that users go.
Where a server is not installed `ServerUnavailable` says what is missing; a test turns that into a skip.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.testing.signing import send, sign_aws, sign_azure

__all__ = [
    "Server",
    "ServerFailed",
    "ServerUnavailable",
    "free_port",
    "start_azurite",
    "start_ministack",
    "start_rclone",
    "start_seaweedfs",
]

_READY_POLLS_MAX = 600
_READY_PAUSE_S = 0.05
_STOP_WAIT_S = 5.0
_INSTALL_WAIT_S = 180.0
_AZURE_ACCOUNT = "holdfasttest"


class ServerUnavailable(Exception):
    """The server is not installed here. The message says what is missing; a test turns it into a skip."""


class ServerFailed(Exception):
    """The server is installed and did not work. The message has the end of its log; a test must fail."""


@dataclass(slots=True, kw_only=True)
class Server:
    """A running server."""

    name: str
    endpoint: str
    environment: Mapping[str, str]
    """Variables that point the cloud's client here."""
    log_path: Path
    process: subprocess.Popen[bytes]

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket or container; one that exists is as good."""
        clock = SystemClock()
        url = f"{self.endpoint}/{bucket}"
        if self.name == "azurite":
            url += "?restype=container"
            account, key = self.environment["AZURE_STORAGE_ACCOUNT_NAME"], self.environment["AZURE_STORAGE_ACCOUNT_KEY"]
            headers = sign_azure("PUT", url, account=account, key=key, clock=clock)
        else:
            key_id, secret = self.environment["AWS_ACCESS_KEY_ID"], self.environment["AWS_SECRET_ACCESS_KEY"]
            headers = sign_aws("PUT", url, key_id=key_id, secret=secret, clock=clock)
        status, body = send("PUT", url, headers=headers)
        if status not in {200, 201, 409}:
            raise ServerFailed(f"{self.name} did not create bucket {bucket!r}: {status} {body[:200]!r}")

    def stop(self) -> None:
        """End the server and everything it started."""
        atexit.unregister(self.stop)
        _end(self.process)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_ministack(directory: Path) -> Server:
    """The main S3 server: honours conditions under races and enforces IAM policies."""
    port = free_port()
    settings = {
        "AUTH": "true",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "SERVICES": "s3,iam,sts",
    }
    return _start("ministack", [_program("ministack")], port, _aws(port, "test", "test"), directory, settings)


def start_seaweedfs(directory: Path, *, randomness: Randomness | None = None) -> Server:
    """A second, independent S3 server. Slow under many racers: use at most 8."""
    port = free_port()
    secret = f"{(randomness or SystemRandomness()).bits(128):032x}"
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / "data"
    data.mkdir()
    config = directory / "s3.json"
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": "tests", "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config.write_text(json.dumps({"identities": [identity]}))
    command = [_program("weed"), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}"]
    # Its default for the second port of each part is the first plus 10,000, which may not exist.
    for part in ("master", "volume", "filer"):
        command += [f"-{part}.port={free_port()}", f"-{part}.port.grpc={free_port()}"]
    command += [f"-s3.port.grpc={free_port()}"]
    # Further services on fixed ports would keep a second server from starting; and tests report to nobody.
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    command += ["-volume.max=20", "-master.volumeSizeLimitMB=64", "-s3", f"-s3.port={port}", f"-s3.config={config}"]
    return _start("seaweedfs", command, port, _aws(port, "tests", secret), directory, {})


def start_rclone(directory: Path, *, randomness: Randomness | None = None) -> Server:
    """A server that accepts conditional writes and ignores the conditions: the one that must be refused."""
    port = free_port()
    secret = f"{(randomness or SystemRandomness()).bits(128):032x}"
    data = directory / "data"
    data.mkdir(parents=True)
    command = [_program("rclone"), "serve", "s3", f"--addr=127.0.0.1:{port}", f"--auth-key=tests,{secret}", str(data)]
    return _start("rclone", command, port, _aws(port, "tests", secret), directory, {})


def start_azurite(directory: Path, *, randomness: Randomness | None = None) -> Server:
    """Microsoft's own emulator of Azure's blob service, from npm."""
    entry = _installed_azurite()
    node = shutil.which("node")
    if node is None:
        raise ServerUnavailable("azurite needs node, which is not installed")
    port = free_port()
    key = base64.b64encode((randomness or SystemRandomness()).bits(512).to_bytes(64, "big")).decode()
    command = [node, str(entry), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    command += ["--skipApiVersionCheck", "--location", str(directory / "data")]
    environment = {
        "AZURE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ACCOUNT_KEY": key,
        "AZURE_STORAGE_ACCOUNT_NAME": _AZURE_ACCOUNT,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}",
    }
    accounts = {"AZURITE_ACCOUNTS": f"{_AZURE_ACCOUNT}:{key}"}
    server = _start("azurite", command, port, environment, directory, accounts)
    server.endpoint = environment["AZURE_STORAGE_ENDPOINT"]
    return server


def _aws(port: int, key_id: str, secret: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": key_id,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_SECRET_ACCESS_KEY": secret,
    }


def _program(name: str) -> str:
    """A program from the environment of this Python, or from the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ServerUnavailable(f"{name} is not installed")
    return found


def _installed_azurite() -> Path:
    """Azurite's program, installed once into the user's cache by npm."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests" / "azurite"
    entry = cache / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if entry.exists():
        return entry
    npm = shutil.which("npm")
    if npm is None:
        raise ServerUnavailable("azurite is not installed and there is no npm to install it with")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "install.lock").open("w") as lock:
        # Test workers start together: one installs, the others wait here and find it done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not entry.exists():
            command = [npm, "install", "--prefix", str(cache), "--no-audit", "--no-fund", "azurite@3.37"]
            try:
                done = subprocess.run(command, capture_output=True, timeout=_INSTALL_WAIT_S, check=False)
            except subprocess.TimeoutExpired as error:
                raise ServerUnavailable(f"npm did not install azurite within {_INSTALL_WAIT_S:.0f} s") from error
            if done.returncode != 0 or not entry.exists():
                raise ServerUnavailable(f"npm could not install azurite: {done.stderr[-300:]!r}")
    return entry


def _start(
    name: str,
    command: Sequence[str],
    port: int,
    environment: Mapping[str, str],
    directory: Path,
    settings: Mapping[str, str],
) -> Server:
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / f"{name}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A group of its own, so that what the server starts ends with it.
            start_new_session=True,
        )
    server = Server(
        name=name, endpoint=f"http://127.0.0.1:{port}", environment=environment, log_path=log_path, process=process
    )
    atexit.register(server.stop)
    try:
        _wait_until_ready(server, port, SystemClock())
    except ServerFailed:
        server.stop()
        raise
    return server


def _wait_until_ready(server: Server, port: int, clock: Clock) -> None:
    for _ in range(_READY_POLLS_MAX):
        if server.process.poll() is not None:
            raise ServerFailed(f"{server.name} ended at once: {_tail(server.log_path)}")
        if _answers(port):
            return
        clock.sleep(_READY_PAUSE_S)
    raise ServerFailed(f"{server.name} did not answer: {_tail(server.log_path)}")


def _answers(port: int) -> bool:
    """Whether an HTTP server answers, with whatever status: accepting a connection is not yet being ready."""
    try:
        send("GET", f"http://127.0.0.1:{port}/")
    except OSError:
        return False
    return True


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-400:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the server's group. It has nothing to save, and some take seconds to say goodbye."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_STOP_WAIT_S)
