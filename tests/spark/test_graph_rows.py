"""What an executor makes sure of before it writes, and what decides how segments are read. No Spark is started here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput, BadRows, BuildFailed
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, segment_schema
from holdfast.graph.zone_map import ZoneMap
from holdfast.spark.graph_read import may_share_keys
from holdfast.spark.graph_task import OrderedRows, SegmentReceipt, decode_descriptor, encode_descriptor
from holdfast.spark.graph_write import check_receipts
from tests.spark.graphs import edge, ids, node, table_of_edges, table_of_nodes

KINDS: list[SegmentKind] = ["nodes", "edges"]


def batches(table: pa.Table, cuts: list[int]) -> Iterator[pa.RecordBatch]:
    """As Spark hands rows over: in pieces, cut anywhere, some of them empty."""
    bounds = [0, *sorted(cut % (len(table) + 1) for cut in cuts), len(table)]
    for start, end in pairwise(bounds):
        yield pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in table.slice(start, end - start).columns], names=table.column_names
        )


def table_of(kind: SegmentKind, keys: list[tuple[str, str, str]], repeats: list[int]) -> pa.Table:
    """A row for each key, some several times, in a segment's order."""
    if kind == "nodes":
        texts = sorted({key[0] for key in keys}, key=str.encode)
        return table_of_nodes([node(text) for text, n in zip(texts, repeats, strict=False) for _ in range(n)])
    several = sorted(set(keys), key=lambda key: [text.encode() for text in key])
    return table_of_edges(
        [edge(s, t, kind) for (s, kind, t), n in zip(several, repeats, strict=False) for _ in range(n)]
    )


@pytest.mark.parametrize("kind", KINDS)
@given(
    keys=st.lists(st.tuples(ids, ids, ids), max_size=12),
    repeats=st.lists(st.integers(1, 3), min_size=12, max_size=12),
    cuts=st.lists(st.integers(0, 40), max_size=6),
)
def test_rows_that_are_there_twice_are_written_once_however_they_come(
    kind: SegmentKind, keys: list[tuple[str, str, str]], repeats: list[int], cuts: list[int]
) -> None:
    """G25: each key once, in a segment's columns, whatever text it is and wherever batches end."""
    table = table_of(kind, keys, repeats)
    rows = OrderedRows(kind)

    written = list(rows.of(batches(table, cuts)))

    expected = list(dict.fromkeys(tuple(row.values()) for row in table.to_pylist()))
    found = [tuple(row.values()) for one in written for row in one.to_pylist()]
    assert found == [(*row, False) for row in expected]
    assert all(one.schema == segment_schema(kind) for one in written)
    assert (rows.rows, rows.dropped, rows.clashes) == (len(table), len(table) - len(expected), 0)
    if expected:
        assert rows.first <= rows.last


@pytest.mark.parametrize("other", [{"name": "x"}, {"metadata": "{}"}, {"file": "f"}, {"type": "U"}])
@pytest.mark.parametrize("cuts", [[], [1], [1, 2]])
def test_a_key_with_two_meanings_is_counted_and_named(other: dict[str, str], cuts: list[int]) -> None:
    """G6: also where the two are in different batches, and where one of them has no value."""
    rows = OrderedRows("nodes")
    table = table_of_nodes([node("a"), node("b"), node("b", **other), node("c")])

    with pytest.raises(BadRows):
        list(rows.of(batches(table, [cut + 1 for cut in cuts])))

    assert (rows.clashes, rows.samples) == (1, ["'b'"])


@pytest.mark.parametrize(
    "kind, table",
    [
        pytest.param("nodes", table_of_nodes([node("b"), node("a")]), id="nodes"),
        pytest.param("edges", table_of_edges([edge("a", "z"), edge("a", "b")]), id="targets"),
        pytest.param("edges", table_of_edges([edge("a", "b", "Z"), edge("a", "c", "A")]), id="types"),
        pytest.param("edges", table_of_edges([edge("b", "a"), edge("a", "b")]), id="sources"),
    ],
)
@pytest.mark.parametrize("cuts", [[], [1]])
def test_rows_in_another_order_are_refused(kind: SegmentKind, table: pa.Table, cuts: list[int]) -> None:
    """G25: a segment that is out of order would hide records from every look-up."""
    with pytest.raises(BadInput, match="another way than segments are sorted"):
        list(OrderedRows(kind).of(batches(table, cuts)))


def test_a_null_that_nobody_had_found_is_refused() -> None:
    table = table_of_nodes([node("a", file=None)])
    with pytest.raises(BadInput, match="null for 'file'"):
        list(OrderedRows("nodes").of(batches(table, [])))


def descriptor(number: int, low: str, high: str, *, hidden: int = 0, tombstones: int = 0) -> SegmentDescriptor:
    return SegmentDescriptor(
        segment_id=number,
        kind="nodes",
        path=f"segments/seg_{number:06}_nodes.seg",
        byte_size=10,
        tail_size=2,
        record_count=3,
        tombstone_count=tombstones,
        hidden_count=hidden,
        checksum="sha256:00",
        zone_map=ZoneMap(node_types=frozenset("T"), min_id=low, max_id=high),
    )


def test_a_receipt_travels_whole() -> None:
    one = descriptor(7, "\x00", "\U0001f600", hidden=2)
    receipt = SegmentReceipt(
        number=3, rows=9, dropped=1, clashes=2, samples=("'x'",), first=("a",), last=("b",), segment=one
    )

    assert SegmentReceipt.decode(receipt.encode()) == receipt
    assert SegmentReceipt.decode(SegmentReceipt(number=1, rows=0).encode()) == SegmentReceipt(number=1, rows=0)
    assert decode_descriptor(encode_descriptor(one)) == one


def test_ranges_that_could_share_a_key_are_not_published() -> None:
    """G25: segments of one build hide nothing of each other; if Spark's ranges do not say so, nobody does."""
    first = SegmentReceipt(number=0, rows=2, first=("a", "X", "a"), last=("b", "X", "b"))
    check_receipts(
        [first, SegmentReceipt(number=1, rows=0), SegmentReceipt(number=2, rows=1, first=("b", "X", "c"))], "edges"
    )

    again = SegmentReceipt(number=1, rows=1, first=("b", "X", "b"), last=("b", "Y", "b"))
    with pytest.raises(BuildFailed, match="ranges of edges that overlap"):
        check_receipts([first, again], "edges")


ranges = st.lists(st.tuples(ids, ids).map(lambda pair: tuple(sorted(pair))), max_size=8)


@given(ranges=ranges, quiet=st.booleans())
def test_segments_are_read_alone_only_if_no_other_can_have_their_keys(
    ranges: list[tuple[str, str]], quiet: bool
) -> None:
    """G24: what is read without comparing ages shares no key with anything, or nothing was ever hidden."""
    segments = [descriptor(n, low, high, hidden=0 if quiet else 1) for n, (low, high) in enumerate(ranges)]

    shared = may_share_keys(segments)

    overlapping = {
        one.segment_id
        for pair in combinations(segments, 2)
        if pair[0].zone_map.min_id <= pair[1].zone_map.max_id and pair[1].zone_map.min_id <= pair[0].zone_map.max_id
        for one in pair
    }
    assert shared == (set() if quiet else overlapping)
