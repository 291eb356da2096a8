"""Makes the layouts that older releases left: under old names, in camelCase, by pointers, and before workspaces.

python -m tests.golden.make_old

No release of today writes these. The records are spelled out here by hand; only the events and tables in them come from
the program. They are kept for ever, like all golden files, and every release must read and convert them (C4).

    named/acme/prod/     domains by old names, each with its one manifest; a root in camelCase
    pointers/acme/prod/  the same with pointers in camelCase, one of them as bare as they ever were
    tenant/              tenant=acme/_catalog and tenant=acme/_events: no workspace yet
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyarrow as pa

from holdfast.catalog import payloads as p
from holdfast.catalog.domain_state import encode_table
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import Event
from holdfast.catalog.payload import Payload
from holdfast.catalog.tables import POSITION
from tests.golden.make import GOLDEN

OLD = GOLDEN / "old"
MOMENT = datetime(2025, 5, 4, 3, 2, 1, tzinfo=UTC)
UPDATED = "2025-05-04T03:02:01Z"

SAID: dict[str, tuple[Payload, ...]] = {
    "catalog": (
        p.NamespaceCreated(namespace="sales", description="What we sold"),
        p.TableRegistered(namespace="sales", table="orders", columns=(p.Column(name="id", type="bigint"),)),
        p.TableRegistered(namespace="sales", table="returns"),
    ),
    "lineage": (p.LineageEdgesAdded(edges=(p.Edge(source="raw.orders", target="sales.orders"),), run_id="r1"),),
    "executions": (
        p.RunStarted(run_id="r1", started_at=MOMENT, pipeline="nightly"),
        p.RunFinished(run_id="r1", finished_at=MOMENT, outputs=("sales.orders",)),
    ),
    "orchestration": (p.PipelineChanged(pipeline="nightly", definition={"sources": ["raw"]}),),
}
FOLDED = {"catalog": 2, "lineage": 1, "executions": 1, "orchestration": 1}
"""How many of its events a domain's state has. The others wait in the ledger."""


def events_of(domain: str) -> list[Event]:
    return [
        Event(
            event_id=f"01JTC{list(SAID).index(domain)}00000000000000000{number:03d}",
            position=number,
            idempotency_key=f"old/{domain}/{number}",
            occurred_at=MOMENT,
            source="old@host:1",
            payload=payload,
        )
        for number, payload in enumerate(SAID[domain], start=1)
    ]


def write(path: Path, record: object) -> bytes:
    data = record if isinstance(record, bytes) else orjson.dumps(record, option=orjson.OPT_INDENT_2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return data


def write_state(folder: Path, name: str, domain: str) -> dict[str, object]:
    """The files of a domain under its old name, and the manifest that names them."""
    events = events_of(domain)[: FOLDED[domain]]
    files = []
    for table, rows in rows_of(events, domain=domain).items():
        path = f"state/{name}/v3/{table}.parquet"
        data = write(folder / path, encode_table(rows))
        files.append(_file(path, data, rows))
    return {
        "snapshotVersion": 3,
        "positionWatermark": events[-1].position,
        "watermarkEventId": events[-1].event_id,
        "files": files,
        "totals": {"files": len(files), "rows": sum(int(str(one["rowCount"])) for one in files)},
        "fencingToken": 5,
        "updatedAt": UPDATED,
    }


def _file(path: str, data: bytes, rows: pa.Table) -> dict[str, object]:
    places = rows.column(POSITION).to_pylist()
    return {
        "path": path,
        "sha256": hashlib.sha256(data).hexdigest(),
        "byteSize": len(data),
        "rowCount": len(rows),
        "positionRange": [min(places), max(places)],
    }


def write_ledger(folder: Path, name: str, events: Sequence[Event], *, claims: Path | None = None) -> None:
    for event in events:
        data = write(folder / name / f"{event.event_id}.json", event.encode())
        if claims is not None:
            digest = hashlib.sha256(event.idempotency_key.encode()).hexdigest()
            write(claims / name / f"{digest}.json", data)


def make_named(folder: Path) -> None:
    names = {"catalog": "core", "lineage": "lineage", "executions": "execution"}
    for domain, name in names.items():
        write(folder / "manifests" / f"{name}.manifest.json", write_state(folder, name, domain))
        write_ledger(folder / "ledger", name, events_of(domain), claims=folder / "ledger" / "claims")
    write(folder / "manifests" / "governance.manifest.json", {"snapshotVersion": 1, "tags": [], "updatedAt": UPDATED})
    write(folder / "state/orchestration/manifest.json", write_state(folder, "orchestration", "orchestration"))
    write_ledger(folder / "ledger", "orchestration", events_of("orchestration"), claims=folder / "ledger" / "claims")
    root = {
        "version": 1,
        "coreManifestPath": "manifests/core.manifest.json",
        "lineageManifestPath": "manifests/lineage.manifest.json",
        "executionManifestPath": "manifests/execution.manifest.json",
        "governanceManifestPath": "manifests/governance.manifest.json",
        "updatedAt": UPDATED,
        "note": "kept",
    }
    write(folder / "manifests" / "root.manifest.json", root)


def make_pointers(folder: Path) -> None:
    for domain, name in {"catalog": "catalog_core", "lineage": "lineage", "executions": "execution"}.items():
        manifest = {"manifestId": 7, "epoch": 5, **write_state(folder, name, domain)}
        path = f"manifests/{name}/{7:020d}.json"
        data = write(folder / path, manifest)
        pointer = {"manifestId": f"{7:020d}", "manifestPath": path, "epoch": 5, "updatedAt": UPDATED}
        if domain == "catalog":
            pointer["manifestHash"] = f"sha256:{hashlib.sha256(data).hexdigest()}"
        write(folder / "manifests" / f"{name}.pointer.json", pointer)
        write_ledger(folder / "ledger", name, events_of(domain), claims=folder / "ledger" / "claims")
    root = {
        "version": 1,
        "catalog_core_manifest_path": "manifests/catalog_core.pointer.json",
        "lineage_manifest_path": "manifests/lineage.pointer.json",
        "execution_manifest_path": "manifests/execution.pointer.json",
        "updated_at": UPDATED,
    }
    write(folder / "manifests" / "root.manifest.json", root)


def make_tenant(folder: Path) -> None:
    catalog, events = folder / "tenant=acme" / "_catalog", folder / "tenant=acme" / "_events"
    for domain, name in {"catalog": "core", "lineage": "lineage", "executions": "execution"}.items():
        write(catalog / "manifests" / f"{name}.manifest.json", write_state(catalog, name, domain))
        write_ledger(events, name, events_of(domain))


if __name__ == "__main__":
    if OLD.exists():
        sys.exit(f"{OLD.name} exists and is kept for ever")
    make_named(OLD / "named" / "acme" / "prod")
    make_pointers(OLD / "pointers" / "acme" / "prod")
    make_tenant(OLD / "tenant")
