"""A compactor's own lock without its politeness: it does not look whether somebody changes the domain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.catalog import compactor_lock
from holdfast.chain import Chain
from holdfast.fencing import LockGuard


@contextmanager
def rude_lock(chain: Chain) -> Iterator[LockGuard]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compactor_lock, "_require_free", lambda _: None)
        with compactor_lock.compactor_lock(chain, "catalog") as guard:
            yield guard
