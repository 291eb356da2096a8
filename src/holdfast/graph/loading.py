"""From the rows of segments to a version in memory (G16): newest wins, tombstones hide, texts become numbers.

No text is compared with another where a number will do: every end of every edge is looked up once per row group it is
in, and what hides what is then decided on numbers. No Python per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.arrays import GraphArrays, one_piece
from holdfast.graph.encoding import coded
from holdfast.graph.index import TextIndex
from holdfast.graph.merge import live_nodes, newest_rows
from holdfast.graph.records import node_schema

__all__ = ["load_arrays"]

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Coded:
    """A column as numbers into texts that may repeat."""

    codes: npt.NDArray[np.int64]
    texts: pa.Array


def load_arrays(nodes: Sequence[pa.Table], edges: Sequence[pa.Table], *, version: int) -> GraphArrays:
    """What is there once newer segments have hidden what older ones say; the oldest first."""
    live = _encoded(live_nodes(nodes).select(node_schema().names), ("type", "file"))
    index = TextIndex(one_piece(live.column("semantic_id")))
    columns = {name: [column for table in edges for column in table.column(name).chunks] for name in _EDGE_TEXTS}
    sources, targets = _runs(columns["source"]), _dictionaries(columns["target"])
    ends, ghosts = _numbered([sources, targets], index)
    types, type_names = _sorted_codes(_dictionaries(columns["type"]))
    files, file_names = _sorted_codes(_dictionaries(columns["file"]))
    metadata = _concat([column for table in edges for column in table.column("metadata").chunks])
    tombstones = _concat([c for t in edges for c in t.column("tombstone").chunks], pa.bool_())
    gone = tombstones.to_numpy(zero_copy_only=False)
    if len(edges) > 1 or gone.any():
        keys = (ends[0].astype(np.int64) * (len(index) + len(ghosts)) + ends[1]) * max(1, len(type_names)) + types
        rows = newest_rows(keys, gone)
        ends, types, files = [end[rows] for end in ends], types[rows], files[rows]
        metadata = metadata.take(pa.array(rows))
        ends, ghosts = _named_ghosts(ends, ghosts, len(index))
    return GraphArrays(
        version=version,
        nodes=live,
        sources=ends[0],
        targets=ends[1],
        types=types.astype(np.int16),
        files=files.astype(np.int32),
        metadata=metadata,
        type_names=[str(name) for name in type_names.to_pylist()],
        file_names=file_names,
        ghosts=ghosts,
    )


_EDGE_TEXTS = ("source", "target", "type", "file")


def _runs(chunks: Sequence[pa.Array]) -> _Coded:
    """A sorted column: each text once per run of rows that have it."""
    if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        return _dictionaries(chunks)
    ends, texts, start = [np.zeros(1, np.int64)], [], 0
    for chunk in chunks:
        encoded = pc.run_end_encode(chunk, run_end_type=pa.int64())
        ends.append(encoded.run_ends.to_numpy() + start)
        texts.append(encoded.values)
        start += len(chunk)
    bounds = np.concatenate(ends)
    return _Coded(np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)), _concat(texts))


def _dictionaries(chunks: Sequence[pa.Array]) -> _Coded:
    return _Coded(*coded(chunks))


def _numbered(columns: Sequence[_Coded], index: TextIndex) -> tuple[list[Numbers], pa.Array]:
    """The numbers of ends, and the ids of those that have no node: these are numbered behind all nodes."""
    places = [index.find_all(column.texts) for column in columns]
    missing = [column.texts.filter(pa.array(place < 0)) for column, place in zip(columns, places, strict=True)]
    ghosts = pc.unique(pa.concat_arrays(missing))
    ghosts = ghosts.take(pc.sort_indices(ghosts))
    ghost_index = TextIndex(ghosts)
    for place, texts in zip(places, missing, strict=True):
        place[place < 0] = len(index) + ghost_index.find_all(texts)
    ends = [place.astype(np.int32)[column.codes] for column, place in zip(columns, places, strict=True)]
    return ends, ghosts


def _named_ghosts(ends: list[Numbers], ghosts: pa.Array, node_count: int) -> tuple[list[Numbers], pa.Array]:
    """Only those ends without a node that an edge still names, once hidden edges are gone."""
    if not len(ghosts):
        return ends, ghosts
    named = np.zeros(len(ghosts), np.bool_)
    for end in ends:
        named[end[end >= node_count] - node_count] = True
    moved = np.concatenate([np.arange(node_count), node_count + np.cumsum(named) - 1]).astype(np.int32)
    return [moved[end] for end in ends], ghosts.filter(pa.array(named))


def _sorted_codes(column: _Coded) -> tuple[npt.NDArray[Any], pa.Array]:
    """A column of few different texts as numbers into these, sorted. Texts that no row has are left out."""
    used = np.bincount(column.codes, minlength=len(column.texts)) > 0
    names = pc.unique(column.texts.filter(pa.array(used)))
    names = names.take(pc.sort_indices(names))
    ranks = pc.fill_null(pc.index_in(column.texts, value_set=names), 0).to_numpy(zero_copy_only=False)
    return ranks[column.codes], names


def _concat(chunks: Sequence[pa.Array], kind: pa.DataType | None = None) -> pa.Array:
    return pa.concat_arrays(chunks) if chunks else pa.array([], kind or pa.string())


def _encoded(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Columns with few values as numbers into one dictionary, sorted; each column in one piece."""
    for name in names:
        codes, values = _sorted_codes(_dictionaries(table.column(name).chunks))
        column = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.combine_chunks()
