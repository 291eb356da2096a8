"""A build from its beginning to its one commit, whatever its files are: the lock, the run, and the leases of both.

    with building(chain, run_id=…) as build:
        …                                  # files are written, here or elsewhere
        committed = build.publish(draft)

Whatever goes wrong before the commit leaves a run marked as failed, files that the collector may take, and a pointer
that nobody moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from holdfast.chain.chain import Chain
from holdfast.chain.commit import Committed, Superseded, Unknown
from holdfast.chain.manifest import Manifest, ManifestDraft
from holdfast.chain.runs import Run
from holdfast.errors import Conflict, StoreUnavailable
from holdfast.fencing import KeepAlive, LockGuard

__all__ = ["ChainBuild", "building"]

LOCK_TTL_S = 60.0
LEASE_S = 3600.0


class ChainBuild:
    """A registered run that holds the chain's lock."""

    def __init__(
        self, chain: Chain, run: Run, guard: LockGuard, leases: ExitStack, checks: Sequence[KeepAlive]
    ) -> None:
        self.chain = chain
        self.run = run
        self._guard = guard
        self._leases = leases
        self._checks = checks
        self.is_undecided = False
        """Whether the commit may or may not have happened: then the run must not be called failed."""

    def check(self) -> None:
        """LockLost once this build can no longer be published; costs no request. Ask it between steps of long work."""
        for lease in self._checks:
            lease.check()

    def publish(self, draft: ManifestDraft, *, why: str = "", base: Manifest | None = None) -> Committed:
        """The one commit of this build, or the error that says what became of it."""
        self.check()
        self._leases.close()  # a lease that is renewed by another thread could move under the commit's feet
        permit = self.chain.permit(self._guard)
        match self.chain.publish(draft, run=self.run, permit=permit, why=why, base=base):
            case Committed() as committed:
                return committed
            case Superseded(winner=winner):
                raise Conflict(
                    f"another writer published first ({winner}); nothing of this build is visible: build again"
                )
            case Unknown(commit_ulid=ulid, reason=reason):
                self.is_undecided = True
                raise StoreUnavailable(
                    f"whether the commit happened is not known yet ({reason}); ask `holdfast status {ulid}` "
                    "before building again"
                )


@contextmanager
def building(
    chain: Chain,
    *,
    run_id: str | None = None,
    operation: str = "build",
    base: Manifest | None = None,
    admit: Callable[[], None] | None = None,
) -> Iterator[ChainBuild]:
    """Hold the chain's lock and a registered run for the length of a build.

    `admit` is asked once the lock is held and before anything is registered; if it raises, nothing has begun.
    """
    with chain.lock(operation=operation, ttl_s=LOCK_TTL_S) as guard:
        if admit is not None:
            admit()
        run = chain.begin_run(run_id, base=base, lease_s=LEASE_S)
        with ExitStack() as leases:
            checks = [
                leases.enter_context(KeepAlive(lambda: guard.extend(LOCK_TTL_S), every_s=LOCK_TTL_S / 3)),
                leases.enter_context(KeepAlive(run.renew, every_s=LEASE_S / 3)),
            ]
            build = ChainBuild(chain, run, guard, leases, checks)
            try:
                yield build
            except BaseException as error:
                leases.close()
                if not build.is_undecided:
                    run.give_up(error)
                raise
