"""Who is handed which capabilities. The table is in `holdfast.storage.capabilities`.

The clouds' policies say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

from holdfast.errors import BadInput
from holdfast.storage.capabilities import (
    DatasetPut,
    Deleter,
    LedgerPut,
    Lister,
    LockSwap,
    ManifestSwap,
    MetadataHead,
    Reader,
    StatePut,
)
from holdfast.storage.objects import ObjectStore

__all__ = [
    "AntiEntropyCapabilities",
    "ApiCapabilities",
    "Capabilities",
    "CollectorCapabilities",
    "FastPathCapabilities",
    "PipelineCapabilities",
    "ReaderCapabilities",
    "grant",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCapabilities:
    """The API writes events and locks. It cannot publish."""

    ledger: LedgerPut
    lock: LockSwap
    read: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCapabilities:
    """A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata."""

    data: DatasetPut
    ledger: LedgerPut
    lock: LockSwap
    head: MetadataHead
    read: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPathCapabilities:
    """The compactor that publishes. It is told what to fold and cannot list."""

    state: StatePut
    manifest: ManifestSwap
    head: MetadataHead
    read: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class AntiEntropyCapabilities:
    """The compactor's watchman. It finds events that were never folded and writes nothing."""

    ledger: Lister
    read: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderCapabilities:
    """Readers read."""

    read: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorCapabilities:
    """The one who may delete."""

    delete: Deleter


Capabilities: TypeAlias = (
    ApiCapabilities
    | PipelineCapabilities
    | FastPathCapabilities
    | AntiEntropyCapabilities
    | ReaderCapabilities
    | CollectorCapabilities
)


_PRINCIPALS = ("api", "pipeline", "compactor-fastpath", "compactor-antientropy", "reader", "collector")


@overload
def grant(store: ObjectStore, principal: Literal["api"]) -> ApiCapabilities: ...
@overload
def grant(store: ObjectStore, principal: Literal["pipeline"]) -> PipelineCapabilities: ...
@overload
def grant(store: ObjectStore, principal: Literal["compactor-fastpath"]) -> FastPathCapabilities: ...
@overload
def grant(store: ObjectStore, principal: Literal["compactor-antientropy"]) -> AntiEntropyCapabilities: ...
@overload
def grant(store: ObjectStore, principal: Literal["reader"]) -> ReaderCapabilities: ...
@overload
def grant(store: ObjectStore, principal: Literal["collector"]) -> CollectorCapabilities: ...
def grant(store: ObjectStore, principal: str) -> Capabilities:
    """What this principal may do in the workspace that `store` is scoped to."""
    if principal == "api":
        return ApiCapabilities(ledger=LedgerPut(store), lock=LockSwap(store), read=Reader(store))
    if principal == "pipeline":
        return PipelineCapabilities(
            data=DatasetPut(store),
            ledger=LedgerPut(store),
            lock=LockSwap(store),
            head=MetadataHead(store),
            read=Reader(store),
        )
    if principal == "compactor-fastpath":
        return FastPathCapabilities(
            state=StatePut(store), manifest=ManifestSwap(store), head=MetadataHead(store), read=Reader(store)
        )
    if principal == "compactor-antientropy":
        return AntiEntropyCapabilities(ledger=Lister(store, "ledger"), read=Reader(store, ("state", "l0", "manifests")))
    if principal == "reader":
        return ReaderCapabilities(read=Reader(store))
    if principal == "collector":
        return CollectorCapabilities(delete=Deleter(store))
    raise BadInput(
        f"{principal!r} is no principal: api, pipeline, compactor-fastpath, compactor-antientropy, reader, collector"
    )
