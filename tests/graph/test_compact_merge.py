"""Merging as the rows come: the same as merging all of them at once, however little is held."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.graph import compact_merge, segment_writer
from holdfast.graph.compact_merge import merge_rows, merge_segments
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, segment_schema, sorted_edges, sorted_nodes
from holdfast.graph.segment_writer import encode_segment
from holdfast.storage.memory import MemoryStore

IDS = [f"n{number:02}" for number in range(12)]


@st.composite
def tables(draw: st.DrawFn, kind: SegmentKind) -> list[pa.Table]:
    """The rows of some segments. In one segment a key has a record, a tombstone or both."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        rows = []
        keys = draw(st.sets(st.tuples(st.sampled_from(IDS), st.sampled_from(["t", "u", "v"])), min_size=1, max_size=14))
        for id_, target in keys if kind == "edges" else {(id_, "") for id_, _ in keys}:
            ends = {"source": id_, "target": target} if kind == "edges" else {"semantic_id": id_, "name": f"{number}"}
            for gone in draw(st.sampled_from([[False], [True], [True, False]])):
                file = draw(st.sampled_from(["x", "y"]))
                rows.append({**ends, "type": "T", "file": file, "metadata": f"{number}", "tombstone": gone})
        complete = [{name: row.get(name) for name in segment_schema(kind).names} for row in rows]
        table = pa.Table.from_pylist(complete, schema=segment_schema(kind))
        found.append(sorted_nodes(table) if kind == "nodes" else sorted_edges(table))
    return found


@given(
    data=st.data(),
    kind=st.sampled_from(["nodes", "edges"]),
    group_rows=st.integers(1, 5),
    buffer_rows=st.sampled_from([1, 4, 9, 1000]),
    readers=st.integers(1, 3),
    drop=st.booleans(),
)
@settings(max_examples=60)
def test_rows_that_come_some_at_a_time_are_merged_as_if_all_were_there(
    data: st.DataObject, kind: SegmentKind, group_rows: int, buffer_rows: int, readers: int, drop: bool
) -> None:
    """G16, G17: whatever the row groups and however little is held, no row is lost, doubled or merged too early."""
    rows = data.draw(tables(kind))
    store = MemoryStore()
    segments: list[SegmentDescriptor] = []
    with patch.object(segment_writer, "ROW_GROUP_ROWS", group_rows), patch.object(compact_merge, "READERS", readers):
        for number, table in enumerate(rows):
            encoded, descriptor = encode_segment(kind, table, segment_id=number, path=f"{number}", hidden_count=0)
            store.put_new(f"{number}", encoded)
            segments.append(descriptor)
        merged = list(merge_segments(store, segments, drop_tombstones=drop, buffer_rows=buffer_rows))
    whole = merge_rows(kind, pa.concat_tables(rows), drop_tombstones=drop)
    assert [row for table in merged for row in table.to_pylist()] == whole.to_pylist()
    ids = [set(table.column("semantic_id" if kind == "nodes" else "source").to_pylist()) for table in merged]
    assert sum(map(len, ids)) == len(set[str]().union(*ids))
