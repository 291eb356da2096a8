"""A workspace's state on Spark, read by executors: folded, and made into what a function of Arrow tables says (C26).

    files of the state → read and checked by executors → rows to their part → fold, `alive`, made → Arrow

What belongs together is in one part, by the columns that the keys of all tables in question begin with. So a function
that joins tables by their keys, or looks at one row at a time, gives in parts what it gives as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.catalog.bulk import Folding
from holdfast.catalog.domain_state import StateFile, read_table
from holdfast.catalog.fold import alive
from holdfast.catalog.tables import state_table
from holdfast.errors import HoldfastError
from holdfast.spark.catalog_task import ROWS_TOGETHER, decode_file, encode_file, of_ipc, parts_of, to_ipc
from holdfast.spark.failures import Failure, ShardFailed
from holdfast.storage.capabilities import Reader
from holdfast.storage.objects import ObjectStore

__all__ = ["ROWS_PER_PART", "Making", "made_on_spark", "schema_sql"]

ROWS_PER_PART = 1 << 18
"""About so many rows of the state are folded by one task."""
_READ_SCHEMA = "part int, name string, rows binary"
_READ = pa.schema([("part", pa.int32()), ("name", pa.string()), ("rows", pa.binary())])
_SQL_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.timestamp("us", "UTC"): "timestamp",
}

Making = Callable[[Mapping[str, pa.Table]], pa.Table]
"""From tables of the state, as they are there, to rows. Pickles."""


def schema_sql(schema: pa.Schema) -> str:
    """A schema as Spark spells it."""
    return ", ".join(f"`{column.name}` {_sql_type(column.type)}" for column in schema)


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{one.name}`: {_sql_type(one.type)}' for one in kind)}>"
    return _SQL_TYPES[kind]


def made_on_spark(
    spark: SparkSession,
    store: ObjectStore,
    needs: Sequence[str],
    files: Sequence[StateFile],
    make: Making,
    *,
    schema: pa.Schema,
    rows_per_part: int = ROWS_PER_PART,
    marked: bool = False,
) -> DataFrame:
    """What `make` makes of the tables that these files are of. Nothing is read before somebody asks for rows.

    `marked` failures are for `failure_of_job` to find; others are for people to read in what Spark says.
    """
    parts = max(1, -(-sum(file.row_count for file in files) // rows_per_part))
    listed = spark.createDataFrame(
        pa.table(
            {
                "number": pa.array(range(len(files)), pa.int32()),
                "file": pa.array([orjson.dumps(encode_file(file)) for file in files], pa.binary()),
            }
        )
    )
    reading = FileTask(read=Reader(store), route=_route(needs), parts=parts, marked=marked)
    read = listed.repartitionById(max(1, len(files)), listed.number).mapInArrow(reading, _READ_SCHEMA)
    making = PartTask(needs=tuple(needs), make=make, schema=schema)
    return read.repartitionById(parts, read.part).mapInArrow(making, schema_sql(schema))


def _route(needs: Sequence[str]) -> tuple[str, ...]:
    """The columns that the keys of all of these tables begin with."""
    first, *others = (state_table(name).key for name in needs)
    shared = 0
    while shared < len(first) and all(first[: shared + 1] == key[: shared + 1] for key in others):
        shared += 1
    return first[:shared]


# -- in an executor ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FileTask:
    """Reads whole files, each compared with its checksum first, and says for each row where it belongs."""

    read: Reader
    route: tuple[str, ...]
    """Without any, all rows are together."""
    parts: int
    marked: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers, files = batch.column("number").to_pylist(), batch.column("file").to_pylist()
            for number, found in zip(numbers, files, strict=True):
                file = decode_file(orjson.loads(found))
                try:
                    rows = read_table(self.read, file)
                except HoldfastError as error:
                    if self.marked:
                        raise ShardFailed(Failure.of(number, error, what="file")) from error
                    raise
                for start in range(0, len(rows), ROWS_TOGETHER):
                    yield from self._routed(file.table, rows.slice(start, ROWS_TOGETHER))

    def _routed(self, name: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        if self.parts == 1 or not self.route:
            yield _row(0, name, rows)
            return
        parts = parts_of(rows, self.route, self.parts)
        for part in range(self.parts):
            mine = rows.filter(pa.array(parts == part))
            if len(mine):
                yield _row(part, name, mine)


@dataclass(frozen=True, kw_only=True)
class PartTask:
    """Folds the tables of one part, and makes what was asked for."""

    needs: tuple[str, ...]
    make: Making
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = {name: Folding(state_table(name)) for name in self.needs}
        for batch in batches:
            for name, rows in zip(batch.column("name").to_pylist(), batch.column("rows"), strict=True):
                tables[name].add(of_ipc(rows.as_buffer()))
        made = self.make({name: alive(folding.result()) for name, folding in tables.items()})
        yield from made.select(self.schema.names).cast(self.schema).to_batches(max_chunksize=ROWS_TOGETHER)


def _row(part: int, name: str, rows: pa.Table) -> pa.RecordBatch:
    arrays = [pa.array([part], pa.int32()), pa.array([name]), pa.array([to_ipc(rows)], pa.binary())]
    return pa.record_batch(arrays, schema=_READ)
