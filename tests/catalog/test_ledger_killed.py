"""An appender killed by the system, at each of its writes: the next one with the same key finishes what it left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.catalog import Workspace
from holdfast.errors import IdempotencyConflict
from holdfast.storage import LocalStore
from tests.catalog.auditing import audit, keys_below, said, told

ROOT = Path(__file__).resolve().parents[2]
SWAP, CLAIM, EVENT = 4, 5, 6
"""The requests of a first append that write."""
WAIT_MAX_S = 60


@pytest.mark.parametrize(
    "request_number, when, left",
    [
        (SWAP, "after", (0, 0)),
        (CLAIM, "before", (0, 0)),
        (CLAIM, "after", (1, 0)),
        (EVENT, "before", (1, 0)),
        (EVENT, "after", (1, 1)),
    ],
)
def test_an_append_that_was_killed_is_finished_once_by_whoever_has_its_key(
    tmp_path: Path, request_number: int, when: str, left: tuple[int, int]
) -> None:
    """C13, C14: SIGKILL on a file system; before it is finished the key already stands for its content."""
    workspace = Workspace(root=LocalStore(tmp_path / "root"), tenant="acme", name="prod")
    workspace.initialize()
    command = [sys.executable, "-m", "tests.catalog.dying_appender", str(tmp_path / "root"), str(request_number), when]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=WAIT_MAX_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (len(keys_below(workspace.store, "ledger/claims/catalog")), len(told(workspace.store))) == left
    ledger = workspace.ledger("catalog")
    if left[0]:
        with pytest.raises(IdempotencyConflict):
            ledger.append(said("other"), idempotency_key="k")
    receipts = [ledger.append(said("sales"), idempotency_key="k") for _ in range(2)]
    assert [receipt.duplicate for receipt in receipts] == [bool(left[0]), True]
    assert {receipt.position for receipt in receipts} == {1 if left[0] else 2}
    assert [event["source"] for event in told(workspace.store)] == ["dying" if left[0] else workspace.by]
    assert audit(workspace.store) == []
