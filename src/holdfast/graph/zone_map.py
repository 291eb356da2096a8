"""Zone maps: what a segment may contain, so that a query opens only the segments that matter (G3, G4).

`False` from `may_contain` is certain; `True` only says that it is worth looking. A list that would grow too long is
capped: then it says "anything may be here", never a wrong "no". A tombstone counts as what it removes, so that a
segment that hides a record is opened by every query that could have found that record.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.codec import Fields, Json
from holdfast.errors import BadInput, CorruptRecord

__all__ = ["ZoneMap", "ZoneMapBuilder", "matches_type"]

VALUES_MAX = 256
"""Values of one list; more, and it is capped."""
_LISTS = ("node_types", "file_paths", "edge_types")


def matches_type(pattern: str, kind: str) -> bool:
    """Whether a type is the one asked for; `http:*` asks for all that begin with `http:`."""
    return kind.startswith(pattern[:-1]) if pattern.endswith(":*") else kind == pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneMap:
    """What may be in one segment. An empty list is left out of manifests; None is a capped one."""

    node_types: frozenset[str] | None = frozenset()
    file_paths: frozenset[str] | None = frozenset()
    edge_types: frozenset[str] | None = frozenset()
    min_id: str
    """The smallest semantic id: of the nodes, or of the sources of the edges."""
    max_id: str

    def may_contain(
        self,
        *,
        node_type: str | None = None,
        file_path: str | None = None,
        edge_type: str | None = None,
        semantic_id: str | None = None,
    ) -> bool:
        """Whether a record that fits all that is given may be here. A filter of the other kind finds nothing."""
        return (
            _may_have_type(self.node_types, node_type)
            and _may_have_type(self.edge_types, edge_type)
            and (file_path is None or self.file_paths is None or file_path in self.file_paths)
            and (semantic_id is None or self.min_id <= semantic_id <= self.max_id)
        )

    def to_json(self) -> Json:
        record: Json = {}
        capped = [name for name in _LISTS if getattr(self, name) is None]
        for name in _LISTS:
            values = getattr(self, name)
            if values:
                record[name] = sorted(values)
        if capped:
            record["anything"] = capped
        return record | {"min_id": self.min_id, "max_id": self.max_id}

    @classmethod
    def from_fields(cls, fields: Fields) -> ZoneMap:
        capped = fields.texts("anything")
        lists: dict[str, frozenset[str] | None] = {name: frozenset(fields.texts(name)) for name in _LISTS}
        for name in capped:
            if name not in lists or lists[name]:
                raise CorruptRecord(fields.key, f"zone map: {name!r} cannot be capped")
            lists[name] = None
        low, high = fields.text("min_id"), fields.text("max_id")
        if low > high:
            raise CorruptRecord(fields.key, "zone map: the smallest id is above the largest")
        return cls(
            node_types=lists["node_types"],
            file_paths=lists["file_paths"],
            edge_types=lists["edge_types"],
            min_id=low,
            max_id=high,
        )


def _may_have_type(known: frozenset[str] | None, wanted: str | None) -> bool:
    return wanted is None or known is None or any(matches_type(wanted, kind) for kind in known)


class ZoneMapBuilder:
    """The zone map of rows that come in a segment's order, some at a time."""

    def __init__(self, kind: str) -> None:
        self._id, self._types = ("semantic_id", "node_types") if kind == "nodes" else ("source", "edge_types")
        self._type_values: set[str] | None = set()
        self._files: set[str] | None = set()
        self._first: str | None = None
        self._last = ""

    def add(self, rows: pa.Table) -> None:
        self._type_values = _grown(self._type_values, rows.column("type"))
        self._files = _grown(self._files, rows.column("file"))
        ids = rows.column(self._id)
        if self._first is None:
            self._first = ids[0].as_py()
        self._last = ids[-1].as_py()

    def finish(self) -> ZoneMap:
        if self._first is None:
            raise BadInput("a segment without rows has no zone map")
        types, files = (None if many is None else frozenset(many) for many in (self._type_values, self._files))
        if self._types == "node_types":
            return ZoneMap(node_types=types, file_paths=files, min_id=self._first, max_id=self._last)
        return ZoneMap(edge_types=types, file_paths=files, min_id=self._first, max_id=self._last)


def _grown(known: set[str] | None, column: pa.ChunkedArray) -> set[str] | None:
    """With the values of one more column; None once there are too many."""
    if known is None:
        return None
    unique = pc.unique(column)
    if len(unique) > VALUES_MAX:
        return None
    known.update(str(value) for value in unique.to_pylist())
    return known if len(known) <= VALUES_MAX else None
