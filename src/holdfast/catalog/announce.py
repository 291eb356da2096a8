"""Data sets announce themselves: every publish and every rollback becomes an event of the catalog (C16, C28).

    announce(workspace, "users")     # after a publish or a rollback; again at any time, by anybody

What is told comes from the data set itself, from its pointer's log and its manifests, and each move names its event by
its commit ULID. So nothing depends on who announces: a writer that died in between is announced by the next, and
announcing twice says it once. The inputs that a manifest pins are part of what is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from holdfast.catalog.compactor import Compaction, Compactor
from holdfast.catalog.events import EventDraft
from holdfast.catalog.ledger import Receipt
from holdfast.catalog.payload import Payload
from holdfast.catalog.payloads import Column, DatasetPublished, DatasetRolledBack, SnapshotPin
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Chain, Manifest, Move
from holdfast.chain.moves import moves_newest_first
from holdfast.chain.pointer import MAKES_VISIBLE
from holdfast.codec import Fields, Json
from holdfast.errors import Damaged, NotFound

__all__ = ["MOVES_MAX", "announce", "announce_all", "event_key", "row_count_of", "tell_moves"]

MOVES_MAX = 100
"""How far back one call looks: whatever is older was announced long ago, or is asked for with more."""


def announce(workspace: Workspace, dataset: str, *, moves_max: int = MOVES_MAX) -> Compaction | None:
    """Tell what has become of a data set, and fold it; None if there is nothing to tell."""
    receipts = tell_moves(workspace, dataset, moves_max=moves_max)
    if not receipts:
        return None
    return Compactor(workspace, "catalog").compact([receipt.path for receipt in receipts])


def announce_all(workspace: Workspace) -> dict[str, Compaction | None]:
    """The same for every data set of the workspace: after an upgrade, or when announcements were lost. Lists."""
    return {name: announce(workspace, name) for name in workspace.dataset_names()}


def tell_moves(
    workspace: Workspace,
    dataset: str,
    *,
    moves_max: int = MOVES_MAX,
    chain: Chain | None = None,
    told: str | None = None,
) -> list[Receipt]:
    """Append the newest moves of a data set to the ledger, the oldest first. What was told before is not told again.

    `chain` is the data set where it is open already; `told` is the commit ULID of a move that was told before.
    """
    chain = chain or workspace.dataset(dataset)
    seen = chain.seen or chain.handle.read_pointer()
    if seen is None:
        raise NotFound(f"data set {dataset!r} has no snapshot; publish one first")
    newest = islice(moves_newest_first(chain.handle, seen.pointer), moves_max)
    untold = list(takewhile(lambda move: move.commit_ulid != told, newest))
    drafts = []
    for move in reversed(untold):
        said = _said(chain, dataset, move)
        if said is not None:
            key = event_key(dataset, move)
            drafts.append(EventDraft(payload=said, idempotency_key=key, occurred_at=move.at))
    return workspace.ledger("catalog").append_many(drafts)


def event_key(dataset: str, move: Move) -> str:
    """The idempotency key of the event that tells a move."""
    return f"dataset/{dataset}/{move.commit_ulid}"


def _said(chain: Chain, dataset: str, move: Move) -> Payload | None:
    """What a move means to the catalog; None for one that changes nothing visible, or of what is no longer there."""
    if move.kind in MAKES_VISIBLE:
        try:
            manifest = chain.load_manifest(chain.layout.ref_of(move.manifest_path))
        except (NotFound, Damaged):
            return None  # collected, or broken: there is nothing to describe
        return _published(chain, dataset, move, manifest)
    if move.source_id is None or move.source_id == move.target_id:
        return None
    return DatasetRolledBack(
        dataset=dataset,
        chain=chain.handle.identity,
        left_manifest_id=move.source_id,
        manifest_id=move.target_id,
        manifest_hash=move.manifest_hash,
        ref=chain.layout.ref_of(move.manifest_path),
        commit_ulid=move.commit_ulid,
        rolled_back_at=move.at,
        by=move.by,
        why=move.why,
    )


def _published(chain: Chain, dataset: str, move: Move, manifest: Manifest) -> DatasetPublished:
    return DatasetPublished(
        dataset=dataset,
        kind=chain.layout.name,
        chain=chain.handle.identity,
        manifest_id=move.target_id,
        manifest_hash=move.manifest_hash,
        ref=chain.layout.ref_of(move.manifest_path),
        commit_ulid=move.commit_ulid,
        run_id=move.run_id,
        published_at=move.at,
        row_count=row_count_of(manifest),
        byte_size=sum(artifact.byte_size for artifact in manifest.artifacts),
        inputs=tuple(
            SnapshotPin(chain=pin.chain, manifest_id=pin.manifest_id, manifest_hash=pin.manifest_hash, ref=pin.ref)
            for pin in manifest.inputs
        ),
        columns=_columns(manifest.payload),
        description=move.why,
        tags=dict(move.tags),
    )


def row_count_of(manifest: Manifest) -> int:
    """What queries see: of a graph, nodes and edges as its manifest counts them."""
    stats = manifest.payload.get("stats")
    counts = [stats.get(name) for name in ("total_nodes", "total_edges")] if isinstance(stats, dict) else []
    numbers = [count for count in counts if type(count) is int]
    return sum(numbers) if numbers else sum(artifact.row_count for artifact in manifest.artifacts)


def _columns(payload: Json | object) -> tuple[Column, ...]:
    """The columns that the manifest of a key-value data set or a table lists for people; none where there are none."""
    models = [payload.get(name) for name in ("kv", "table")] if isinstance(payload, dict) else []
    found = next((model for model in models if isinstance(model, dict)), None)
    if found is None:
        return ()
    try:
        listed: Sequence[Column] = Fields(found, key="columns").records("columns", _column)
    except Damaged:
        return ()
    return tuple(listed)


def _column(fields: Fields) -> Column:
    nullable = fields.rest().get("nullable")
    return Column(name=fields.text("name"), type=fields.text("type"), nullable=nullable is not False)
