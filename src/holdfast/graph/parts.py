"""Which segments a manifest lists itself and which its parts list, so that a commit writes what changes (G19).

1. At most 64 segments are listed by the manifest. When there are more, the oldest 64 become a part of level 0.
2. When there are 64 parts of a level, the oldest 64 become one part of the next. So a manifest of n segments names
   fewer than 64 parts of each of log64(n) levels, and each segment is written once a level, whatever is committed.
3. Parts stand in the order of age, which is the order of falling levels. For each kind of segment, what the parts list
   and then what the manifest lists is one list, the oldest first: no rearrangement ever changes it.
4. Taking segments away rewrites the parts that list them, and no others. A part says between which ids its segments
   are, so most of the others need not even be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.chain import Artifact, ChainHandle, Manifest
from holdfast.chain.manifest import PARTS_KIND
from holdfast.chain.parts import PartReader, describe_part, encode_part
from holdfast.codec import Fields, Json
from holdfast.errors import BadInput, CorruptRecord

__all__ = ["INLINE_MAX", "PART_FANOUT", "Arrangement", "KindTotals", "arrange", "totals"]

INLINE_MAX = 64
PART_FANOUT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What the next manifest lists, and the files that have to be there before it is published."""

    inline: tuple[Artifact, ...]
    parts: tuple[Artifact, ...]
    files: Mapping[str, bytes]
    """New parts by their keys. The run claims these keys, then writes them."""

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """All that the draft of the manifest names."""
        return (*self.inline, *self.parts)


class KindTotals(NamedTuple):
    """Sums over the segments of one kind."""

    segments: int = 0
    records: int = 0
    hidden: int = 0


class _Group:
    """A part to be: one that is stored, or what a new one will list."""

    __slots__ = ("held", "level", "stored")

    def __init__(self, level: int, *, stored: Artifact | None = None, held: list[Artifact] | None = None) -> None:
        self.level = level
        self.stored = stored
        self.held = held


def arrange(
    handle: ChainHandle,
    base: Manifest | None,
    added: Sequence[Artifact],
    removed_ids: Collection[int] = (),
    *,
    new_part: Callable[[], str],
    in_place: bool = False,
) -> Arrangement:
    """The segments of `base` without those that leave and with those that come, which are the newest.

    `in_place` puts those that come where the newest segment of their kind was that leaves, as a compaction must: what
    was newer than all it merged stays newer. `new_part` gives the key of a new part.
    """
    reader = PartReader(handle)
    listed = () if base is None else base.artifacts
    inline = [artifact for artifact in listed if artifact.kind != PARTS_KIND]
    groups = _stored_groups(artifact for artifact in listed if artifact.kind == PARTS_KIND)
    _open_groups(reader, groups, inline, frozenset(removed_ids))
    held = [group.held for group in groups if group.held is not None]
    _put([*held, inline], added, frozenset(removed_ids), in_place=in_place)
    groups = [group for group in groups if group.held != []]
    inline, spilled = _spill(inline)
    groups = _merge(reader, groups + [_Group(0, held=chunk) for chunk in spilled])
    files: dict[str, bytes] = {}
    parts = []
    for group in groups:
        if group.stored is not None:
            parts.append(group.stored)
        elif group.held:
            path, data = new_part(), encode_part(group.held, handle.layout.names)
            parts.append(describe_part(path, data, group.held, detail=_detail(group.held, group.level)))
            files[path] = data
    return Arrangement(inline=tuple(inline), parts=tuple(parts), files=files)


def totals(artifacts: Iterable[Artifact]) -> dict[str, KindTotals]:
    """The sums over everything that a manifest lists, those in its parts included, without reading these."""
    sums: dict[str, KindTotals] = {}

    def add(kind: str, segments: int, records: int, hidden: int) -> None:
        before = sums.get(kind, KindTotals())
        sums[kind] = KindTotals(before.segments + segments, before.records + records, before.hidden + hidden)

    for artifact in artifacts:
        if artifact.kind != PARTS_KIND:
            add(artifact.kind, 1, artifact.row_count, _hidden(artifact))
            continue
        fields = Fields(artifact.detail, key=artifact.path)
        counts, records, hidden = (fields.number_mapping(name) for name in ("segments", "records", "hidden"))
        for kind in counts:
            add(kind, counts[kind], records.get(kind, 0), hidden.get(kind, 0))
    return sums


# -- what is there -----------------------------------------------------------------------------------------------------


def _stored_groups(parts: Iterable[Artifact]) -> list[_Group]:
    groups = [_Group(Fields(part.detail, key=part.path).number("level"), stored=part) for part in parts]
    levels = [group.level for group in groups]
    if levels != sorted(levels, reverse=True):
        raise CorruptRecord(PARTS_KIND, f"the parts of a manifest are not in the order of falling levels: {levels}")
    return groups


def _open_groups(reader: PartReader, groups: list[_Group], inline: list[Artifact], removed: frozenset[int]) -> None:
    """Read the parts that list a segment which leaves. BadInput if one that is to leave is nowhere."""
    missing = set(removed) - {_segment_id(artifact) for artifact in inline}
    for group in reversed(groups):  # what leaves is mostly young
        if not missing or group.stored is None:
            break
        first, last = _id_range(group.stored)
        if not any(first <= segment_id <= last for segment_id in missing):
            continue
        held = list(reader.load(group.stored))
        found = missing & {_segment_id(artifact) for artifact in held}
        if found:
            missing -= found
            group.held, group.stored = held, None
    if missing:
        raise BadInput(f"segment {min(missing)} is not there, so it cannot be taken away")


def _put(
    containers: list[list[Artifact]], added: Sequence[Artifact], removed: frozenset[int], *, in_place: bool
) -> None:
    """Take out what leaves and put in what comes; `containers` are in the order of age, and the last is the manifest's
    own list."""
    for kind in dict.fromkeys(artifact.kind for artifact in added):
        coming = [artifact for artifact in added if artifact.kind == kind]
        container, position = containers[-1], len(containers[-1])
        if in_place:
            container, position = _newest_leaving(containers, kind, removed) or (container, position)
        container[position:position] = coming
    for container in containers:
        container[:] = [artifact for artifact in container if _segment_id(artifact) not in removed]


def _newest_leaving(
    containers: list[list[Artifact]], kind: str, removed: frozenset[int]
) -> tuple[list[Artifact], int] | None:
    for container in reversed(containers):
        for position in range(len(container) - 1, -1, -1):
            if container[position].kind == kind and _segment_id(container[position]) in removed:
                return container, position
    return None


# -- keeping it small --------------------------------------------------------------------------------------------------


def _spill(inline: list[Artifact]) -> tuple[list[Artifact], list[list[Artifact]]]:
    """What stays in the manifest, and the older ones in pieces for new parts.

    Each piece takes the oldest of every kind, in proportion: how kinds mix does not matter, only the order within each.
    """
    kinds: dict[str, list[Artifact]] = {}
    for artifact in inline:
        kinds.setdefault(artifact.kind, []).append(artifact)
    taken = Counter(dict.fromkeys(kinds, 0))
    pieces = []
    for _ in range(max(0, -(-(len(inline) - INLINE_MAX) // PART_FANOUT))):
        left = {kind: len(many) - taken[kind] for kind, many in kinds.items()}
        whole = sum(left.values())
        share = {kind: PART_FANOUT * count // whole for kind, count in left.items()}
        for kind, count in left.items():  # what rounding left over
            share[kind] += min(count - share[kind], PART_FANOUT - sum(share.values()))
        pieces.append([one for kind, many in kinds.items() for one in many[taken[kind] : taken[kind] + share[kind]]])
        taken.update(share)
    return [one for kind, many in kinds.items() for one in many[taken[kind] :]], pieces


def _merge(reader: PartReader, groups: list[_Group]) -> list[_Group]:
    """As long as there are 64 of a level, the oldest 64 of them become one of the next."""
    level = 0
    while any(group.level >= level for group in groups):
        first = next((place for place, group in enumerate(groups) if group.level == level), len(groups))
        count = sum(group.level == level for group in groups)
        whole = count - count % PART_FANOUT
        merged = [
            _Group(level + 1, held=_contents(reader, groups[start : start + PART_FANOUT]))
            for start in range(first, first + whole, PART_FANOUT)
        ]
        groups[first : first + whole] = merged
        level += 1
    return groups


def _contents(reader: PartReader, groups: Sequence[_Group]) -> list[Artifact]:
    stored = [group.stored for group in groups if group.stored is not None]
    loaded = dict(zip((part.path for part in stored), reader.load_all(stored), strict=True))
    found: list[Artifact] = []
    for group in groups:
        found += loaded[group.stored.path] if group.stored is not None else group.held or ()
    return found


# -- what a descriptor says --------------------------------------------------------------------------------------------


def _detail(held: Sequence[Artifact], level: int) -> Json:
    ids = [_segment_id(artifact) for artifact in held]
    sums = totals(held)
    return {
        "level": level,
        "first_segment_id": min(ids),
        "last_segment_id": max(ids),
        "segments": {kind: total.segments for kind, total in sums.items()},
        "records": {kind: total.records for kind, total in sums.items()},
        "hidden": {kind: total.hidden for kind, total in sums.items()},
    }


def _id_range(part: Artifact) -> tuple[int, int]:
    fields = Fields(part.detail, key=part.path)
    return fields.number("first_segment_id"), fields.number("last_segment_id")


def _segment_id(artifact: Artifact) -> int:
    found = artifact.detail.get("segment_id")
    if not isinstance(found, int) or isinstance(found, bool):
        raise CorruptRecord(artifact.path, "its descriptor has no segment id")
    return found


def _hidden(artifact: Artifact) -> int:
    found = artifact.detail.get("hidden_count", 0)
    return found if isinstance(found, int) else 0
