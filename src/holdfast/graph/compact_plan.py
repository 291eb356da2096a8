"""Which segments a compaction merges (G17). Numbers only: no store, no rows.

1. Per kind, in the order of age. Only neighbours are merged, because the newer wins.
2. Segments that one merge cut to size, each behind the end of the one before, are one sorted run and count as one.
3. A run of at most 8,192 rows is of level 0; each level has eight times the rows of the one below (`fan`).
4. From the oldest to the newest: once the newest eight runs so far, or more, are of no higher level than the very
   newest, they become one. So fewer than eight runs are left that have the same highest level behind them, which makes
   fewer than 8 x (1 + log8(rows / 8,192)) in all, whatever was committed and in which order.
5. Where commits are alike, a row is written again once a level. A run of some level is taken along without rising only
   when another of that level has come, and after eight of those it is of the next: never more than eight times a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from holdfast.graph.segment import SegmentDescriptor

__all__ = ["FAN", "SEGMENT_ROWS_MAX", "MergeGroup", "plan_all", "plan_tiers", "sorted_runs"]

FAN = 8
LEVEL_ROWS = 8_192
SEGMENT_ROWS_MAX = 524_288
"""Rows of one segment that a compaction writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeGroup:
    """Neighbours, the oldest first, that become one sorted run."""

    start: int
    """The place of the first among all segments of its kind: 0 if nothing is older."""
    segments: tuple[SegmentDescriptor, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.segments)

    @property
    def rows(self) -> int:
        return sum(map(rows_of, self.segments))

    @property
    def drops_tombstones(self) -> bool:
        """Nothing older is left that one could hide."""
        return self.start == 0

    @property
    def net_records(self) -> int:
        """By how much these change the number of records that are seen."""
        return sum(segment.record_count - segment.hidden_count for segment in self.segments)


def rows_of(segment: SegmentDescriptor) -> int:
    return segment.record_count + segment.tombstone_count


def plan_tiers(
    segments: Sequence[SegmentDescriptor], *, fan: int = FAN, rows_max: int = SEGMENT_ROWS_MAX
) -> list[MergeGroup]:
    """What regular compaction merges, the oldest first; nothing if all is well."""
    stack: list[tuple[int, list[MergeGroup]]] = []  # rows, and the runs that become one
    for run in sorted_runs(segments, rows_max=rows_max):
        stack.append((run.rows, [run]))
        while True:
            level = _level(stack[-1][0], fan)
            count = 0
            while count < len(stack) and _level(stack[-1 - count][0], fan) <= level:
                count += 1
            if count < fan:
                break
            joined = stack[-count:]
            stack[-count:] = [(sum(rows for rows, _ in joined), [run for _, runs in joined for run in runs])]
    return [_joined(runs) for _, runs in stack if len(runs) > 1]


def plan_all(segments: Sequence[SegmentDescriptor], *, rows_max: int = SEGMENT_ROWS_MAX) -> list[MergeGroup]:
    """Everything, into one sorted run; nothing if it is one already and hides nothing."""
    runs = sorted_runs(segments, rows_max=rows_max)
    if not segments or (len(runs) == 1 and not any(segment.tombstone_count for segment in segments)):
        return []
    return [_joined(runs)]


def sorted_runs(segments: Sequence[SegmentDescriptor], *, rows_max: int = SEGMENT_ROWS_MAX) -> list[MergeGroup]:
    """Segments by the runs that they are cut from. All of a run but its last are at least half full: otherwise commits
    that happen to come in the order of their ids would be a run, and never be merged."""
    runs: list[list[SegmentDescriptor]] = []
    for segment in segments:
        before = runs[-1][-1] if runs else None
        goes_on = before is not None and before.zone_map.max_id <= segment.zone_map.min_id
        if before is not None and goes_on and 2 * rows_of(before) >= rows_max:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    starts = accumulate(map(len, runs), initial=0)
    return [MergeGroup(start=start, segments=tuple(run)) for start, run in zip(starts, runs, strict=False)]


def _level(rows: int, fan: int) -> int:
    level = 0
    while rows > LEVEL_ROWS:
        rows = -(-rows // fan)
        level += 1
    return level


def _joined(runs: Sequence[MergeGroup]) -> MergeGroup:
    return MergeGroup(start=runs[0].start, segments=tuple(segment for run in runs for segment in run.segments))
