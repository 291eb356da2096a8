"""Compactor services that kill themselves: `python -m tests.service.dying_service ROOT`.

Everything is imported once; each service is a fork of that, so that many can be tried. A line on stdin,

    {"workspace": "w7", "dies_at": 7}

starts one that kills itself before the 7th write of its fold. What it only reads changes nothing, so these are all the
moments that there are. A line on stdout tells its address and its process id, another how it ended.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from holdfast.catalog import Workspace
from holdfast.catalog.compactor import Compactor
from holdfast.service.compactor import CompactorService
from holdfast.service.process import Listen, serve
from holdfast.storage import LocalStore, MemoryStore
from holdfast.testing.faulty import InterceptedStore, Operation
from tests.service.support import table, tell

_T = TypeVar("_T")
LOCK_TTL_S = 0.3
WRITES = frozenset({"put_new", "swap", "upload"})


class DyingStore(InterceptedStore):
    """Kills the process before one write of a fold, as nothing else can: SIGKILL."""

    def __init__(self, root: str, dies_at: int) -> None:
        super().__init__(LocalStore(root, durable=False))
        self._dies_at = dies_at
        self._folding = itertools.count(1)

    def _around(self, operation: Operation, effect: Callable[[], _T]) -> _T:
        is_fold = operation.kind in WRITES and threading.current_thread().name.startswith("holdfast-fold")
        if is_fold and next(self._folding) == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return effect()


def run(root: str, name: str, dies_at: int) -> None:
    workspace = Workspace(root=DyingStore(root, dies_at), tenant="acme", name=name, by="service")
    service = CompactorService(workspace, lock_ttl_s=LOCK_TTL_S)
    serve(service, tokens=None, listen=Listen(port=0), ready=lambda url: say({"url": url, "pid": os.getpid()}))


def say(line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def warm_up() -> None:
    """Import all that a service imports when it is first used."""
    for name in ("uvicorn.lifespan.on", "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto"):
        importlib.import_module(name)
    workspace = Workspace(root=MemoryStore(), tenant="acme", name="warm", by="service")
    workspace.initialize()
    Compactor(workspace, "catalog").compact(tell(workspace, table("a")))


def main(root: str) -> None:
    warm_up()
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                run(root, asked["workspace"], asked["dies_at"])
            finally:
                os._exit(0)
        say({"ended": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])})


if __name__ == "__main__":
    main(sys.argv[1])
