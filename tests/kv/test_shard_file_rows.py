"""Every row that is written is read back: all Arrow types, all sizes, all batchings, by every way to ask."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadInput, BadRows, BuildFailed, NotFound, WrongKeyType
from holdfast.kv import KeySchema, Missing, ShardStream, SortedRows, ValueKind, shard_schema
from holdfast.kv.request import KeyColumns
from tests.kv.shards import assert_serves, built, sorted_rows, write_shard

_FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "int8": (pa.int8(), [0, -128, 127]),
    "int16": (pa.int16(), [0, -(1 << 15), (1 << 15) - 1]),
    "int32": (pa.int32(), [0, -(1 << 31), (1 << 31) - 1]),
    "int64": (pa.int64(), [0, -(1 << 63), (1 << 63) - 1]),
    "uint8": (pa.uint8(), [0, 255]),
    "uint16": (pa.uint16(), [0, 65535]),
    "uint32": (pa.uint32(), [0, (1 << 32) - 1]),
    "uint64": (pa.uint64(), [0, (1 << 64) - 1]),
    "float16": (pa.float16(), [np.float16(0.5), np.float16(-2)]),
    "float32": (pa.float32(), [0.0, math.inf, -math.inf, math.nan, 0.5]),
    "float64": (pa.float64(), [0.0, math.inf, math.nan, 1e308]),
    "bool": (pa.bool_(), [True, False]),
    "decimal32": (pa.decimal32(5, 2), [Decimal("1.50"), Decimal("-999.99")]),
    "decimal64": (pa.decimal64(12, 2), [Decimal("1.50")]),
    "decimal128": (pa.decimal128(38, 4), [Decimal("1.5000"), Decimal("-12345678901234567890.1234")]),
    "decimal256": (pa.decimal256(60, 2), [Decimal("123456789012345678901234567890123456789012345678.91")]),
    "date32": (pa.date32(), [date(1970, 1, 1), date.min, date.max]),
    "date64": (pa.date64(), [date(2026, 11, 15)]),
    "time32": (pa.time32("s"), [time(1, 2, 3)]),
    "time64": (pa.time64("us"), [time(1, 2, 3, 4)]),
    "timestamp": (pa.timestamp("us"), [datetime(2026, 11, 15, 1, 2, 3, 4)]),  # noqa: DTZ001
    "timestamp_tz": (pa.timestamp("ms", "UTC"), [datetime(2026, 11, 15, tzinfo=timezone.utc)]),  # noqa: UP017
    "duration": (pa.duration("us"), [timedelta(days=-3, microseconds=5)]),
    "interval": (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3])]),
    "binary": (pa.binary(), [b"", b"\x00\xff", b"x" * 300]),
    "large_binary": (pa.large_binary(), [b"", b"abc"]),
    "fixed_binary": (pa.binary(3), [b"abc", b"\x00\x00\x00"]),
    "no_bytes": (pa.binary(0), [b""]),
    "string": (pa.string(), ["", "a", "größe", "\U0001f600" * 50]),
    "large_string": (pa.large_string(), ["", "ü"]),
    "uuid": (pa.uuid(), [UUID(int=0), UUID(int=(1 << 128) - 1)]),
    "null": (pa.null(), []),
    "list": (pa.list_(pa.int32()), [[], [1, None, 3]]),
    "large_list": (pa.large_list(pa.string()), [[], ["a", None, ""]]),
    "fixed_list": (pa.list_(pa.float32(), 2), [[1.0, 2.0], [0.0, math.nan]]),
    "struct": (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)]]),
    "nested": (
        pa.list_(pa.struct([("x", pa.list_(pa.binary())), ("y", pa.map_(pa.int8(), pa.decimal128(5, 1)))])),
        [[], [{"x": [b"", None], "y": [(1, Decimal("2.5"))]}, None]],
    ),
    "list_of_null": (pa.list_(pa.null()), [[], [None]]),
    "bool8": (pa.bool8(), [1, 0]),
    "tensor": (pa.fixed_shape_tensor(pa.int32(), [2]), []),
    "json": (pa.json_(), ['{"a": 1}']),
}


def column(name: str, rows: int, *, nullable: bool, offset: int) -> pa.Array:
    """So many values of a type, in turn; a slice of a longer array, as batches from elsewhere often are."""
    kind, samples = VALUES[name]
    values: list[object] = [*samples, None] if nullable or not samples else list(samples)
    return pa.array([values[n % len(values)] for n in range(rows + offset)], kind).slice(offset)


def expected_rows(table: pa.Table) -> dict[object, object]:
    names = [name for name in table.schema.names if name != "key"]
    return dict(zip(table["key"].to_pylist(), table.select(names).to_pylist(), strict=True))


@pytest.mark.parametrize("name", list(VALUES))
def test_values_of_every_type_are_read_back(name: str, tmp_path: Path) -> None:
    """K2: any Arrow type, with nulls and without, in slices of larger arrays, in one shard and in several."""
    for turn, (rows, nullable, offset, shards) in enumerate([(300, True, 0, 1), (129, False, 3, 2), (1, True, 1, 3)]):
        values = column(name, rows, nullable=nullable, offset=offset)
        may_be_null = nullable or not VALUES[name][1]
        schema = pa.schema([pa.field("key", pa.int64()), pa.field("v", values.type, nullable=may_be_null)])
        table = pa.table([pa.array(range(rows)), values], schema)
        snapshot = built(tmp_path / str(turn), table, shards=shards)
        assert_serves(snapshot, expected_rows(table), [-1, rows])  # type: ignore[arg-type]


ENCODED = {
    "dictionary": (pa.array(["a", None, "b", "a"]).dictionary_encode(), pa.string()),
    "dictionary of numbers": (pa.array([5, None, 5, 7]).dictionary_encode(), pa.int64()),
    "dictionary with null values": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0]), pa.array([None, "x"])),
        pa.string(),
    ),
    "run-end": (pa.RunEndEncodedArray.from_arrays([2, 4], pa.array(["a", None])), pa.string()),
    "string view": (pa.array(["a", None, "c" * 40, ""], pa.string_view()), pa.string()),
    "binary view": (pa.array([b"a", None, b"c" * 40, b""], pa.binary_view()), pa.binary()),
}


@pytest.mark.parametrize("name", list(ENCODED))
def test_encodings_are_stored_plainly(name: str, tmp_path: Path) -> None:
    """K2: dictionaries, runs and views come out as the values that they stand for."""
    values, stored = ENCODED[name]
    table = pa.table({"key": [1, 2, 3, 4], "v": values})
    snapshot = built(tmp_path, table)
    assert snapshot.dataset.schema.field("v").type == stored
    assert_serves(snapshot, expected_rows(table), [5])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind",
    [
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.list_view(pa.int8()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.struct([("a", pa.string_view())]),
        pa.map_(pa.string(), pa.run_end_encoded(pa.int16(), pa.int8())),
    ],
)
def test_a_type_that_shards_do_not_store_is_refused_by_name(kind: pa.DataType) -> None:
    """K2: the error names the column, and what to use instead."""
    schema = pa.schema([("key", pa.int64()), ("v", kind)])
    with pytest.raises(BadInput, match=r"column 'v'.*(use a struct|cast it to a plain type)"):
        shard_schema(schema, KeySchema.from_arrow(schema, ["key"]), ValueKind.ROW)


KEYS: dict[str, list[object]] = {
    "int8": list(range(-128, 128)),
    "uint64": [0, (1 << 64) - 1, *range(1 << 63, (1 << 63) + 300)],
    "int64": [-(1 << 63), (1 << 63) - 1, *range(-150, 150)],
    "text": ["", "größe", *(f"user:{n}" for n in range(400)), "x" * 4096],
    "bytes": [b"", b"\x00", *(bytes([n % 256]) * (n % 40 + 1) + n.to_bytes(2) for n in range(400))],
    "uuid": [UUID(int=n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)) for n in range(400)],
    "date": [date.min, date.max, *(date(2000, 1, 1) + timedelta(days=n) for n in range(400))],
    "composite": [(f"t{n % 7}", n, UUID(int=n), b"k" * (n % 3), date(2026, 1, 1 + n % 28)) for n in range(400)],
}


@pytest.mark.parametrize("value", ["row", "binary", "json"])
@pytest.mark.parametrize("name", list(KEYS))
def test_keys_of_every_kind_are_found_and_others_are_not(name: str, value: str, tmp_path: Path) -> None:
    """K2: every kind of key with every kind of value."""
    keys = KEYS[name]
    if name == "composite":
        names = ["tenant", "number", "id", "raw", "day"]
        columns = [pa.array(part) for part in zip(*keys, strict=True)]
        types = [column.type for column in columns]
        absent: list[object] = [("t0", 1, UUID(int=1), b"", date(2026, 1, 2)), ("", 0, UUID(int=0), b"", date.min)]
    else:
        names, types = (
            ["key"],
            [{"text": pa.string(), "bytes": pa.binary(), "uuid": pa.uuid(), "date": pa.date32()}.get(name)],
        )
        types = [types[0] or getattr(pa, name)()]
        columns = [pa.array(keys, types[0])]
        absent = {"text": ["nobody"], "bytes": [b"no"], "uuid": [UUID(int=5)], "date": [date(1999, 1, 1)]}.get(name, [])  # type: ignore[assignment]
    if value == "json":
        values, expected = (
            pa.array([f'{{"n": {n}, "t": [null, "é"]}}' for n in range(len(keys))]),
            [{"n": n, "t": [None, "é"]} for n in range(len(keys))],
        )
    else:
        values = pa.array([b"v" * (n % 50) for n in range(len(keys))])
        expected = values.to_pylist() if value == "binary" else [{"v": found} for found in values.to_pylist()]
    table = pa.table([*columns, values], names=[*names, "v"])
    snapshot = built(tmp_path, table, key=names, shards=3, value=value)
    assert_serves(snapshot, dict(zip(keys, expected, strict=True)), absent)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 127, 128, 129, 16_383, 16_384, 16_385, 100_000])
def test_shards_of_every_size_are_read_back(rows: int, tmp_path: Path) -> None:
    """K2, K5: around the size of a block, around the rows that are looked at first, and far beyond."""
    keys = [(7919 * n) % (1 << 40) - (1 << 39) for n in range(rows)]
    table = pa.table({"key": keys, "v": [f"value {key}".encode() for key in keys]})
    snapshot = built(tmp_path, table, value="binary")
    assert snapshot.dataset.row_count == rows
    everything = {key: f"value {key}".encode() for key in keys}
    assert snapshot.multi_get([*keys, 1 << 50]) == everything
    assert all(snapshot.get(key, None) == everything[key] for key in keys[::101])
    shard = snapshot.dataset.shards[0]
    assert shard is not None
    assert (shard.min_key, shard.max_key) == (min(keys), max(keys))


@pytest.mark.parametrize("size", [0, 1, 100, 20_000, 300_000, 5_000_000])
def test_rows_of_every_size_are_read_back(size: int, tmp_path: Path) -> None:
    """K2: from no bytes at all to several megabytes; large rows have blocks of their own."""
    rows = 300 if size < 100_000 else 8
    table = pa.table({"key": range(rows), "v": [bytes([n % 256]) * size for n in range(rows)]})
    snapshot = built(tmp_path, table, value="binary")
    assert_serves(snapshot, {n: bytes([n % 256]) * size for n in range(rows)}, [rows])
    shard = snapshot.dataset.shards[0]
    assert shard is not None
    if size >= 300_000:
        assert shard.block_count >= rows // 2, "a look-up by ranges would move many rows"


@_FEW
@given(data=st.data())
def test_a_mix_of_columns_and_batches_agrees_with_a_dict(data: st.DataObject) -> None:
    """K2: any columns beside each other, in batches of any sizes, in any number of shards, from an offset on."""
    names = data.draw(st.lists(st.sampled_from([*VALUES]), max_size=4))
    rows = data.draw(st.sampled_from([1, 5, 127, 128, 129, 500]))
    offset = data.draw(st.integers(0, 9))
    columns = [column(name, rows, nullable=True, offset=offset) for name in names]
    table = pa.table([pa.array(range(rows)), *columns], names=["key", *(f"c{n}" for n in range(len(names)))])
    sizes = data.draw(st.lists(st.integers(1, 200), min_size=1, max_size=4))
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as directory:
        snapshot = built(Path(directory), list(cut(table, sizes)), shards=data.draw(st.integers(1, 5)))
        assert_serves(snapshot, expected_rows(table), [rows, -5])  # type: ignore[arg-type]


def cut(table: pa.Table, sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Batches of these sizes, and the rest; an empty one too."""
    batch = table.combine_chunks().to_batches()[0]
    yield batch.slice(0, 0)
    start = 0
    for size in sizes:
        yield batch.slice(start, size)
        start += size
    yield batch.slice(min(start, batch.num_rows))


def test_the_writer_takes_batches_of_any_size(tmp_path: Path) -> None:
    """K4: rows are in the same blocks, whatever batches they came in; only Arrow's padding may differ."""
    table = pa.table({"key": range(40_000), "v": [f"{n}" for n in range(40_000)]})
    files = [write_shard(tmp_path / str(size), table, "key", batch_rows=size) for size in (1, 999, 20_000, 40_000)]
    contents = []
    for file in files:
        reader = pa.ipc.open_file(file.path)
        contents.append([reader.get_batch(number) for number in range(reader.num_record_batches)])
        assert file.summary.block_count == files[0].summary.block_count
        file.open().verify_all()
    assert all(content == contents[0] for content in contents)


def test_rows_in_another_order_make_the_same_files(tmp_path: Path) -> None:
    """K8: a shard's bytes depend on its rows, not on the order they came in nor on the memory there was."""
    table = pa.table({"key": range(50_000), "v": [f"{n}" if n % 3 else None for n in range(50_000)]})
    backwards = table.take(pa.array(range(49_999, -1, -1)))
    snapshots = [
        built(tmp_path / str(turn), data, shards=3, memory_bytes=memory)
        for turn, (data, memory) in enumerate([(table, 1 << 30), (backwards, 1 << 30), (backwards, 10_000)])
    ]
    checksums = {tuple(s.checksum for s in snapshot.dataset.shards if s is not None) for snapshot in snapshots}
    assert len(checksums) == 1


def test_missing_keys_are_null_dropped_or_an_error(tmp_path: Path) -> None:
    """K14: one table in the order of the keys, whatever is missing, whatever is asked for twice."""
    snapshot = built(tmp_path, pa.table({"key": [1, 2, 3], "v": ["a", "b", None]}), shards=4)
    keys = KeyColumns.of_keys(snapshot.dataset.key, [3, 9, 1, 1, 8])
    nulls = snapshot.get_arrow(keys, Missing.NULL)
    assert nulls.to_pydict() == {"key": [3, 9, 1, 1, 8], "v": [None, None, "a", "a", None]}
    assert snapshot.get_arrow(keys, Missing.DROP).to_pydict() == {"key": [3, 1, 1], "v": [None, "a", "a"]}
    with pytest.raises(NotFound, match="2 of 5 keys are not there, such as 9"):
        snapshot.get_arrow(keys, Missing.ERROR)
    nothing = KeyColumns.of_keys(snapshot.dataset.key, [])
    assert snapshot.get_arrow(nothing, Missing.ERROR).num_rows == 0
    assert snapshot.multi_get([]) == {}
    with pytest.raises(WrongKeyType):
        snapshot.get("1", None)


@pytest.mark.parametrize("name", list(VALUES))
def test_a_data_set_without_rows_answers_that_nothing_is_there(name: str, tmp_path: Path) -> None:
    """K6: empty shards cost nothing and route correctly; even if all are empty, for values of every type."""
    kind = VALUES[name][0]
    snapshot = built(tmp_path, pa.schema([("key", pa.string()), ("v", kind)]).empty_table(), shards=3)
    assert snapshot.dataset.shards == (None, None, None)
    assert_serves(snapshot, {}, ["a", "b", ""])
    assert not list(tmp_path.rglob("*.arrow"))


def test_nulls_in_a_column_declared_without_any_are_refused(tmp_path: Path) -> None:
    """K2: they would be read back as whatever happens to lie there."""
    schema = pa.schema([pa.field("key", pa.int64()), pa.field("v", pa.int64(), nullable=False)])
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array([None, 2])], schema=schema)
    with pytest.raises(BadRows, match="column 'v' is declared to have no nulls, and has 1"):
        built(tmp_path, table)


def test_a_data_set_of_keys_alone_is_a_set(tmp_path: Path) -> None:
    """K2: rows need no columns beside the key."""
    snapshot = built(tmp_path, pa.table({"key": ["a", "b"]}), shards=2)
    assert_serves(snapshot, {"a": {}, "b": {}}, ["c"])


def test_rows_that_are_not_sorted_are_never_written(tmp_path: Path) -> None:
    """K4: a row in the wrong block would never be found; whoever feeds the writer hears of it."""
    table = pa.table({"key": range(100), "v": range(100)})
    shard = write_shard(tmp_path / "good", table, "key")
    rows = list(sorted_rows(table.cast(shard.schema), shard.key, batch_rows=10))
    backwards = SortedRows(rows[0].batch.take(pa.array(range(9, -1, -1))), rows[0].hashes[::-1].copy())
    for wrong in (rows[::-1], [backwards]):
        with pytest.raises(BuildFailed, match="order of their hashes"):
            list(ShardStream(wrong, schema=shard.schema, key=shard.key))
