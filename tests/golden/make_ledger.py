"""Makes the golden ledger: one event of every type with every field, one with none but the required, and the counters.

python -m tests.golden.make_ledger v2

Kept for ever, like the records (see `tests/golden/make.py`): later releases must read each event as it was meant, say
the same of it byte for byte, and give it the same idempotency key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from pathlib import Path

from holdfast.catalog import EventDraft, Payload, Workspace
from holdfast.catalog.payload import Record
from holdfast.catalog.payloads import PAYLOAD_TYPES, Column, Edge, SnapshotPin
from holdfast.storage import LocalStore, ObjectStore
from holdfast.testing.clock import VirtualClock
from tests.golden.make import GOLDEN, GoldenRandomness

FOLDER = "ledger"
TENANT, NAME = "acme", "prod"
MOMENT = datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)
_NUMBERS = {"attempt": 3, "manifest_id": 7, "left_manifest_id": 9, "row_count": 1_000_000, "byte_size": 2**40}


def full(kind: type[Payload]) -> Payload:
    """Every field said, none at its default."""
    return _filled(kind, everything=True)  # type: ignore[return-value]


def bare(kind: type[Payload]) -> Payload:
    """Only what must be said."""
    return _filled(kind, everything=False)  # type: ignore[return-value]


def _filled(kind: type[Record], *, everything: bool) -> Record:
    values: dict[str, object] = {}
    for one in fields(kind):
        required = one.default is MISSING and one.default_factory is MISSING
        if one.name != "unknown" and (required or everything):
            values[one.name] = _value(one.name, str(one.type))
    return kind(**values)  # type: ignore[arg-type]


def _value(name: str, hint: str) -> object:
    members: dict[str, object] = {
        "Column": Column(name="größe", type="decimal(10,2)", nullable=False, description="d", tags={"pii": "no"}),
        "Edge": Edge(
            source="sales.orders",
            target="sales.daily",
            source_column="amount",
            target_column="total",
            source_snapshot="00000000000000000007",
            target_snapshot="000003",
            kind="sum",
        ),
        "SnapshotPin": SnapshotPin(chain="s3://lake/users#kv", manifest_id=7, manifest_hash="sha256:00", ref="r"),
    }
    for member, value in members.items():
        if member in hint:
            return (value,)
    if "datetime" in hint:
        return MOMENT
    if "bool" in hint:
        return False
    if "Mapping[str, int]" in hint:
        return {"rows": 12, "files": 0}
    if "Mapping[str, object]" in hint:
        return {"sources": [{"url": "s3://lake/x", "limit": 1.5}], "on": True, "none": None}
    if "Mapping" in hint:
        return {"team": "größe", "empty": ""}
    if "tuple" in hint:
        return ("sales.daily", "users")
    if "int" in hint:
        return _NUMBERS[name]
    return f"the {name}"


def drafts() -> Iterator[EventDraft]:
    """Each type twice: with a key, a time and a trace, and without any."""
    for kind in PAYLOAD_TYPES.values():
        yield EventDraft(
            payload=full(kind), idempotency_key=f"golden/{kind.TYPE}", occurred_at=MOMENT, trace_id="trace-1"
        )
        yield EventDraft(payload=bare(kind))


def tell_story(store: ObjectStore) -> Workspace:
    """A workspace in which everything happens once."""
    clock = VirtualClock()
    workspace = Workspace(
        root=store, tenant=TENANT, name=NAME, by="golden@host:1", clock=clock, randomness=GoldenRandomness()
    )
    workspace.initialize()
    ledgers = {domain: workspace.ledger(domain) for domain in {kind.DOMAIN for kind in PAYLOAD_TYPES.values()}}
    for draft in drafts():
        clock.advance(1)
        ledgers[draft.payload.DOMAIN].append_many([draft])
    return workspace


def make(version: str) -> Path:
    folder = GOLDEN / version / FOLDER
    if folder.exists():
        raise SystemExit(f"{folder} exists: what was released is not made again")
    tell_story(LocalStore(folder, durable=False))
    return folder


if __name__ == "__main__":
    sys.stdout.write(f"{make(sys.argv[1])}\n")
