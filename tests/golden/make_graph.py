"""Makes the golden graph: versions with every kind of record, tombstones, a replaced file and a compaction.

python -m tests.golden.make_graph v2

Kept for ever, like the records (see `tests/golden/make.py`): later releases must find in them what `answers.json` says.
"""

from __future__ import annotations

import sys
from typing import Any

import orjson

from holdfast.graph.compaction import compact
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import GraphStore
from holdfast.storage import LocalStore
from holdfast.testing.clock import VirtualClock
from tests.golden.make import GOLDEN, GoldenRandomness

FOLDER = "graph-data"
ANSWERS = "answers.json"
ODD_IDS = ["", "a\x00b", "→ naïve", "'; drop", "x" * 300, "\n", "\U0001f600"][1:]


def node(file: str, name: str, kind: str = "FUNCTION", **more: Any) -> Node:
    return Node(semantic_id=f"{file}->{kind}->{name}", type=kind, name=name, file=file, **more)


def edge(source: Node, target: Node | str, kind: str = "CALLS", **more: Any) -> Edge:
    to = target if isinstance(target, str) else target.semantic_id
    return Edge(source=source.semantic_id, target=to, type=kind, **more)


def tell(store: GraphStore) -> None:
    """Versions 2 to 7; 1 is empty."""
    main, helper, parse = node("app.py", "main"), node("lib.py", "help"), node("lib.py", "parse", "http:get")
    store.commit(
        nodes=[main, helper, parse, *(Node(semantic_id=text, type="ODD", metadata={"text": text}) for text in ODD_IDS)],
        edges=[edge(main, helper, metadata={"line": 3}), edge(helper, parse), edge(parse, "nowhere", "http:put")],
        dangling="keep",
        tags={"release": "first"},
        why="first load",
    )
    many = [node(f"many/{number % 7}.py", f"f{number:04}", content_hash=f"{number:x}") for number in range(210)]
    store.commit(nodes=many, edges=[edge(a, b) for a, b in zip(many, [*many[9:], *many[:9]], strict=True)])
    later = node("lib.py", "help", metadata={"line": 9})
    store.replace_files(["lib.py"], nodes=[later, node("lib.py", "scan")], edges=[edge(later, node("lib.py", "scan"))])
    store.commit(nodes=[Node(semantic_id=main.semantic_id, type="METHOD", name="main", file="moved.py")])
    store.commit(remove_nodes=[one.semantic_id for one in many[:3]], dangling="keep")
    compact(store, all=True)


def answers(store: GraphStore) -> dict[str, Any]:
    """What each version says: records, and who is next to whom."""
    told = {}
    for version in range(1, store.current() + 1):
        now = store.snapshot(version)
        told[str(version)] = {
            "nodes": now.nodes().to_dicts(),
            "edges": now.edges().to_dicts(),
            "dangling": now.dangling,
            "near": {id_: now.neighbors(id_, direction="both") for id_ in now.nodes().ids()[::50]},
        }
    return told


def make(version: str) -> None:
    """Write the graph of one version, or refuse."""
    folder = GOLDEN / version / FOLDER
    if folder.exists():
        sys.exit(f"{folder.name} of {version} exists and is kept for ever; a new format gets a new version")
    clock, randomness = VirtualClock(), GoldenRandomness()
    store = GraphStore.create(LocalStore(folder / "chain"), by="golden@host:1", clock=clock, randomness=randomness)
    tell(store)
    (folder / ANSWERS).write_bytes(orjson.dumps(answers(store), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))


if __name__ == "__main__":
    make(sys.argv[1])
