"""A runner that kills itself at a moment that is named: `python -m tests.pipeline.killed_run FILE WORKSPACE MOMENT`."""

from __future__ import annotations

import os
import signal
import sys

from holdfast.catalog.workspace import open_workspace
from holdfast.pipeline.file import read_pipeline
from holdfast.pipeline.plan import plan
from holdfast.pipeline.report import Quiet, TaskReport
from holdfast.pipeline.runner import run_pipeline
from holdfast.spark.stage import Stage


class Mortal(Quiet):
    """Dies by kill -9 when its moment comes: `began`, `task NAME`, `progress NAME`, `ended NAME`."""

    def __init__(self, moment: str) -> None:
        self._moment = moment

    def began(self, run: str, attempt: int) -> None:
        self._now("began")

    def task_began(self, dataset: str, kind: str) -> None:
        self._now(f"task {dataset}")

    def progress(self, dataset: str, done: int, total: int) -> None:
        self._now(f"progress {dataset}")

    def task_ended(self, report: TaskReport) -> None:
        self._now(f"ended {report.dataset}")

    def _now(self, moment: str) -> None:
        if moment == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    file, root, moment = sys.argv[1:]
    workspace = open_workspace(root, tenant="acme", workspace="prod", by="killed")
    settings = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    run_pipeline(plan(read_pipeline(file)), workspace, lambda: Stage.local(settings), run="r1", watcher=Mortal(moment))
