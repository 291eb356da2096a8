"""From rows to a visible table: what executors are given, what they send back, and the one commit (C30).

A plan pickles. It can write files and cannot publish: that takes the build, which stays with the driver. A task may run
twice; each attempt writes under a key of its own, and the driver takes one receipt a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import orjson
import pyarrow as pa

from holdfast.chain import Chain, Committed, InputPin, Layout, ManifestDraft, table_layout
from holdfast.chain.building import ChainBuild, building
from holdfast.clock import Randomness, SystemRandomness
from holdfast.codec import Fields, Json
from holdfast.errors import AlreadyExists, BadInput, BuildFailed, NotAChain
from holdfast.storage.objects import ObjectStore
from holdfast.table.columns import as_stored, table_schema
from holdfast.table.dataset import TableData, TableFile
from holdfast.table.file_writer import TableStream

__all__ = ["FileReceipt", "PublishedTable", "TableBuild", "TablePlan", "building_table", "check_table", "publish_arrow"]

_FILE_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A snapshot that is visible now."""

    commit: Committed
    table: TableData
    peak_worker_bytes: int = 0
    """The most memory that a Python worker of Spark ever had."""

    @property
    def ref(self) -> str:
        return self.commit.ref

    @property
    def row_count(self) -> int:
        return self.table.row_count

    @property
    def written_bytes(self) -> int:
        return self.table.byte_size


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReceipt:
    """What became of the rows of one task: a file, or nothing where there were none."""

    number: int
    file: TableFile | None = None

    def encode(self) -> bytes:
        """How a receipt travels from an executor."""
        record: Json = {"number": self.number}
        if self.file is not None:
            record["file"] = self.file.to_json()
        return orjson.dumps(record)

    @classmethod
    def decode(cls, data: bytes) -> FileReceipt:
        fields = Fields(orjson.loads(data), key="receipt")
        found = fields.mapping("file")
        return cls(number=fields.number("number"), file=TableFile(**found) if found else None)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """Everything that it takes to write a file, and nothing that it takes to publish one."""

    store: ObjectStore
    layout: Layout
    run_id: str
    attempt: str
    """Of the run: see `holdfast.chain.runs`."""
    schema: pa.Schema

    def write_file(
        self, number: int, rows: Iterable[pa.RecordBatch], *, writer: str, randomness: Randomness | None = None
    ) -> FileReceipt:
        """Write the rows of one task under a key that no other attempt uses, and say what became of them."""
        token = f"{(randomness or SystemRandomness()).bits(64):016x}"
        name = f"part-{number:0{_FILE_DIGITS}d}-{token}.parquet"
        path = self.layout.artifact_key(self.run_id, self.attempt, name)
        stream = TableStream((as_stored(batch, self.schema) for batch in rows), schema=self.schema)
        chunks = iter(stream)
        first = next(chunks, None)  # nothing is uploaded where there are no rows
        if first is None:
            return FileReceipt(number=number)
        # Nobody else knows this path: if it exists, the store did what it was asked, lost its answer, and was asked
        # again. The commit looks at every file before anything becomes visible.
        with suppress(AlreadyExists):
            self.store.upload(path, _chained(first, chunks))
        written = stream.summary
        if written is None:
            raise BuildFailed(f"nothing was published: {path!r} was not written to its end; run it again")
        return FileReceipt(
            number=number,
            file=TableFile(
                path=path,
                byte_size=written.byte_size,
                row_count=written.row_count,
                checksum=written.checksum,
                columns=written.columns,
                writer=writer,
            ),
        )


class TableBuild:
    """A build of the chain, in terms of files of rows."""

    def __init__(self, build: ChainBuild) -> None:
        self._build = build

    def check(self) -> None:
        """LockLost once this build can no longer be published; costs no request."""
        self._build.check()

    def plan(self, schema: pa.Schema) -> TablePlan:
        """What the writers of files are given. `schema` is the stored one: `table_schema`."""
        chain, run = self._build.chain, self._build.run
        return TablePlan(
            store=chain.store, layout=chain.layout, run_id=run.run_id, attempt=run.record.attempt, schema=schema
        )

    def publish(
        self,
        plan: TablePlan,
        receipts: Sequence[FileReceipt],
        *,
        inputs: Sequence[InputPin] = (),
        custom: Mapping[str, object] | None = None,
        statistics: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        why: str = "",
        peak_worker_bytes: int = 0,
    ) -> PublishedTable:
        """Check that no task answered twice, then commit their files, in the order of the tasks."""
        ordered = sorted(receipts, key=lambda one: one.number)
        if len({receipt.number for receipt in ordered}) != len(ordered):
            raise BuildFailed("nothing was published: a task answered twice; run it again")
        files = tuple(receipt.file for receipt in ordered if receipt.file is not None)
        table = TableData(schema=plan.schema, files=files, statistics=dict(statistics or {}), custom=dict(custom or {}))
        draft = ManifestDraft(
            artifacts=table.artifacts(), inputs=tuple(inputs), tags=dict(tags or {}), payload=table.payload()
        )
        commit = self._build.publish(draft, why=why)
        return PublishedTable(commit=commit, table=table, peak_worker_bytes=peak_worker_bytes)


@contextmanager
def building_table(
    chain: Chain,
    *,
    run_id: str | None = None,
    operation: str = "build a table",
    admit: Callable[[], None] | None = None,
) -> Iterator[TableBuild]:
    """`holdfast.chain.building`, in terms of files of rows."""
    check_table(chain)
    with building(chain, run_id=run_id, operation=operation, admit=admit) as build:
        yield TableBuild(build)


def check_table(chain: Chain) -> None:
    """NotAChain unless a chain was opened as that of a table."""
    if chain.layout.name != table_layout().name:
        raise NotAChain(f"{chain.store.url!r} is opened as a {chain.layout.name} chain: this needs a table one")


def publish_arrow(
    chain: Chain,
    rows: pa.Table | pa.RecordBatchReader,
    *,
    run_id: str | None = None,
    admit: Callable[[], None] | None = None,
    inputs: Sequence[InputPin] = (),
    custom: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    why: str = "",
) -> PublishedTable:
    """Publish Arrow rows as the next snapshot, in one file, without Spark. Whatever fails, nothing half is visible."""
    if not isinstance(rows, pa.Table | pa.RecordBatchReader):
        raise BadInput(f"rows are an Arrow table or a reader of batches, not {type(rows).__name__}")
    schema = table_schema(rows.schema)
    batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
    with building_table(chain, run_id=run_id, operation="build a table from Arrow data", admit=admit) as build:
        plan = build.plan(schema)
        receipt = plan.write_file(0, batches, writer=chain.by, randomness=chain.handle.randomness)
        return build.publish(plan, [receipt], inputs=inputs, custom=custom, tags=tags, why=why)


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
