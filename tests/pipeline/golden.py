"""Pipeline files of the format's first version: good ones with their plans, bad ones with what is said of them.

They stay for ever: what one release reads, every later one reads alike. A new key gets a new file. After a message is
worded better, `python -m tests.pipeline.golden` writes down what is said now; plans are only ever added.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from holdfast.pipeline.file import inspect_pipeline, read_pipeline
from holdfast.pipeline.plan import plan

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "pipeline" / "v1"
GOOD = sorted((FOLDER / "good").glob("*.toml"))
BAD = sorted((FOLDER / "bad").glob("*.toml"))


def planned(path: Path) -> dict[str, object]:
    """The plan of a file, as it is kept beside it."""
    made = plan(read_pipeline(path))
    return {
        "tasks": [f"{one.level} {one.id}: {', '.join(one.reads)}".rstrip(": ") for one in made.tasks],
        "needs": {name: ", ".join(needs) for name, needs in made.needs.items()},
        "steps": {one.name: {"sql": one.sql, "arguments": {k: str(v) for k, v in one.arguments.items()}}
                  for one in made.steps},
        "fingerprint": made.fingerprint,
        "fingerprints": dict(made.fingerprints),
    }  # fmt: skip


def said(path: Path) -> list[str]:
    """What is wrong with a file, as somebody reads it who stands beside it."""
    with contextlib.chdir(path.parent):
        return [str(one) for one in inspect_pipeline(path.name).problems]


def plan_path(path: Path) -> Path:
    return path.with_suffix(".plan.json")


def said_path(path: Path) -> Path:
    return path.with_suffix(".txt")


def write() -> None:
    """Plans that are not there yet, and everything that is said."""
    for path in GOOD:
        if not plan_path(path).exists():
            plan_path(path).write_text(json.dumps(planned(path), indent=1) + "\n", encoding="utf-8")
    for path in BAD:
        said_path(path).write_text("".join(f"{one}\n" for one in said(path)), encoding="utf-8")


if __name__ == "__main__":
    write()
