"""Looking at rows before they are written: null, oversized and duplicate keys (K2).

Rows come in the order of their hashes, so that equal keys are neighbours. What is wrong is counted to the end of the
shard, with samples, and nothing of the shard is kept: a person mends all rows at once instead of one per attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.codec import Json
from holdfast.errors import BadInput, BadRows
from holdfast.kv.keys import KEY_BYTES_MAX, Key, KeySchema
from holdfast.xxh64 import Hashes

__all__ = ["SAMPLES_MAX", "BadRowReport", "OnDuplicate", "RowCheck", "key_at", "plain"]

SAMPLES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDuplicate:
    """What to do about rows with the same key: refuse them, keep the last, or the one with the largest `column`."""

    rule: str = "error"
    column: str | None = None

    @classmethod
    def parse(cls, text: str) -> OnDuplicate:
        if text in {"error", "last"}:
            return cls(rule=text)
        if text.startswith("max(") and text.endswith(")") and text[4:-1].strip():
            return cls(rule="max", column=text[4:-1].strip())
        raise BadInput(f"on_duplicate {text!r}: use error, last or max(COLUMN)")

    def __str__(self) -> str:
        return self.rule if self.column is None else f"{self.rule}({self.column})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRowReport:
    """What is wrong with the keys of some rows."""

    null_count: int = 0
    null_samples: tuple[str, ...] = ()
    duplicate_count: int = 0
    duplicate_samples: tuple[str, ...] = ()
    oversized_count: int = 0
    oversized_samples: tuple[str, ...] = ()
    contradicted_count: int = 0
    """Keys that a change set both upserts and deletes."""
    contradicted_samples: tuple[str, ...] = ()
    null_value_count: int = 0
    """Upserts with a null in a column that has none in the data set."""
    null_value_samples: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__dataclass_fields__ if name.endswith("_count"))

    def __add__(self, other: BadRowReport) -> BadRowReport:
        return BadRowReport(
            null_count=self.null_count + other.null_count,
            null_samples=(self.null_samples + other.null_samples)[:SAMPLES_MAX],
            duplicate_count=self.duplicate_count + other.duplicate_count,
            duplicate_samples=(self.duplicate_samples + other.duplicate_samples)[:SAMPLES_MAX],
            oversized_count=self.oversized_count + other.oversized_count,
            oversized_samples=(self.oversized_samples + other.oversized_samples)[:SAMPLES_MAX],
            contradicted_count=self.contradicted_count + other.contradicted_count,
            contradicted_samples=(self.contradicted_samples + other.contradicted_samples)[:SAMPLES_MAX],
            null_value_count=self.null_value_count + other.null_value_count,
            null_value_samples=(self.null_value_samples + other.null_value_samples)[:SAMPLES_MAX],
        )

    def to_json(self) -> Json:
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name in self.__dataclass_fields__
            if (value := getattr(self, name))
        }

    @classmethod
    def from_json(cls, found: Json) -> BadRowReport:
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in found.items()})  # type: ignore[arg-type]

    def error(self) -> BadRows:
        """The same in words."""
        parts = []
        if self.null_count:
            parts.append(f"{self.null_count:,} with a null in the key (such as {'; '.join(self.null_samples)})")
        if self.duplicate_count:
            parts.append(
                f"{self.duplicate_count:,} with a key that another row has "
                f"(such as {', '.join(self.duplicate_samples)}); on_duplicate='last' or 'max(COLUMN)' would choose one"
            )
        if self.oversized_count:
            parts.append(
                f"{self.oversized_count:,} with a key longer than {KEY_BYTES_MAX:,} bytes "
                f"(such as {', '.join(self.oversized_samples)})"
            )
        if self.contradicted_count:
            parts.append(
                f"for {self.contradicted_count:,} keys that are upserted and deleted at once "
                f"(such as {', '.join(self.contradicted_samples)}); leave out one of the two"
            )
        if self.null_value_count:
            parts.append(
                f"{self.null_value_count:,} with a null in a column that has none here "
                f"(such as {'; '.join(self.null_value_samples)})"
            )
        return BadRows(f"nothing was published: there are rows {', and rows '.join(parts)}")


@dataclass(slots=True)
class RowCheck:
    """Checks the rows of one shard, batch by batch."""

    key: KeySchema
    on_duplicate: OnDuplicate
    report: BadRowReport = field(default_factory=BadRowReport)
    dropped: int = 0
    """Rows that gave way to another with the same key."""

    def null_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without nulls in their key; the others are counted."""
        bad: npt.NDArray[np.bool_] | None = None
        for name in self.key.names:
            column = batch.column(name)
            if pa.types.is_dictionary(column.type):  # whose values may be null where its indices are not
                column = column.dictionary_decode()
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                bad = nulls if bad is None else bad | nulls
        if bad is None:
            return batch
        indices = np.flatnonzero(bad)
        samples = batch.take(pa.array(indices[:SAMPLES_MAX])).to_pylist()
        self.report += BadRowReport(
            null_count=len(indices), null_samples=tuple(f"{sample!r:.120}" for sample in samples)
        )
        return batch.filter(pa.array(~bad))

    def oversized_keys(self, batch: pa.RecordBatch) -> None:
        for column in self.key.columns:
            if not column.kind.is_variable:
                continue
            lengths = pc.binary_length(batch.column(column.name))
            if (pc.max(lengths).as_py() or 0) <= KEY_BYTES_MAX:
                continue
            indices = np.flatnonzero(pc.greater(lengths, KEY_BYTES_MAX).to_numpy(zero_copy_only=False))
            samples = tuple(f"{key_at(self.key, batch, int(index))!r:.60}…" for index in indices[:SAMPLES_MAX])
            self.report += BadRowReport(oversized_count=len(indices), oversized_samples=samples)

    def duplicates(self, batch: pa.RecordBatch, hashes: Hashes, seen: int) -> tuple[pa.RecordBatch, Hashes]:
        """Rows with one row per key. The first `seen` rows were looked at before, and have been made unique."""
        twins = np.flatnonzero(hashes[1:] == hashes[:-1])
        if not len(twins):
            return batch, hashes
        equal = self._same_keys(batch, twins)
        if not equal.all():  # two keys with one hash: neighbours no longer tell, so these few are looked at one by one
            return self._collisions(batch, hashes, seen)
        if self.on_duplicate.rule == "error":
            fresh = twins[twins + 1 >= seen]
            samples = tuple(repr(key_at(self.key, batch, int(row))) for row in fresh[:SAMPLES_MAX])
            self.report += BadRowReport(duplicate_count=len(fresh), duplicate_samples=samples)
            return batch, hashes
        return self._without(batch, hashes, twins)

    def _same_keys(self, batch: pa.RecordBatch, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Whether each of these rows has the key of the row after it."""
        same = np.ones(len(rows), dtype=bool)
        for name in self.key.names:
            column = plain(batch.column(name))
            equal = pc.equal(column.take(pa.array(rows)), column.take(pa.array(rows + 1)))
            same &= equal.to_numpy(zero_copy_only=False)
        return same

    def _collisions(self, batch: pa.RecordBatch, hashes: Hashes, seen: int) -> tuple[pa.RecordBatch, Hashes]:
        """Every run of equal hashes, key by key. Rows of one key need not be neighbours here."""
        last: dict[Key, int] = {}
        out: list[int] = []
        edges = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1], [True])))
        for start, end in pairwise(edges.tolist()):
            if end - start == 1:
                continue
            last.clear()
            for row in range(start, end):
                key = key_at(self.key, batch, row)
                if key in last:
                    out.append(last[key])
                    if self.on_duplicate.rule == "error" and row >= seen:
                        self.report += BadRowReport(duplicate_count=1, duplicate_samples=(repr(key),))
                last[key] = row
        if self.on_duplicate.rule == "error" or not out:
            return batch, hashes
        return self._without(batch, hashes, np.array(sorted(out)))

    def _without(
        self, batch: pa.RecordBatch, hashes: Hashes, rows: npt.NDArray[np.intp]
    ) -> tuple[pa.RecordBatch, Hashes]:
        keep = np.ones(batch.num_rows, dtype=bool)
        keep[rows] = False
        self.dropped += len(rows)
        return batch.filter(pa.array(keep)), hashes[keep]


def key_at(schema: KeySchema, batch: pa.RecordBatch, row: int) -> Key:
    """The key of one row, as a program would give it."""
    parts = tuple(batch.column(name)[row].as_py() for name in schema.names)
    return parts if schema.is_composite else parts[0]


def smallest_and_largest(schema: KeySchema, batch: pa.RecordBatch) -> tuple[Key, Key]:
    """The least and the greatest key of a batch that has rows; a composite key counts from its first part."""
    return _extreme(schema, batch, "min"), _extreme(schema, batch, "max")


def _extreme(schema: KeySchema, batch: pa.RecordBatch, which: str) -> Key:
    parts = []
    columns: Sequence[pa.Array] = [plain(batch.column(name)) for name in schema.names]
    for index, column in enumerate(schema.columns):
        array = columns[index]
        best = pc.min_max(array)[which]
        parts.append(column.kind.python_type(bytes=best.as_py()) if column.kind.value == "uuid" else best.as_py())
        if index + 1 < len(schema.columns):
            chosen = pc.equal(array, best)
            columns = [other.filter(chosen) for other in columns]
    return tuple(parts) if schema.is_composite else parts[0]


def plain(array: pa.Array) -> pa.Array:
    """A column that compute functions know: a UUID's bytes instead of the UUID."""
    return array.storage.cast(pa.binary()) if isinstance(array, pa.ExtensionArray) else array
