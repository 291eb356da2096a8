"""Permits: the right to publish once, to one chain, against one pointer version (S25).

`PermitIssuer.from_lock(guard)` is the only source (S24).
"""

from __future__ import annotations

from datetime import datetime

from holdfast.clock import format_time
from holdfast.errors import LockLost, PermitRefused
from holdfast.fencing.lock import LockGuard
from holdfast.fencing.token import FencingToken
from holdfast.storage.objects import Version

__all__ = ["PermitIssuer", "PublishPermit"]


class IssuerSeal:
    """Held by this module. Not exported by the package."""

    __slots__ = ()


_SEAL = IssuerSeal()


class PermitIssuer:
    """Issues permits for as long as its lock is held."""

    __slots__ = ("_guard",)

    def __init__(self, guard: LockGuard, *, seal: IssuerSeal) -> None:
        if type(seal) is not IssuerSeal:
            raise TypeError("a PermitIssuer comes from PermitIssuer.from_lock(guard)")
        self._guard = guard

    @classmethod
    def from_lock(cls, guard: LockGuard) -> PermitIssuer:
        if not isinstance(guard, LockGuard):
            raise TypeError(f"permits come from a held lock, not from {type(guard).__name__}")
        guard.check()
        return cls(guard, seal=_SEAL)

    @property
    def guard(self) -> LockGuard:
        return self._guard

    def issue(self, *, chain: str, expected: Version | None) -> PublishPermit:
        """A permit for one publish.

        `expected` is the pointer's version as read; None where the chain has no pointer yet.
        """
        self._guard.check()
        return PublishPermit(issuer=self, chain=chain, expected=expected, seal=_SEAL)


class PublishPermit:
    """Used once. A used, expired or foreign permit is refused."""

    __slots__ = ("_used", "chain", "expected_pointer_version", "expires_at", "issued_at", "issuer")

    def __init__(self, *, issuer: PermitIssuer, chain: str, expected: Version | None, seal: IssuerSeal) -> None:
        if type(seal) is not IssuerSeal:
            raise TypeError("a PublishPermit comes from PermitIssuer.issue(...)")
        self.issuer = issuer
        self.chain = chain
        self.expected_pointer_version = expected
        self.issued_at: datetime = issuer.guard.clock.now()
        self.expires_at: datetime = issuer.guard.record.expires_at
        self._used = False

    @property
    def fencing_token(self) -> FencingToken:
        return self.issuer.guard.token

    @property
    def issuer_resource(self) -> str:
        return self.issuer.guard.resource

    def use(self, *, chain: str) -> FencingToken:
        """Spend the permit on `chain`, or raise PermitRefused."""
        if self._used:
            raise PermitRefused("this permit was used before; ask the lock's issuer for a new one")
        if chain != self.chain:
            raise PermitRefused(f"this permit is for {self.chain!r}, not for {chain!r}")
        if self.expires_at <= self.issuer.guard.clock.now():
            raise PermitRefused(
                f"this permit expired at {format_time(self.expires_at)}; ask the lock's issuer for a new one"
            )
        try:
            self.issuer.guard.check()
        except LockLost as lost:
            raise PermitRefused(f"the lock behind this permit is no longer held ({lost})") from lost
        self._used = True
        return self.fencing_token
