"""Which segments are merged: numbers beside numbers, and the bounds that the rule promises."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.graph.compact_merge import merge_rows
from holdfast.graph.compact_plan import LEVEL_ROWS, MergeGroup, plan_all, plan_tiers, sorted_runs
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, segment_schema
from holdfast.graph.zone_map import ZoneMap

FAN = 8


def segment(number: int, rows: int, ids: tuple[str, str] = ("a", "z")) -> SegmentDescriptor:
    return SegmentDescriptor(
        segment_id=number,
        kind="nodes",
        path=f"{number}",
        byte_size=rows,
        tail_size=0,
        record_count=rows,
        tombstone_count=0,
        hidden_count=0,
        checksum="",
        zone_map=ZoneMap(min_id=ids[0], max_id=ids[1]),
    )


def bound(rows: int, fan: int = FAN) -> float:
    levels = 1 + max(0, math.ceil(math.log(max(1, rows / LEVEL_ROWS), fan)))
    return (fan - 1) * levels


def merged(segments: list[SegmentDescriptor], groups: list[MergeGroup], number: int) -> list[SegmentDescriptor]:
    """After the merges, if nothing hides anything."""
    for group in reversed(groups):
        number += 1
        segments[group.start : group.end] = [segment(number, group.rows)]
    return segments


@given(sizes=st.lists(st.integers(1, 1 << 22), max_size=120), fan=st.integers(2, 9))
def test_few_runs_are_left_whatever_was_committed(sizes: list[int], fan: int) -> None:
    """G17: fewer than `fan` of a level, for every level there is; groups are neighbours, disjoint, in order."""
    segments = [segment(number, rows) for number, rows in enumerate(sizes)]
    groups = plan_tiers(segments, fan=fan, rows_max=1 << 40)
    end = 0
    for group in groups:
        assert group.start >= end
        assert list(group.segments) == segments[group.start : group.end]
        assert len(group.segments) > 1
        end = group.end
    left = merged(list(segments), groups, len(sizes))
    assert len(left) <= bound(sum(sizes), fan)
    assert plan_tiers(left, fan=fan, rows_max=1 << 40) == []


@given(st.lists(st.sampled_from([1, 10, 3_000, 8_192, 70_000, 600_000]), min_size=1, max_size=400), st.integers(1, 9))
def test_a_graph_that_is_looked_after_stays_small_and_is_not_written_over_and_over(
    commits: list[int], every: int
) -> None:
    """G17: after any number of commits the runs are few, and a row was written at most `fan` times a level."""
    segments: list[SegmentDescriptor] = []
    written = number = 0
    for place, rows in enumerate(commits):
        number += 1
        segments.append(segment(number, rows))
        if place % every == 0:
            groups = plan_tiers(segments, rows_max=1 << 40)
            written += sum(group.rows for group in groups)
            number += len(groups)
            segments = merged(segments, groups, number)
            assert len(segments) <= bound(sum(commits[: place + 1]))
    levels = 1 + math.ceil(math.log(max(1, sum(commits) / LEVEL_ROWS), FAN))
    assert written <= FAN * levels * sum(commits)


def test_commits_that_are_alike_are_written_again_once_a_level() -> None:
    """G17: the usual cost: 4,096 commits of 8,192 rows are 4 levels above one commit."""
    segments: list[SegmentDescriptor] = []
    written = 0
    for number in range(8**4):
        segments.append(segment(number, LEVEL_ROWS))
        groups = plan_tiers(segments, rows_max=1 << 40)
        written += sum(group.rows for group in groups)
        segments = merged(segments, groups, 10**6 + number)
    # what completes a level completes the one below at the same time, so some levels are skipped
    assert len(segments) == 1
    assert written <= 4 * 8**4 * LEVEL_ROWS


def test_what_one_merge_cut_to_size_is_one_run_and_is_left_alone() -> None:
    """G17: otherwise a large graph would be merged again for ever; and commits in the order of ids are no such run."""
    cut = [segment(number, 100, (f"{number:03}a", f"{number:03}z")) for number in range(50)]
    assert [len(run.segments) for run in sorted_runs(cut, rows_max=100)] == [50]
    assert plan_tiers(cut, rows_max=100) == []
    assert plan_all(cut, rows_max=100) == []
    assert len(sorted_runs(cut, rows_max=10_000)) == 50
    (group,) = plan_all(cut, rows_max=10_000)
    assert (group.start, len(group.segments)) == (0, 50)
    (left_over,) = plan_all([replace(cut[0], tombstone_count=1)], rows_max=100)
    assert left_over.drops_tombstones
    backwards = cut[::-1]
    assert len(sorted_runs(backwards, rows_max=100)) == 50


# -- rows -------------------------------------------------------------------------------------------------------------

rows_of_a_key = st.lists(st.tuples(st.booleans(), st.sampled_from(["T", "U"]), st.sampled_from(["x", "y"])), max_size=5)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "ü"]), rows_of_a_key), st.booleans(), st.sampled_from(["nodes", "edges"])
)
def test_rows_are_merged_as_a_person_would(
    histories: dict[str, list[tuple[bool, str, str]]], drop: bool, kind: SegmentKind
) -> None:
    """G16: the newest row of a key decides, and the oldest says what is hidden below."""
    given_rows, expected = [], []
    fixed = {"nodes": {"name": "n"}, "edges": {"target": "t", "type": "E"}}[kind]
    id_name = {"nodes": "semantic_id", "edges": "source"}[kind]

    def row(key: str, step: int, gone: bool, type_: str, file: str) -> dict[str, object]:
        return {"type": type_, **fixed, id_name: key, "file": file, "metadata": f"{step}", "tombstone": gone}

    for step in range(5):
        for key, steps in histories.items():
            if step < len(steps):
                given_rows.append(row(key, step, *steps[step]))
    for key in sorted(histories):
        told = [row(key, step, *one) for step, one in enumerate(histories[key])]
        if not told:
            continue
        oldest, newest = told[0], told[-1]
        moved = (oldest["type"], oldest["file"]) != (newest["type"], newest["file"])
        if not drop and (newest["tombstone"] or moved):
            expected.append({**oldest, "tombstone": True})
        if not newest["tombstone"]:
            expected.append(newest)
    schema = segment_schema(kind)
    table = pa.Table.from_pylist(
        [{name: None, **one} for one in given_rows for name in ["content_hash"]], schema=schema
    )
    found = merge_rows(kind, table, drop_tombstones=drop)
    assert found.schema.names == schema.names
    assert found.to_pylist() == pa.Table.from_pylist(expected, schema=schema).to_pylist()
