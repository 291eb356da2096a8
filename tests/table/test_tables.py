"""Tables without Spark: what is written, what is read, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.chain import Chain, Manifest, chain_on, kv_layout, layout_named, table_layout
from holdfast.errors import BadInput, BadRows, BuildFailed, CorruptRecord, CorruptShard, NotAChain, UnsupportedFormat
from holdfast.storage import MemoryStore
from holdfast.table import TableData, open_table, publish_arrow
from holdfast.table import file_writer as writer_module
from holdfast.table.file_writer import TableStream
from holdfast.table.publish import building_table


@pytest.fixture
def chain() -> Iterator[Chain]:
    opened = chain_on(MemoryStore(), table_layout())
    yield opened
    assert opened.verify() == []


def test_a_file_is_written_by_row_groups_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """C30: memory does not grow with the rows; ranges and nulls are those of all row groups together."""
    monkeypatch.setattr(writer_module, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(writer_module, "CHUNK_BYTES", 1)
    rows = pa.table({"n": pa.array([None if n == 450 else (n * 37 + 500) % 1000 for n in range(1_000)], pa.int64())})
    stream = TableStream(iter(rows.to_batches(max_chunksize=70)), schema=rows.schema)

    chunks = list(stream)

    assert len(chunks) > 10
    data = b"".join(chunks)
    file = pq.ParquetFile(pa.BufferReader(data))
    assert max(file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)) <= 100
    assert file.read().equals(rows)
    assert stream.summary is not None
    assert (stream.summary.row_count, stream.summary.byte_size) == (1_000, len(data))
    assert stream.summary.columns == {"n": {"nulls": 1, "min": 0, "max": 999}}


def test_the_manifest_knows_ranges_of_so_many_columns_only() -> None:
    """C30: it is read whole, so it stays small; long texts and what JSON has no word for are left out."""
    rows = pa.table(
        {"long": ["x" * 300], "raw": [b"x"], "inf": [float("inf")]} | {f"c{index}": [index] for index in range(40)}
    )
    stream = TableStream(rows.to_batches(), schema=rows.schema)
    list(stream)

    assert stream.summary is not None
    found = stream.summary.columns
    assert len(found) == 32
    assert [found[name] for name in ("long", "raw", "inf", "c0")] == [
        {"nulls": 0}, {"nulls": 0}, {"nulls": 0}, {"nulls": 0, "min": 0, "max": 0},
    ]  # fmt: skip


@given(
    st.lists(st.one_of(st.none(), st.floats(), st.just(-0.0)), max_size=30),
    st.integers(min_value=1, max_value=7),
)
def test_every_row_comes_back_in_its_order(values: list[float | None], size: int) -> None:
    """C30: whatever the batches were."""
    chain = chain_on(MemoryStore(), table_layout())
    rows = pa.table({"v": pa.array(values, pa.float64()), "n": pa.array(range(len(values)), pa.int32())})

    publish_arrow(chain, pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=size)))

    read = open_table(chain)
    assert [repr(value) for value in read.to_arrow()["v"].to_pylist()] == [repr(value) for value in values]
    assert [batch.num_rows for batch in read.batches(["n"], batch_rows=10)] == [
        min(10, len(values) - start) for start in range(0, len(values), 10)
    ]


@pytest.mark.parametrize(
    "kind, stored",
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
    ],
)
def test_types_are_stored_in_their_plain_spelling(chain: Chain, kind: pa.DataType, stored: pa.DataType) -> None:
    """C30: so that every engine reads them alike."""
    rows = pa.schema([("v", kind)]).empty_table()

    publish_arrow(chain, rows)

    assert open_table(chain).schema == pa.schema([("v", stored)])


@pytest.mark.parametrize(
    "kind",
    [pa.null(), pa.uint8(), pa.float16(), pa.time64("us"), pa.decimal256(50, 2), pa.date64(), pa.list_(pa.uint64()),
     pa.struct([]), pa.month_day_nano_interval(), pa.uuid()],
)  # fmt: skip
def test_types_that_would_not_come_back_are_refused(kind: pa.DataType) -> None:
    """C30: before anything is written."""
    chain = chain_on(MemoryStore(), table_layout())
    with pytest.raises(BadInput, match=r"column 'v' is .*which tables do not store; cast it"):
        publish_arrow(chain, pa.schema([("v", kind)]).empty_table())
    assert list(chain.store.list("")) in ([], [[]])


def test_wrong_calls_are_refused(chain: Chain) -> None:
    """C30: nulls where there can be none, another kind of chain, what is no rows, columns that are not there."""
    lies = pa.table([pa.array([1, None])], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(BadRows, match="column 'id' is declared to have no nulls, and has 1"):
        publish_arrow(chain, lies)
    with pytest.raises(NotAChain, match="opened as a kv chain"):
        publish_arrow(chain_on(MemoryStore(), kv_layout()), pa.table({"a": [1]}))
    with pytest.raises(BadInput, match="not dict"):
        publish_arrow(chain, {"a": [1]})
    with pytest.raises(BadInput, match="'a' and 'A' differ only in case"):
        publish_arrow(chain, pa.table({"a": [1], "A": [1]}))
    publish_arrow(chain, pa.table({"a": [1]}))
    with pytest.raises(BadInput, match="no column 'b'; there are a"):
        open_table(chain).to_arrow(columns=["b"])


def test_a_task_that_answers_twice_publishes_nothing(chain: Chain) -> None:
    """C30: each row is in the table once."""

    def answer_twice() -> None:
        with building_table(chain, run_id="one") as build:
            plan = build.plan(pa.schema([("a", pa.int64())]))
            receipts = [plan.write_file(0, pa.table({"a": [1]}).to_batches(), writer="test") for _ in range(2)]
            build.publish(plan, receipts)

    with pytest.raises(BuildFailed, match="a task answered twice"):
        answer_twice()
    assert chain.current() is None


def test_a_layout_of_its_own(chain: Chain) -> None:
    """C30: other names than those of a key-value data set, the same protocol."""
    layout = layout_named("table")
    assert layout == table_layout()
    assert not {layout.pointer_key, *layout.artifact_prefixes} & {
        kv_layout().pointer_key, *kv_layout().artifact_prefixes,
    }  # fmt: skip
    published = publish_arrow(chain, pa.table({"a": [1]}), run_id="one")
    assert layout.parse_manifest_key(layout.path_of(published.ref)) is not None
    assert published.table.files[0].path.startswith("data/run_id=one/")


Change = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    "change, error, said",
    [
        (lambda told: told.pop("file_format"), CorruptRecord, "file_format"),
        (lambda told: told.update(file_format=2), UnsupportedFormat, "upgrade Holdfast"),
        (lambda told: told.update(file_count=2), CorruptRecord, "should name 2 files, and names 1"),
        (lambda told: told.update(schema="!"), CorruptRecord, "schema"),
        (lambda told: told.update(schema="AAAA"), CorruptRecord, "schema"),
    ],
)
def test_a_manifest_that_is_not_as_it_was_written_is_refused(
    chain: Chain, change: Change, error: type[Exception], said: str
) -> None:
    """C30: a file that is named nowhere is damage, never an empty one."""
    publish_arrow(chain, pa.table({"a": [1]}))
    manifest = chain.load_current()
    assert manifest is not None
    told: Any = dict(manifest.payload["table"])  # type: ignore[call-overload]
    change(told)
    with pytest.raises(error, match=said):
        TableData.of_manifest(replace(manifest, payload={**manifest.payload, "table": told}))


def test_a_manifest_of_something_else_is_no_table(chain: Chain) -> None:
    """C30: and a column's statistics are an object."""
    published = publish_arrow(chain, pa.table({"a": [1]}))
    manifest: Manifest | None = chain.load_current()
    assert manifest is not None
    with pytest.raises(CorruptRecord, match="not a table"):
        TableData.of_manifest(replace(manifest, payload={}))
    broken = replace(manifest.artifacts[0], detail={"columns": {"a": 1}, "writer": ""})
    with pytest.raises(CorruptRecord, match="statistics of column 'a'"):
        TableData.of_manifest(replace(manifest, artifacts=(broken,)))
    assert TableData.of_manifest(manifest) == published.table


def test_a_file_with_other_columns_is_damage() -> None:
    """C30: a file that is somebody else's is not served, even if its checksum fits."""
    chain = chain_on(MemoryStore(), table_layout())
    publish_arrow(chain, pa.table({"a": [1]}))
    table = open_table(chain)
    other = replace(table, data=replace(table.data, schema=pa.schema([("b", pa.int64())])))
    with pytest.raises(CorruptShard, match="does not have the table's columns"):
        other.to_arrow()
    changed = replace(table, data=replace(table.data, files=(replace(table.data.files[0], checksum="sha256:0"),)))
    with pytest.raises(CorruptShard, match="its checksum is"):
        changed.to_arrow()
