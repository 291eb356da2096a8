"""Tables: from DataFrames to Parquet files under a chain, and back, on Spark and without it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.chain import Chain, InputPin, chain_on, kv_layout, open_chain, table_layout
from holdfast.chain.opening import detect_layout
from holdfast.errors import BadInput, BuildFailed, Conflict, CorruptShard, NotAChain, RunIdInUse, StoreFull
from holdfast.spark import BuildProgress
from holdfast.spark.table import publish_table, read_table
from holdfast.spark.table_read import frame_of_table
from holdfast.storage import LocalStore
from holdfast.storage.objects import ObjectStore
from holdfast.table import open_table
from tests.spark import faults

ROWS = "SELECT id, 'n' || id AS name, IF(id % 3 = 0, NULL, id / 2) AS half FROM range(0, 1000, 1, 3)"


class Hidden(LocalStore):
    """A store whose files Spark itself could not open: it calls itself by a scheme that Hadoop does not know."""

    @property
    def url(self) -> str:
        return "other://place"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Chain]:
    """A table to publish to, whole in the end, and not synced to disk: no test here cuts the power."""
    opened = chain_on(LocalStore(tmp_path / "orders", durable=False), table_layout())
    yield opened
    assert opened.verify() == []


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def read_both_ways(spark: SparkSession, chain: Chain) -> list[DataFrame]:
    """By Spark's own reader, and by tasks through the store."""
    snapshot = open_table(chain)
    hidden: ObjectStore = Hidden(Path(chain.store.url.removeprefix("file://")))
    return [
        frame_of_table(spark, snapshot),
        frame_of_table(spark, type(snapshot)(ref="", manifest=snapshot.manifest, data=snapshot.data, store=hidden)),
    ]


def test_a_dataframe_is_published_and_every_row_comes_back(spark: SparkSession, table: Chain) -> None:
    """C30: a table's rows, by Spark's own reader, by tasks, and as Arrow without Spark; the manifest knows the rest."""
    told: list[BuildProgress] = []
    pin = InputPin(chain="file:///raw", manifest_id=7, manifest_hash="sha256:" + "0" * 64, ref="7")

    published = publish_table(
        spark.sql(ROWS), table, run_id="nightly-1", inputs=[pin], tags={"day": "1"}, why="nightly",
        progress=told.append, custom={"team": "sales"},
    )  # fmt: skip

    expected = rows_of(spark.sql(ROWS))
    for frame in read_both_ways(spark, table):
        assert rows_of(frame) == expected
        assert frame.schema.simpleString() == "struct<id:bigint,name:string,half:double>"
    read = open_table(table)
    assert sorted((tuple(row.values()) for row in read.to_arrow().to_pylist()), key=repr) == expected
    assert (read.row_count, read.ref, published.ref) == (1_000, published.ref, read.ref)
    assert read.to_arrow(columns=["name"]).schema == pa.schema([pa.field("name", pa.string(), False)])
    assert (read.manifest.tags, read.manifest.inputs, read.data.custom) == ({"day": "1"}, (pin,), {"team": "sales"})
    files = read.data.files
    assert [file.row_count for file in files] == [333, 333, 334]
    assert files[0].columns == {
        "id": {"nulls": 0, "min": 0, "max": 332},
        "name": {"nulls": 0, "min": "n0", "max": "n99"},
        "half": {"nulls": 111, "min": 0.5, "max": 166.0},
    }
    assert all(file.path.startswith("data/run_id=nightly-1/") for file in files)
    assert (told[-1].rows, told[-1].bytes, told[-1].shards_done) == (1_000, published.written_bytes, 3)
    data = table.store.get(files[0].path).data
    parquet = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    assert parquet.compression == "ZSTD"


KINDS = """
    SELECT CAST(1 AS TINYINT) AS tiny, CAST(-2 AS SMALLINT) AS small, CAST(3 AS INT) AS middle, 4L AS big,
    CAST(1.5 AS FLOAT) AS f, 2.5D AS d, CAST(12.340 AS DECIMAL(10, 3)) AS money,
    CAST('-99999999999999999999999999999999999.999' AS DECIMAL(38, 3)) AS much, true AS yes, 'é' AS text,
    X'00FF' AS raw,
    DATE'0001-01-01' AS early, DATE'1970-01-02' AS day, TIMESTAMP'2026-11-15 12:00:00.123456Z' AS at,
    TIMESTAMP'0001-01-02 00:00:00Z' AS first, TIMESTAMP_NTZ'2026-11-15 12:00:00' AS local,
    INTERVAL '1 00:00:00' DAY TO SECOND AS span,
    array(1, NULL) AS list, map('a', TIMESTAMP'2026-11-15 12:00:00Z', 'b', NULL) AS pairs,
    named_struct('x', 1, 'y', array(TIMESTAMP'2026-11-15 12:00:00Z')) AS both,
    CAST(NULL AS STRING) AS nothing, array(named_struct('k', map(1, array('z')))) AS deep
"""


def test_every_type_comes_back_as_it_was(spark: SparkSession, table: Chain) -> None:
    """C30: numbers, text, bytes, times and nested columns, however they are read."""
    df = spark.sql(KINDS)

    publish_table(df, table)

    expected = df.collect()
    for frame in read_both_ways(spark, table):
        assert frame.collect() == expected
        assert frame.schema.simpleString() == df.schema.simpleString()
    [row] = open_table(table).to_arrow().to_pylist()
    assert row["at"] == datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
    assert row["span"] == timedelta(days=1)
    assert row["both"] == {"x": 1, "y": [datetime(2026, 11, 15, 12, tzinfo=UTC)]}
    assert row["pairs"] == [("a", datetime(2026, 11, 15, 12, tzinfo=UTC)), ("b", None)]
    statistics = open_table(table).data.files[0].columns
    assert statistics["early"] == {"nulls": 0, "min": "0001-01-01", "max": "0001-01-01"}
    assert statistics["nothing"] == {"nulls": 1}
    assert set(statistics) == set(df.columns) - {"list", "pairs", "both", "deep"}


def test_odd_names_of_columns_are_kept(spark: SparkSession, table: Chain) -> None:
    """C30: spaces, dots, quotes and signs in names, also where a dot could mean a field of another column."""
    names = ["a.b", "a", " x y ", "q`'\"q", "é;=,(){}\n\t", "select", "_metadata"]
    df = spark.range(3).selectExpr("id", "named_struct('b', id + 1)", *[f"id + {n}" for n in range(2, 7)]).toDF(*names)

    publish_table(df, table)

    for frame in read_both_ways(spark, table):
        assert frame.columns == names
        assert rows_of(frame) == rows_of(df)
    read = open_table(table)
    for name in names:
        assert read.to_arrow(columns=[name]).column_names == [name]
    assert read.to_arrow(columns=["a.b"]).to_pylist() == [{"a.b": n} for n in range(3)]
    assert read.to_arrow(columns=["a"]).to_pylist() == [{"a": {"b": n + 1}} for n in range(3)]
    with pytest.raises(BadInput, match=r"no column 'b'; there are a\.b, a"):
        read.to_arrow(columns=["b"])


@pytest.mark.parametrize(
    "sql, said",
    [
        ("SELECT 1 AS a, 2 AS a", "column 'a' is there twice"),
        ("SELECT 1 AS a, 2 AS A", "differ only in case"),
        ("SELECT named_struct('x', 1, 'X', 2) AS s", "differ only in case"),
        ("SELECT 1 AS ``", "has no name"),
        ("SELECT NULL AS nothing", "column 'nothing' is null"),
        ("SELECT array(NULL) AS nothings", "column 'nothings' is null"),
        ("SELECT INTERVAL '1' MONTH AS m", "cast or drop it|which tables do not store"),
        ("SELECT parse_json('1') AS v", "column 'v' is struct"),
        ("SELECT TIME'12:00:00' AS t", "column 't' is time"),
    ],
)
def test_columns_that_would_not_come_back_are_refused(spark: SparkSession, table: Chain, sql: str, said: str) -> None:
    """C30: a clear answer before any work."""
    with pytest.raises(BadInput, match=said):
        publish_table(spark.sql(sql), table)


def test_calls_that_cannot_be_right_are_refused(spark: SparkSession, table: Chain, tmp_path: Path) -> None:
    """C30: no columns, no files, another kind of chain, no end, or a place that executors cannot reach."""
    with pytest.raises(BadInput, match="select at least one"):
        publish_table(spark.range(3).select(), table)
    with pytest.raises(BadInput, match="files is 0"):
        publish_table(spark.range(3), table, files=0)
    with pytest.raises(BadInput, match="cannot write to memory://"):
        publish_table(spark.range(3), "memory://there")
    with pytest.raises(NotAChain, match="opened as a kv chain"):
        publish_table(spark.range(3), chain_on(table.store, kv_layout()))
    with pytest.raises(BadInput, match="has no end"):
        publish_table(spark.readStream.format("rate").load(), table)
    with pytest.raises(NotAChain, match="opened as a kv chain"):
        read_table(spark, chain_on(table.store, kv_layout()))
    assert table.current() is None


def test_a_table_without_rows_is_a_table(spark: SparkSession, table: Chain) -> None:
    """C30: no rows are no files, and its columns are known all the same."""
    published = publish_table(spark.sql(ROWS).where("id < 0"), table)

    assert (published.row_count, published.table.files) == (0, ())
    assert read_table(spark, table).schema.simpleString() == "struct<id:bigint,name:string,half:double>"
    assert read_table(spark, table).count() == 0
    assert open_table(table).to_arrow().num_rows == 0
    assert open_table(table).schema.names == ["id", "name", "half"]


def test_rows_are_dealt_out_to_as_many_files_as_asked_for(spark: SparkSession, table: Chain) -> None:
    """C30: and a snapshot is found by ref, tag and time, whatever was published after it."""
    first = publish_table(spark.range(100), table, files=4, tags={"v": "1"})
    publish_table(spark.range(5), table, files=1)

    assert len(first.table.files) == 4
    assert all(20 < file.row_count < 30 for file in first.table.files)
    assert read_table(spark, table).count() == 5
    assert read_table(spark, table, ref=first.ref).count() == 100
    assert read_table(spark, table, tag=("v", "1")).count() == 100
    assert open_table(table, at=table.find(ref=first.ref).at).row_count == 100
    table.rollback()
    assert rows_of(read_table(spark, table)) == [(n,) for n in sorted(range(100), key=lambda n: repr((n,)))]


def test_a_table_has_what_every_chain_has(spark: SparkSession, table: Chain) -> None:
    """C30: found by looking, with differences, collection and verification; a run id is used once."""
    publish_table(spark.range(10), table, run_id="one")
    publish_table(spark.range(20), table, run_id="two")

    assert detect_layout(table.store).name == "table"
    assert open_chain(table.store.url).layout.name == "table"
    assert open_table(table.store.url).row_count == 20
    changed = table.diff(table.find(run_id="one"), table.find(run_id="two"))
    assert len(changed.added) == len(table.load_current().artifacts)  # type: ignore[union-attr]
    with pytest.raises(RunIdInUse):
        publish_table(spark.range(1), table, run_id="two")
    plan = table.collect(retention=1)
    paths = [item.key for item in plan.condemned if item.key.startswith("data/")]
    assert paths
    assert all(path.startswith("data/run_id=one/") for path in paths)


def test_a_table_that_is_not_admitted_leaves_nothing_behind(spark: SparkSession, table: Chain) -> None:
    """C31: the question is asked under the lock and before the run is registered."""

    def refuse() -> None:
        assert table.store.head(table.layout.lock_key).size
        raise Conflict("published already")

    with pytest.raises(Conflict, match="published already"):
        publish_table(spark.range(3), table, run_id="one", admit=refuse)
    left = {info.key for page in table.store.list("") for info in page}
    assert left <= {table.layout.lock_key, table.layout.probe_key}
    publish_table(spark.range(3), table, run_id="one")


def test_tasks_that_fail_once_are_run_again(spark: SparkSession, tmp_path: Path) -> None:
    """C30: an attempt that wrote its file and died is not counted; its file is nobody's."""
    chain = chain_on(faults.FailingStore(tmp_path / "t", faults.unavailable_at_first), table_layout())

    published = publish_table(spark.range(1_000), chain, files=2)

    assert sorted(row.id for row in read_table(spark, chain).collect()) == list(range(1_000))
    assert all("attempt 1" in file.writer for file in published.table.files)
    stored = [info.key for page in chain.store.list("data") for info in page]
    assert len(stored) == 4
    assert chain.verify() == []


@pytest.mark.parametrize(
    "fault, error, said",
    [
        (faults.full_at_shard_2, StoreFull, "nothing was published: file 2: no space is left"),
        (faults.unavailable_at_shard_1, Exception, "nothing was published: file 1: the store did not answer"),
        (faults.broken_at_shard_3, BuildFailed, "nothing was published: file 3: OSError"),
    ],
)
def test_a_failed_build_publishes_nothing_and_says_why(
    spark: SparkSession, tmp_path: Path, fault: faults.Fault, error: type[Exception], said: str
) -> None:
    """C30: the table stays as it was, and what was written can be collected."""
    good = chain_on(LocalStore(tmp_path / "t", durable=False), table_layout())
    publish_table(spark.range(7), good, run_id="before")

    with pytest.raises(error, match=said):
        publish_table(spark.range(1_000), chain_on(faults.FailingStore(tmp_path / "t", fault), table_layout()), files=4)

    assert open_table(good).row_count == 7
    assert good.verify() == []
    gone = [item.key for item in good.collect(retention=1).condemned if item.key.startswith("data/")]
    assert gone
    assert not any("run_id=before" in path for path in gone)


def test_a_query_that_fails_is_told_in_one_line(spark: SparkSession, table: Chain) -> None:
    """C30: what Spark says of its own failure."""
    with pytest.raises(BuildFailed, match=r"nothing was published: Spark says: .*no good") as told:
        publish_table(spark.sql("SELECT IF(id = 7, raise_error('no good'), id) AS id FROM range(10)"), table)
    assert "\n" not in str(told.value)


def test_a_damaged_or_missing_file_is_never_served(spark: SparkSession, tmp_path: Path) -> None:
    """C30: whichever way it is read; a session that is set to look away changes nothing."""
    chain = chain_on(LocalStore(tmp_path / "t", durable=False), table_layout())
    published = publish_table(spark.range(1_000), chain, files=2)
    path = tmp_path / "t" / published.table.files[0].path
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    asked = spark.newSession()
    asked.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    asked.conf.set("spark.sql.files.ignoreMissingFiles", "true")

    for frame in read_both_ways(asked, chain):
        with pytest.raises(Exception, match=r"checksum|CRC|[Cc]orrupt|FAILED_READ_FILE"):
            frame.collect()
    with pytest.raises(CorruptShard, match="its checksum is"):
        open_table(chain).to_arrow()
    frames = read_both_ways(asked, chain)
    path.unlink()
    for frame in frames:
        with pytest.raises(Exception, match=r"missing|not exist|FILE_NOT_EXIST"):
            frame.collect()
    with pytest.raises(CorruptShard, match="it is missing"):
        open_table(chain).to_arrow()
