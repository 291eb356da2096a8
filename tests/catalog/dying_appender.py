"""A process that kills itself while it appends: `python -m tests.catalog.dying_appender ROOT REQUEST before|after`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

from holdfast.catalog import Workspace
from holdfast.storage import LocalStore
from holdfast.testing.faulty import InterceptedStore, Operation
from tests.catalog.auditing import said

_T = TypeVar("_T")


class DyingStore(InterceptedStore):
    """Kills the process at one request, before or after its effect, as nothing else can: SIGKILL."""

    def __init__(self, root: str, request: int, when: str) -> None:
        super().__init__(LocalStore(root))
        self._request = request
        self._when = when

    def _around(self, operation: Operation, effect: Callable[[], _T]) -> _T:
        is_it = operation.serial == self._request
        if is_it and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = effect()
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def main(root: str, request: str, when: str) -> None:
    workspace = Workspace(root=DyingStore(root, int(request), when), tenant="acme", name="prod", by="dying")
    workspace.ledger("catalog").append(said("sales"), idempotency_key="k")


if __name__ == "__main__":
    main(*sys.argv[1:])
