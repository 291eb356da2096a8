"""The kernel: immutable manifests, one mutable pointer, and everything that keeps them true. Start in `commit.py`."""

from holdfast.chain.async_history import AsyncHistory
from holdfast.chain.chain import Chain
from holdfast.chain.collect import CollectionPlan
from holdfast.chain.collection import CollectionRecord, Condemned
from holdfast.chain.commit import Committed, Outcome, Superseded, Unknown
from holdfast.chain.diff import Diff, Stats
from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.history import ManifestRef
from holdfast.chain.layout import (
    DOMAINS,
    Layout,
    domain_layout,
    graph_layout,
    kv_layout,
    layout_named,
    orchestration_layout,
    table_layout,
)
from holdfast.chain.lineage import Downstream
from holdfast.chain.manifest import Artifact, InputPin, Manifest, ManifestDraft
from holdfast.chain.moved import RolledBack
from holdfast.chain.opening import chain_on, open_chain
from holdfast.chain.pointer import Move, MoveKind, Pointer
from holdfast.chain.purge import Purged
from holdfast.chain.reader import AsyncChainReader, ChainReader, ReaderStatus, Refreshed, Served
from holdfast.chain.reconcile import Finding
from holdfast.chain.runs import Run, RunRecord, RunState
from holdfast.chain.tags import TaggedSnapshot
from holdfast.chain.verdict import Verdict, VerdictKind
from holdfast.chain.verify import Break, verify_chain

__all__ = [
    "DOMAINS",
    "Artifact",
    "AsyncChainReader",
    "AsyncHistory",
    "Break",
    "Chain",
    "ChainHandle",
    "ChainReader",
    "CollectionPlan",
    "CollectionRecord",
    "Committed",
    "Condemned",
    "Diff",
    "Downstream",
    "Finding",
    "InputPin",
    "Layout",
    "Manifest",
    "ManifestDraft",
    "ManifestRef",
    "Move",
    "MoveKind",
    "Outcome",
    "Pointer",
    "Purged",
    "ReaderStatus",
    "Refreshed",
    "RolledBack",
    "Run",
    "RunRecord",
    "RunState",
    "SeenPointer",
    "Served",
    "Stats",
    "Superseded",
    "TaggedSnapshot",
    "Unknown",
    "Verdict",
    "VerdictKind",
    "chain_on",
    "domain_layout",
    "graph_layout",
    "kv_layout",
    "layout_named",
    "open_chain",
    "orchestration_layout",
    "table_layout",
    "verify_chain",
]
