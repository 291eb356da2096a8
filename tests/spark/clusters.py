"""Real Spark clusters on loopback, from the Python package alone; and a way to run a script on one in another process.

A process has one kind of Spark: what runs on a cluster or over Spark Connect runs in a process of its own and prints
what it found as one line of JSON.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyspark

from holdfast.clock import SystemClock
from holdfast.spark.java import find_java_home
from holdfast.testing.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 600.0
_POLLS_MAX = 1_200


def environment(**more: str) -> dict[str, str]:
    """Variables for processes of a cluster: this Python, a Java, and where stores that fail are."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    home = find_java_home()
    if home is not None:
        variables["JAVA_HOME"] = home
    path = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))
    return {
        **variables,
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **more,
    }


@contextlib.contextmanager
def standalone(scratch: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """A master and two workers of one core each, on two addresses, as if they were two machines; the master's URL."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        log = _start(
            stack, scratch, "master", variables, "master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", "0",
        )  # fmt: skip
        _wait_for(log, "I have been elected leader", 1)
        for host in ("127.0.0.1", "127.0.0.2"):
            _start(
                stack, scratch, f"worker-{host}", {**variables, "SPARK_LOCAL_IP": host}, "worker.Worker",
                "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(scratch / f"work-{host}"), master,
            )  # fmt: skip
        _wait_for(log, "Registering worker", 2)
        yield master


def _start(
    stack: contextlib.ExitStack, scratch: Path, name: str, variables: Mapping[str, str], module: str, *arguments: str
) -> Path:
    log = scratch / f"{name}.log"
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(program), f"org.apache.spark.deploy.{module}", *arguments],
            cwd=scratch, env=dict(variables), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    stack.callback(_end, process)
    return log


def _wait_for(log: Path, text: str, times: int) -> None:
    clock = SystemClock()
    for _ in range(_POLLS_MAX):
        if log.read_text(errors="replace").count(text) >= times:
            return
        clock.sleep(0.1)
    raise AssertionError(f"no {text!r} in {log}: {log.read_text(errors='replace')[-500:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part of the cluster and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def run_script(module: str, scratch: Path, variables: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Run `python -m module` and read the JSON that is its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, str(scratch), *arguments],
        cwd=scratch, env=dict(variables), capture_output=True, text=True, timeout=WAIT_S, check=False,
        start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, Any] = orjson.loads(done.stdout.strip().splitlines()[-1])
    return found
