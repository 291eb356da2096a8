"""Tokens and permits come from locks. Nobody else can make one."""

from __future__ import annotations

from holdfast.fencing import FencingToken, LockGuard, LockRecord, PermitIssuer, PublishPermit


def use(guard: LockGuard, record: LockRecord, issuer: PermitIssuer) -> None:
    PermitIssuer.from_lock(guard).issue(chain="x", expected=None)
    FencingToken(7)  # expect: call-arg
    FencingToken(7, seal=None)  # expect: arg-type
    FencingToken(7, seal=object())  # expect: arg-type
    PermitIssuer(guard)  # expect: call-arg
    PermitIssuer(guard, seal=None)  # expect: arg-type
    PermitIssuer.from_lock(record)  # expect: arg-type
    PermitIssuer.from_lock(None)  # expect: arg-type
    PublishPermit(issuer=issuer, chain="x", expected=None)  # expect: call-arg
    PublishPermit(issuer=issuer, chain="x", expected=None, seal=None)  # expect: arg-type
    issuer.issue(chain="x", expected="v1")  # expect: arg-type
    guard.token = guard.token  # expect: misc
    guard.token.sequence = 9  # expect: misc
