"""One version of a graph in memory, as arrays: the nodes, the edges, and who is next to whom (G14, G21).

Nodes are numbered by their place in the table of nodes. An edge that points to nothing keeps its end: such an end has a
number behind all nodes, and no record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import NotFound
from holdfast.graph.adjacency import NO_TYPE, Adjacency
from holdfast.graph.index import TextIndex
from holdfast.graph.zone_map import matches_type

__all__ = ["GraphSnapshot"]

Indices = npt.NDArray[np.int64]


class GraphSnapshot:
    """Nodes and edges that are there at one version. Immutable; any number of threads may ask."""

    def __init__(self, nodes: pa.Table, edges: pa.Table, *, version: int) -> None:
        self.version = version
        self.nodes = _encoded(nodes, ("type", "file"))
        """In the order of their semantic ids."""
        self.edges = _encoded(edges, ("source", "target", "type", "file"))
        """In the order of source, type and target where one segment holds them all; stable in any case."""

    @property
    def node_count(self) -> int:
        return len(self.nodes)

    @property
    def edge_count(self) -> int:
        return len(self.edges)

    # -- nodes ------------------------------------------------------------------------------------------------------

    @cached_property
    def index(self) -> TextIndex:
        return TextIndex(_whole(self.nodes.column("semantic_id")))

    def node(self, semantic_id: str) -> pa.Table:
        """One node as a table of one row; NotFound if it is not there."""
        place = self.index.find(semantic_id)
        if place < 0:
            raise NotFound(f"no node {semantic_id!r} at version {self.version}")
        return self.nodes.slice(place, 1)

    def select_nodes(
        self,
        *,
        type: str | Sequence[str] | None = None,  # noqa: A002 - it is what everybody calls it
        name: str | None = None,
        file: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> Indices:
        """The nodes that fit all that is given, in order."""
        chosen: npt.NDArray[np.bool_] | None = None
        if type is not None and len(type):
            patterns = [type] if isinstance(type, str) else list(type)
            chosen = _with_values(self.nodes.column("type"), lambda kind: any(matches_type(p, kind) for p in patterns))
        if file is not None:
            chosen = _both(chosen, _with_values(self.nodes.column("file"), lambda found: found == file))
        if name is not None:
            same = pc.equal(self.nodes.column("name"), name).combine_chunks().to_numpy(zero_copy_only=False)
            chosen = _both(chosen, same)
        places = np.arange(len(self.nodes)) if chosen is None else np.flatnonzero(chosen)
        return places if not metadata else self._with_metadata(places, metadata)

    def _with_metadata(self, places: Indices, wanted: Mapping[str, object]) -> Indices:
        """First by the text that must be in it, for all at once; only what is left is parsed."""
        texts = self.nodes.column("metadata").take(pa.array(places))
        maybe = np.ones(len(places), dtype=bool)
        for attribute, value in wanted.items():
            pattern = re.escape(orjson.dumps(attribute).decode())
            if isinstance(value, int | bool):  # spelled in one way only; texts may be escaped in several
                pattern += r"\s*:\s*" + re.escape(orjson.dumps(value).decode())
            has = pc.fill_null(pc.match_substring_regex(texts, pattern), False)
            maybe &= has.combine_chunks().to_numpy(zero_copy_only=False)
        left = np.flatnonzero(maybe)
        parsed = texts.take(pa.array(left)).to_pylist()
        fits = [row for row, text in zip(left.tolist(), parsed, strict=True) if _fits(orjson.loads(text), wanted)]
        return places[np.array(fits, np.int64)]

    def count_by_type(self) -> dict[str, int]:
        """How many nodes there are of each type, by name."""
        counted = self.nodes.column("type").value_counts()
        return dict(sorted((entry["values"].as_py(), entry["counts"].as_py()) for entry in counted))

    # -- edges ------------------------------------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> tuple[Indices, Indices, pa.Array]:
        """The numbers of every edge's source and target, and the ids of the ends that have no node."""
        numbers, missing = [], []
        for name in ("source", "target"):
            column = _whole(self.edges.column(name))
            places = self.index.find_all(column.dictionary)
            numbers.append((places, column.indices.to_numpy(zero_copy_only=False)))
            missing.append(column.dictionary.filter(pa.array(places < 0)))
        ghosts = pc.unique(pa.concat_arrays(missing)).sort()
        ghost_index = TextIndex(ghosts)
        ends = []
        for (places, codes), texts in zip(numbers, missing, strict=True):
            known = places.copy()
            known[places < 0] = self.node_count + ghost_index.find_all(texts)
            ends.append(known[codes])
        return ends[0], ends[1], ghosts

    @property
    def dangling(self) -> pa.Array:
        """The ids that edges name and no node has, in order."""
        return self._ends[2]

    def id_of(self, number: int) -> str:
        """The semantic id of a node, or of an end that has no node."""
        if number < self.node_count:
            return str(self.nodes.column("semantic_id")[number].as_py())
        return str(self.dangling[number - self.node_count].as_py())

    def ids_of(self, numbers: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """The same for many."""
        known = _whole(self.nodes.column("semantic_id"))
        texts = pa.concat_arrays([known, self.dangling.cast(known.type)]) if len(self.dangling) else known
        return texts.take(pa.array(numbers))

    def number_of(self, semantic_id: str) -> int:
        """The number by which traversals know a node; NotFound if nothing has this id."""
        place = self.index.find(semantic_id)
        if place >= 0:
            return place
        ghost = pc.index(self.dangling, semantic_id).as_py() if len(self.dangling) else -1
        if ghost < 0:
            raise NotFound(f"no node {semantic_id!r} at version {self.version}")
        return self.node_count + int(ghost)

    def numbers_of(self, semantic_ids: pa.Array) -> Indices:
        """The numbers of many ids, -1 for those that nothing has."""
        places = self.index.find_all(semantic_ids)
        if len(self.dangling) and (places < 0).any():
            ghosts = pc.index_in(semantic_ids, value_set=self.dangling.cast(semantic_ids.type))
            numbers = pc.fill_null(ghosts, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            places = np.where((places < 0) & (numbers >= 0), numbers + self.node_count, places)
        return places

    @cached_property
    def edge_types(self) -> list[str]:
        """The types of edges; their places are the codes that adjacencies have."""
        return [str(kind) for kind in _whole(self.edges.column("type")).dictionary.to_pylist()]

    def type_codes(self, types: Sequence[str] | None) -> npt.NDArray[np.int16] | None:
        """The codes of some types of edges; None, which is all, if none are given."""
        if not types:
            return None
        wanted = [code for code, kind in enumerate(self.edge_types) if any(matches_type(p, kind) for p in types)]
        return np.array(wanted or [NO_TYPE], np.int16)  # an empty list would mean all of them

    @cached_property
    def outgoing(self) -> Adjacency:
        return self._adjacency(0, 1)

    @cached_property
    def incoming(self) -> Adjacency:
        return self._adjacency(1, 0)

    def _adjacency(self, source: int, target: int) -> Adjacency:
        ends = self._ends
        codes = _whole(self.edges.column("type")).indices.to_numpy(zero_copy_only=False).astype(np.int16)
        count = self.node_count + len(self.dangling)
        first, second = (ends[0], ends[1]) if source < target else (ends[1], ends[0])
        return Adjacency.build(count, first, second, codes)


def _encoded(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Columns with few values as numbers into a dictionary, each column in one piece."""
    for name in names:
        column = table.column(name)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        whole = encoded.unify_dictionaries().combine_chunks()
        table = table.set_column(table.schema.get_field_index(name), name, whole)
    return table.combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _with_values(column: pa.ChunkedArray, fits: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Which rows have a value that fits, asked once per value."""
    whole = _whole(column)
    flags = np.array([fits(value) for value in whole.dictionary.to_pylist()], dtype=np.bool_)
    codes = whole.indices.to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.bool_] = flags[codes] if len(flags) else np.zeros(len(codes), dtype=bool)
    return found


def _both(one: npt.NDArray[np.bool_] | None, other: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return other if one is None else one & other


def _fits(found: object, wanted: Mapping[str, object]) -> bool:
    return isinstance(found, Mapping) and all(name in found and found[name] == value for name, value in wanted.items())
