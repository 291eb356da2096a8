"""What a query gives: one Arrow table, that is also a sequence of Python objects and a Spark DataFrame (G24).

found = graph.nodes(type="FUNCTION")
found.table                     # pyarrow
[node.name for node in found]   # Python
found.to_spark(spark)           # Spark
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import orjson
import pyarrow as pa

from holdfast.errors import NotFound
from holdfast.graph.records import Edge, Node

__all__ = ["Answer", "DataFrames", "Reached", "edge_answer", "node_answer", "reached_answer"]

T = TypeVar("T")
DataFrame_co = TypeVar("DataFrame_co", covariant=True)


class DataFrames(Protocol[DataFrame_co]):
    """What a Spark session has that makes a DataFrame of an Arrow table."""

    def createDataFrame(self, data: pa.Table, /) -> DataFrame_co: ...  # noqa: N802 - Spark's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A node that a walk came to, and how. Type, name and file are None where an edge points to nothing."""

    semantic_id: str
    type: str | None
    name: str | None
    file: str | None
    depth: int
    parent: str | None
    """The node from which it was first reached; None for a start."""
    edge_type: str | None


class Answer(Generic[T]):
    """Records in a stable order. The table is made when it is first asked for."""

    def __init__(self, make: Callable[[], pa.Table], record_of: Callable[[Mapping[str, Any]], T]) -> None:
        self._make = make
        self._record_of = record_of

    @cached_property
    def table(self) -> pa.Table:
        """As Arrow. Columns with few values may be dictionaries."""
        return self._make()

    def __len__(self) -> int:
        return len(self.table)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[T]:
        """As Python objects, some at a time."""
        for batch in self.table.to_batches(max_chunksize=4_096):
            for row in batch.to_pylist():
                yield self._record_of(row)

    def one(self) -> T:
        """The first; NotFound where there is none."""
        for record in self:
            return record
        raise NotFound("the query found nothing; look with a wider one")

    def ids(self) -> list[str]:
        """The semantic ids, of answers that are nodes."""
        return [str(text) for text in self.table.column("semantic_id").to_pylist()]

    def to_dicts(self) -> list[dict[str, Any]]:
        """As plain data for JSON; metadata is parsed."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        for row in rows:
            if isinstance(row.get("metadata"), str):
                row["metadata"] = orjson.loads(row["metadata"])
        return rows

    def to_spark(self, spark: DataFrames[DataFrame_co]) -> DataFrame_co:
        """As a DataFrame of this session."""
        plain = pa.schema([field.with_type(_plain(field.type)) for field in self.table.schema])
        return spark.createDataFrame(self.table.cast(plain))


def node_answer(make: Callable[[], pa.Table]) -> Answer[Node]:
    return Answer(make, _node)


def edge_answer(make: Callable[[], pa.Table]) -> Answer[Edge]:
    return Answer(make, _edge)


def reached_answer(make: Callable[[], pa.Table]) -> Answer[Reached]:
    return Answer(make, lambda row: Reached(**row))


def _node(row: Mapping[str, Any]) -> Node:
    return Node(**{**row, "metadata": _metadata(row["metadata"])})


def _edge(row: Mapping[str, Any]) -> Edge:
    return Edge(**{**row, "metadata": _metadata(row["metadata"])})


def _metadata(text: str | None) -> Mapping[str, object]:
    return orjson.loads(text) if text else {}


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
