"""Edges with their texts as numbers into dictionaries: millions of rows name the same few thousand files and nodes.

What is done to all rows is then done to numbers; what concerns a text is asked once per different text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["ENCODED_COLUMNS", "concat_edges", "encode_edges", "encoded_column", "texts_of"]

ENCODED_COLUMNS = ("source", "target", "type", "file")

Codes = npt.NDArray[np.int32]


def encode_edges(edges: pa.Table) -> pa.Table:
    """Edges with dictionaries for all that is not metadata, each column in one piece."""
    for name in ENCODED_COLUMNS:
        texts, codes = encoded_column(edges, name)
        column = pa.DictionaryArray.from_arrays(pa.array(codes), texts)
        edges = edges.set_column(
            edges.schema.get_field_index(name), pa.field(name, column.type, nullable=False), column
        )
    return edges


def encoded_column(table: pa.Table, name: str) -> tuple[pa.Array, Codes]:
    """The different texts of a column, and for each row which it has."""
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # what is left of nothing at all
        return pa.array([], pa.string()), np.zeros(0, np.int32)
    return whole.dictionary.cast(pa.string()), whole.indices.to_numpy(zero_copy_only=False).astype(np.int32)


def texts_of(table: pa.Table, name: str) -> pa.Array:
    """The different texts of a column."""
    return encoded_column(table, name)[0]


def concat_edges(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one after the other, encoded."""
    return pa.concat_tables([encode_edges(table) for table in tables]).unify_dictionaries().combine_chunks()
