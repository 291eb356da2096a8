"""How the library's records look in JSON documents and in tables; the same in every command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.cli.output import Column, Line, Part, Table
from holdfast.cli.words import count, size_text, time_text
from holdfast.clock import format_time

if TYPE_CHECKING:
    from holdfast.chain.chain import Chain
    from holdfast.chain.collection import Condemned
    from holdfast.chain.history import ManifestRef
    from holdfast.chain.manifest import Artifact
    from holdfast.chain.pointer import Move

__all__ = [
    "EXAMPLES_MAX",
    "REF",
    "artifact_json",
    "condemned_json",
    "condemned_summary",
    "condemned_table",
    "move_json",
    "snapshot_json",
    "snapshot_text",
    "snapshots_table",
]

EXAMPLES_MAX = 10
REF = Column(title="ref", keep="middle", least=11)


def snapshot_json(snapshot: ManifestRef) -> dict[str, object]:
    return {
        "ref": snapshot.ref,
        "manifest_id": snapshot.manifest_id,
        "run_id": snapshot.run_id,
        "published_at": format_time(snapshot.published_at),
        "commit_ulid": snapshot.commit_ulid,
        "by": snapshot.by,
    }


def snapshot_text(snapshot: ManifestRef) -> str:
    """Its ref, with time and run where the ref does not have them in it."""
    if snapshot.run_id in snapshot.ref:
        return snapshot.ref
    return f"{snapshot.ref} ({time_text(snapshot.published_at)} UTC, run {snapshot.run_id})"


def move_json(chain: Chain, move: Move) -> dict[str, object]:
    """The snapshot that a move leads to, in the shape of `snapshot_json`."""
    return {
        "ref": chain.layout.ref_of(move.manifest_path),
        "manifest_id": move.target_id,
        "run_id": move.run_id,
        "published_at": format_time(move.at),
        "commit_ulid": move.commit_ulid,
        "by": move.by,
    }


def snapshots_table(chain: Chain, moves: Iterable[Move]) -> Table:
    listed = list(moves)
    return Table(
        (Column(title="published_at (UTC)"), Column(title="run_id", keep="middle", least=12), REF),
        [(time_text(move.at), move.run_id, chain.layout.ref_of(move.manifest_path)) for move in listed[:EXAMPLES_MAX]],
        more=max(0, len(listed) - EXAMPLES_MAX),
    )


def artifact_json(artifact: Artifact) -> dict[str, object]:
    return {
        "path": artifact.path,
        "kind": artifact.kind,
        "byte_size": artifact.byte_size,
        "row_count": artifact.row_count,
        "checksum": artifact.checksum,
    }


def condemned_json(item: Condemned) -> dict[str, object]:
    return {"key": item.key, "what": item.what, "byte_size": item.byte_size, "last_id": item.last_id}


def condemned_summary(items: Iterable[Condemned]) -> str:
    """`3 artifacts, 1 manifest (1.2 MiB)`."""
    kinds: dict[str, int] = {}
    size = 0
    for item in items:
        name = "run record" if item.what == "run" else item.what
        kinds[name] = kinds.get(name, 0) + 1
        size += item.byte_size
    return ", ".join(count(number, name) for name, number in kinds.items()) + f" ({size_text(size)})"


def condemned_table(items: Iterable[Condemned]) -> list[Part]:
    """The largest of them, as examples."""
    listed = sorted(items, key=lambda item: -item.byte_size)
    if not listed:
        return []
    rows = [
        (
            "run record" if item.what == "run" else item.what,
            size_text(item.byte_size) if item.byte_size else "",
            item.key,
        )
        for item in listed[:EXAMPLES_MAX]
    ]
    columns = (Column(title="what"), Column(title="size", right=True), Column(title="key", keep="middle", least=20))
    return [Line(""), Table(columns, rows, more=max(0, len(listed) - EXAMPLES_MAX))]
