"""Locks that hand out fencing tokens, and permits that only a lock can issue."""

from holdfast.fencing.keepalive import KeepAlive
from holdfast.fencing.lock import LockGuard, LockRecord, acquire_lock, borrow_lock, read_lock
from holdfast.fencing.permit import PermitIssuer, PublishPermit
from holdfast.fencing.token import FencingToken

__all__ = [
    "FencingToken",
    "KeepAlive",
    "LockGuard",
    "LockRecord",
    "PermitIssuer",
    "PublishPermit",
    "acquire_lock",
    "borrow_lock",
    "read_lock",
]
