"""What an error is over HTTP: a status, and a document that says the same as the error does in a program.

    {"error": "LockLost", "message": "the ticket is not that of who holds lock …"}

Where an error is made of more than words, `arguments` are what it is made of. The client makes the same error of it
(`holdfast.catalog.remote_compactor`).
"""

from __future__ import annotations

import inspect

from holdfast.errors import (
    BadInput,
    Conflict,
    Damaged,
    Fenced,
    HoldfastError,
    LimitReached,
    NotFound,
    ObjectNotFound,
    ScopeEscape,
    StoreDenied,
    StoreError,
    StoreFull,
)
from holdfast.service.notifications import QueueFull

__all__ = ["STATUSES", "document_of", "retry_after_of", "status_of"]

STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (QueueFull, 429),
    (LimitReached, 413),
    (ScopeEscape, 422),
    (BadInput, 422),
    (NotFound, 404),
    (Conflict, 409),
    (Fenced, 409),
    (Damaged, 500),
    (StoreFull, 507),
    (StoreDenied, 502),
    (StoreError, 503),
)
"""The first that fits."""
_RETRY_AFTER_S = 1


def status_of(error: Exception) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def document_of(error: Exception) -> dict[str, object]:
    """What happened, and what to do."""
    if not isinstance(error, HoldfastError):
        return {
            "error": "Unforeseen",
            "message": f"unforeseen {type(error).__name__}; the compactor's log says where, please report it",
        }
    arguments: dict[str, object] = {}
    if "__init__" in vars(type(error)) and not isinstance(error, QueueFull):
        arguments["arguments"] = list(error.__reduce__()[1])
    message = " ".join(str(error).split())
    if isinstance(error, ObjectNotFound):
        message = f"the event {error.key!r} is not in the ledger; check the path: nothing was published"
    if type(error) is not BadInput and ";" not in message and "`" not in message:
        _, _, advice = " ".join((inspect.getdoc(type(error)) or "").split()).partition(". ")
        message = f"{message.rstrip('.')}. {advice}".rstrip()
    return {"error": type(error).__name__, "message": message, **arguments}


def retry_after_of(error: Exception) -> int | None:
    """Seconds to wait, where that is all there is to do."""
    if isinstance(error, QueueFull):
        return error.retry_after_s
    return _RETRY_AFTER_S if status_of(error) == 503 else None
