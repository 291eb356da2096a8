"""The code graph of the benchmarks: deterministic, of any size.

200 nodes a file and three edges a node; 12 types of nodes and 6 of edges in fixed shares; four edges in five stay in
their file. Some (source, target, type) come twice: these are one edge.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NODES_PER_FILE", "file_of", "graph", "of_file"]

NODES_PER_FILE = 200
EDGES_PER_NODE = 3
NODE_SHARES = {
    "MODULE": 0.005, "FUNCTION": 0.08, "CLASS": 0.02, "METHOD": 0.06, "VARIABLE": 0.2, "PARAMETER": 0.12, "CALL": 0.2,
    "IMPORT": 0.03, "EXPORT": 0.015, "LITERAL": 0.1, "EXPRESSION": 0.1, "PROPERTY": 0.07,
}  # fmt: skip
EDGE_SHARES = {
    "CONTAINS": 0.3, "CALLS": 0.15, "REFERENCES": 0.25, "ASSIGNED_FROM": 0.12, "IMPORTS_FROM": 0.03, "FLOWS_INTO": 0.15,
}  # fmt: skip
INSIDE = 0.8

Numbers = npt.NDArray[np.int64]


def graph(nodes: int, *, seed: int = 7) -> tuple[pa.Table, pa.Table]:
    """Nodes and edges, in Holdfast's columns; edges name semantic ids."""
    generator = np.random.default_rng(seed)
    edges = nodes * EDGES_PER_NODE
    node_types = generator.choice(len(NODE_SHARES), nodes, p=list(NODE_SHARES.values()))
    edge_types = generator.choice(len(EDGE_SHARES), edges, p=list(EDGE_SHARES.values()))
    sources = generator.integers(0, nodes, edges)
    inside = generator.random(edges) < INSIDE
    near = sources // NODES_PER_FILE * NODES_PER_FILE + generator.integers(0, NODES_PER_FILE, edges)
    targets = np.where(inside, near, generator.integers(0, nodes, edges))
    numbers = np.arange(nodes)
    files, kinds = _files(numbers), pa.array(list(NODE_SHARES)).take(pa.array(node_types))
    names = _joined("sym_", numbers % NODES_PER_FILE, "_", numbers % 997)
    ids = pc.binary_join_element_wise(files, kinds, names, "->")
    metadata = _joined('{"line": ', numbers % NODES_PER_FILE * 3 + 1, ', "column": ', numbers % 80, "}")
    return (
        pa.table({"semantic_id": ids, "type": kinds, "name": names, "file": files, "metadata": metadata}),
        pa.table(
            {
                "source": ids.take(pa.array(sources)),
                "target": ids.take(pa.array(targets)),
                "type": pa.array(list(EDGE_SHARES)).take(pa.array(edge_types)),
            }
        ),
    )


def file_of(number: int) -> str:
    """The file that a node is in."""
    file = number // NODES_PER_FILE
    return f"packages/p{file % 50}/src/mod_{file}.ts"


def of_file(nodes: pa.Table, edges: pa.Table, number: int) -> tuple[pa.Table, pa.Table]:
    """The nodes of one file, and the edges that start there."""
    first = number // NODES_PER_FILE * NODES_PER_FILE
    inside = nodes.slice(first, NODES_PER_FILE)
    ids = inside.column("semantic_id").combine_chunks()
    return inside, edges.filter(pc.is_in(edges.column("source"), value_set=ids))


def _files(numbers: Numbers) -> pa.Array:
    files = numbers // NODES_PER_FILE
    return _joined("packages/p", files % 50, "/src/mod_", files, ".ts")


def _joined(*parts: str | Numbers) -> pa.Array:
    texts = [part if isinstance(part, str) else pa.array(part).cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")
