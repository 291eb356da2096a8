"""Nodes and edges: their columns, their ids, and what is checked before any of them is stored (G6, G23).

A node is known by its semantic id, any text that the user has. Its 128-bit id is made from that by two hashes that
Spark computes inside the JVM: `xxhash64(semantic_id)` and `xxhash64('holdfast', semantic_id)`, eight bytes each,
little-endian. The first also is the hash by which nodes are found in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from holdfast.arrow_memory import variable_parts
from holdfast.errors import BadInput, BadRows
from holdfast.graph.metadata import check_metadata
from holdfast.xxh64 import SEED, hash_variable_width

__all__ = [
    "EDGE_COLUMNS",
    "NODE_COLUMNS",
    "Edge",
    "Node",
    "canonical_edges",
    "canonical_nodes",
    "edge_schema",
    "hash_texts",
    "id_hash",
    "node_id",
    "node_ids",
    "node_schema",
]

SECOND_SEED = xxh64_intdigest(b"holdfast", SEED)
SAMPLES_MAX = 5
ID_BYTES = 16

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node, as a program has it."""

    semantic_id: str
    type: str
    name: str = ""
    file: str = ""
    content_hash: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def id(self) -> bytes:
        return node_id(self.semantic_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One edge. Source, target and type together are its key."""

    source: str
    target: str
    type: str
    file: str = ""
    """The file it belongs to: its source's, unless stated otherwise. Replacing a file replaces its edges."""
    metadata: Mapping[str, object] = field(default_factory=dict)


@cache
def node_schema() -> pa.Schema:
    """The columns of nodes, in their order."""
    return pa.schema(
        [
            pa.field("semantic_id", pa.string(), nullable=False),
            pa.field("type", pa.string(), nullable=False),
            pa.field("name", pa.string(), nullable=False),
            pa.field("file", pa.string(), nullable=False),
            pa.field("content_hash", pa.string()),
            pa.field("metadata", pa.string()),
        ]
    )


@cache
def edge_schema() -> pa.Schema:
    """The columns of edges, in their order."""
    return pa.schema(
        [
            pa.field("source", pa.string(), nullable=False),
            pa.field("target", pa.string(), nullable=False),
            pa.field("type", pa.string(), nullable=False),
            pa.field("file", pa.string(), nullable=False),
            pa.field("metadata", pa.string()),
        ]
    )


NODE_COLUMNS = tuple(node_schema().names)
EDGE_COLUMNS = tuple(edge_schema().names)
_NODE_REQUIRED = ("semantic_id", "type")
_EDGE_REQUIRED = ("source", "target", "type")


def node_id(semantic_id: str) -> bytes:
    """The 128-bit id of one node."""
    data = semantic_id.encode()
    return xxh64_intdigest(data, SEED).to_bytes(8, "little") + xxh64_intdigest(data, SECOND_SEED).to_bytes(8, "little")


def id_hash(identity: bytes) -> int:
    """The first half of a 128-bit id: the hash by which its node is found."""
    if len(identity) != ID_BYTES:
        raise BadInput(f"an id has {ID_BYTES} bytes, not {len(identity)}; a semantic id is text")
    return int.from_bytes(identity[:8], "little")


def node_ids(semantic_ids: pa.Array) -> pa.Array:
    """The 128-bit ids of many, as a column of 16 bytes each."""
    halves = np.empty((len(semantic_ids), 2), "<u8")
    halves[:, 0] = hash_texts(semantic_ids)
    data, offsets = variable_parts(semantic_ids)
    halves[:, 1] = hash_variable_width(data, offsets, np.full(len(semantic_ids), SECOND_SEED, np.uint64))
    return pa.Array.from_buffers(pa.binary(16), len(semantic_ids), [None, pa.py_buffer(halves)])


def hash_texts(texts: pa.Array) -> Hashes:
    """XXH64 of each text."""
    data, offsets = variable_parts(texts)
    return hash_variable_width(data, offsets)


def canonical_nodes(given: pa.Table | Sequence[Node]) -> pa.Table:
    """Nodes in the columns and types that are stored; BadRows for what cannot be one."""
    table = given if isinstance(given, pa.Table) else _table_of_nodes(given)
    return _canonical(table, node_schema(), _NODE_REQUIRED, "node")


def canonical_edges(given: pa.Table | Sequence[Edge]) -> pa.Table:
    """The same for edges. A file that is not given stays empty: whoever knows the nodes fills it in."""
    table = given if isinstance(given, pa.Table) else _table_of_edges(given)
    return _canonical(table, edge_schema(), _EDGE_REQUIRED, "edge")


def _canonical(table: pa.Table, schema: pa.Schema, required: tuple[str, ...], what: str) -> pa.Table:
    unknown = [name for name in table.column_names if name not in schema.names]
    if unknown:
        raise BadInput(f"{what}s have no column {unknown[0]!r}; the columns are {', '.join(schema.names)}")
    columns = []
    for column in schema:
        if column.name not in table.column_names:
            if column.name in required:
                raise BadInput(f"{what}s need a column {column.name!r}; there are {', '.join(table.column_names)}")
            columns.append(
                pa.nulls(len(table), pa.string()) if column.nullable else pa.repeat(pa.scalar(""), len(table))
            )
            continue
        found = table.column(column.name)
        try:
            plain = found if found.type == pa.string() else found.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadInput(f"column {column.name!r} of {what}s should be text: {error}") from None
        if plain.null_count and not column.nullable:
            if column.name in required:
                raise BadRows(f"{plain.null_count} {what}s have no {column.name!r}; nothing was committed")
            plain = pc.fill_null(plain, "")
        columns.append(plain)
    canonical = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
    _check_texts(canonical, required, what)
    for texts in canonical.column("metadata").chunks:
        check_metadata(texts, what)
    return canonical


def _check_texts(table: pa.Table, required: tuple[str, ...], what: str) -> None:
    for name in required:
        if pc.index(table.column(name), "").as_py() >= 0:
            empty = pc.sum(pc.equal(table.column(name), "")).as_py()
            raise BadRows(f"{empty} {what}s have an empty {name!r}; nothing was committed")


def _table_of_nodes(nodes: Sequence[Node]) -> pa.Table:
    return pa.table(
        {
            "semantic_id": pa.array([node.semantic_id for node in nodes], pa.string()),
            "type": pa.array([node.type for node in nodes], pa.string()),
            "name": pa.array([node.name for node in nodes], pa.string()),
            "file": pa.array([node.file for node in nodes], pa.string()),
            "content_hash": pa.array([node.content_hash for node in nodes], pa.string()),
            "metadata": pa.array([_json(node.metadata) for node in nodes], pa.string()),
        }
    )


def _table_of_edges(edges: Sequence[Edge]) -> pa.Table:
    return pa.table(
        {
            "source": pa.array([edge.source for edge in edges], pa.string()),
            "target": pa.array([edge.target for edge in edges], pa.string()),
            "type": pa.array([edge.type for edge in edges], pa.string()),
            "file": pa.array([edge.file for edge in edges], pa.string()),
            "metadata": pa.array([_json(edge.metadata) for edge in edges], pa.string()),
        }
    )


def _json(metadata: Mapping[str, object]) -> str | None:
    return orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS).decode() if metadata else None
