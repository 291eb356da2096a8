"""Runs: one attempt to publish each. The run record is where a writer and the collector meet (S42).

1. A run is registered before its first byte is written; it claims the keys it may write, so what no run claims and no
   manifest names is garbage by definition.
2. Its record goes `writing` → `failed` or `swept`, by compare-and-swap. Only the collector (and `reconcile`, by the
   same code) writes `swept`.
3. A publisher reads the pointer, then its own record (which must say `writing`), then swaps the pointer at the version
   it read first. The collector writes `swept`, then the pointer. Whichever came first, the other notices.
4. That a run was published is in the pointer's moves, by the very swap that published it; its record needs no mark,
   and a publish no request for one. `committed` is written only where there is no such move (the legacy path) or where
   a sweep is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.chain.handle import ChainHandle
from holdfast.chain.layout import is_below
from holdfast.clock import format_time
from holdfast.codec import Fields, encode_record, format_stamp
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    CorruptRecord,
    HoldfastError,
    ObjectNotFound,
    RunIdInUse,
    RunSwept,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.storage.keys import check_key
from holdfast.storage.objects import Version

__all__ = ["Run", "RunRecord", "RunState", "list_runs", "read_run", "register_run", "swap_run"]


class RunState(StrEnum):
    WRITING = "writing"
    COMMITTED = "committed"
    FAILED = "failed"
    SWEPT = "swept"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What is stored about a run."""

    run_id: str
    attempt: str
    """Unique to one registration: a later run with the same id is another run."""
    state: RunState
    revision: int
    """+1 on every write, so that no two contents are the same bytes."""
    registered_at: datetime
    earliest_sequence: int
    """One above the pointer's sequence when the run began: it cannot have been published before that."""
    lease_expires_at: datetime
    claims: tuple[str, ...]
    """Keys and folders this run may write."""
    pins: tuple[int, ...]
    """Manifest ids whose artifacts this run builds on; the collector keeps them while the run lives."""
    by: str
    note: str = ""
    unknown: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        return encode_record(
            {
                "format": format_stamp("run"),
                "run_id": self.run_id,
                "attempt": self.attempt,
                "state": self.state.value,
                "revision": self.revision,
                "registered_at": format_time(self.registered_at),
                "earliest_sequence": self.earliest_sequence,
                "lease_expires_at": format_time(self.lease_expires_at),
                "claims": list(self.claims),
                "pins": list(self.pins),
                "by": self.by,
                "note": self.note,
                **self.unknown,
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> RunRecord:
        fields = Fields.decode(data, key=key, kind="run")
        state = fields.text("state")
        if state not in RunState.__members__.values():
            raise CorruptRecord(key, f"run state {state!r} is unknown")
        return cls(
            run_id=fields.text("run_id"),
            attempt=fields.text("attempt"),
            state=RunState(state),
            revision=fields.number("revision"),
            registered_at=fields.time("registered_at"),
            earliest_sequence=fields.number("earliest_sequence"),
            lease_expires_at=fields.time("lease_expires_at"),
            claims=fields.texts("claims"),
            pins=fields.numbers("pins"),
            by=fields.text("by"),
            note=fields.text("note"),
            unknown=fields.rest(),
        )


def read_run(handle: ChainHandle, run_id: str) -> tuple[RunRecord, Version] | None:
    """The stored record, or None."""
    key = handle.layout.run_key(run_id)
    try:
        stored = handle.records.get(key)
    except ObjectNotFound:
        return None
    return RunRecord.decode(stored.data, key=key), stored.version


def list_runs(handle: ChainHandle) -> Iterator[tuple[RunRecord, Version]]:
    """All run records. One that cannot be read raises CorruptRecord: the collector must not guess.

    An empty one says nothing and never can: a power cut took what was written without waiting for the disk. Its run
    cannot be published, since its writer cannot read it either.
    """
    for page in handle.records.list(handle.layout.run_prefix):
        for info in page:
            try:
                stored = handle.records.get(info.key)
            except ObjectNotFound:
                continue  # deleted by another collector meanwhile
            if not stored.data:
                continue
            yield RunRecord.decode(stored.data, key=info.key), stored.version


def swap_run(handle: ChainHandle, record: RunRecord, *, expected: Version, durable: bool = True) -> Version:
    """Write the next revision of a record, or raise VersionConflict if anybody else wrote it."""
    key = handle.layout.run_key(record.run_id)
    try:
        return handle.records.swap(key, record.encode(), expected=expected, durable=durable)
    except (VersionConflict, StoreUnavailable):
        found = read_run(handle, record.run_id)
        if found is not None and found[0] == record:  # ours, with its answer lost
            return found[1]
        raise


class Run:
    """A registered run, as its writer holds it."""

    def __init__(self, handle: ChainHandle, record: RunRecord, version: Version, *, lease_s: float) -> None:
        self._handle = handle
        self._record = record
        self._version = version
        self._lease_s = lease_s

    @property
    def run_id(self) -> str:
        return self._record.run_id

    @property
    def record(self) -> RunRecord:
        return self._record

    def artifact_key(self, name: str) -> str:
        """Where this run may put a file called `name`."""
        return self._handle.layout.artifact_key(self.run_id, self._record.attempt, name)

    def require_writing(self) -> None:
        """Read the record; raise RunSwept unless it still says that this very run is writing."""
        found = read_run(self._handle, self.run_id)
        if found is None or found[0].attempt != self._record.attempt or found[0].state is RunState.SWEPT:
            raise RunSwept(f"run {self.run_id!r} was declared abandoned by the collector; start a new run")
        self._record, self._version = found
        if self._record.state is not RunState.WRITING:
            raise RunIdInUse(f"run {self.run_id!r} is already {self._record.state.value}; start a new run")

    def renew(self) -> None:
        """Push the lease out, or raise RunSwept."""
        self._update(lease_expires_at=self._handle.clock.now() + timedelta(seconds=self._lease_s))

    def claim(self, *keys: str) -> None:
        """Claim more keys or folders. Must return before anything is written to them."""
        for key in keys:
            check_key(key)
        self._update(claims=(*self._record.claims, *keys))

    def fail(self, note: str) -> None:
        """Say that this run will not be published, so that the collector need not wait for its lease."""
        self._update(state=RunState.FAILED, note=note)

    def give_up(self, error: BaseException) -> None:
        """Fail because of an error that is on its way up. If even that fails, the lease runs out by itself."""
        try:
            self.fail(f"{type(error).__name__}: {error}"[:500])
        except HoldfastError:
            return

    def _update(self, **changes: object) -> None:
        reason = ""
        for attempt in range(self._handle.attempts_max):
            record = replace(self._record, revision=self._record.revision + 1, **changes)  # type: ignore[arg-type]
            try:
                self._version = swap_run(self._handle, record, expected=self._version)
                self._record = record
                return
            except StoreUnavailable as error:
                reason = str(error)
            except VersionConflict as error:
                reason = str(error)
                self.require_writing()
            self._handle.back_off(attempt)
        raise StoreUnavailable(
            f"run {self.run_id!r} could not be updated in {self._handle.attempts_max} attempts: {reason}"
        )

    def mark_committed(self) -> None:
        """For the legacy path, which keeps no log: the only trace that this run was published."""
        record = replace(self._record, state=RunState.COMMITTED, revision=self._record.revision + 1)
        self._version = swap_run(self._handle, record, expected=self._version, durable=False)
        self._record = record


def register_run(
    handle: ChainHandle,
    *,
    run_id: str,
    by: str,
    lease_s: float,
    earliest_sequence: int = 0,
    claims: tuple[str, ...] = (),
    pins: tuple[int, ...] = (),
) -> Run:
    """Create the run record; raise RunIdInUse if the id was ever registered before."""
    now = handle.clock.now()
    for claim in claims:
        if not any(is_below(check_key(claim), prefix) for prefix in handle.layout.artifact_prefixes):
            places = ", ".join(handle.layout.artifact_prefixes)
            raise BadInput(f"claim {claim!r} is outside of where this chain keeps artifacts ({places})")
    attempt_token = handle.token()
    record = RunRecord(
        run_id=run_id,
        attempt=attempt_token,
        state=RunState.WRITING,
        revision=0,
        registered_at=now,
        earliest_sequence=earliest_sequence,
        lease_expires_at=now + timedelta(seconds=lease_s),
        claims=claims or (handle.layout.run_artifact_prefix(run_id, attempt_token),),
        pins=pins,
        by=by,
    )
    key = handle.layout.run_key(run_id)
    reason = ""
    for attempt in range(handle.attempts_max):
        try:
            # Not durable: were it lost in a power cut, its files would be unclaimed, hence garbage, and the run
            # unpublishable.
            version = handle.records.put_new(key, record.encode(), durable=False)
            return Run(handle, record, version, lease_s=lease_s)
        except (AlreadyExists, StoreUnavailable) as error:
            reason = str(error)
        try:
            found = read_run(handle, run_id)
        except StoreUnavailable:
            found = None
        if found is not None and found[0].attempt == record.attempt:
            return Run(handle, *found, lease_s=lease_s)
        if found is not None:
            raise RunIdInUse(
                f"run id {run_id!r} was used before (by {found[0].by!r}, now {found[0].state.value}); choose another"
            ) from None
        handle.back_off(attempt)
    raise StoreUnavailable(f"run {run_id!r} could not be registered in {handle.attempts_max} attempts: {reason}")
