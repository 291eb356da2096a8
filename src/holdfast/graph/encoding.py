"""Edges with their texts as numbers into dictionaries: millions of rows name the same few thousand files and nodes.

What is done to all rows is then done to numbers; what concerns a text is asked once per different text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["ENCODED_COLUMNS", "coded", "conformed", "encode_edges", "encoded_column", "texts_of"]

ENCODED_COLUMNS = ("source", "target", "type", "file")

Codes = npt.NDArray[np.int32]


def encode_edges(edges: pa.Table) -> pa.Table:
    """Edges with dictionaries for all that is not metadata, each column in one piece; both ends with the same one.

    What is then done to the texts of ends, such as sorting them, is done once.
    """
    ends, places = _encoded_together([*edges.column("source").chunks, *edges.column("target").chunks])
    known = {"source": (ends, places[: len(edges)]), "target": (ends, places[len(edges) :])}
    for name in ENCODED_COLUMNS:
        texts, codes = known.get(name) or encoded_column(edges, name)
        column = pa.DictionaryArray.from_arrays(pa.array(codes), texts)
        edges = edges.set_column(
            edges.schema.get_field_index(name), pa.field(name, column.type, nullable=False), column
        )
    return edges


def _encoded_together(arrays: Sequence[pa.Array]) -> tuple[pa.Array, Codes]:
    """The different texts of several arrays, which may be too long to be one, and for each row of all which it has."""
    encoded = pa.chunked_array(arrays, pa.string()).dictionary_encode().chunks  # Arrow gives them one dictionary
    codes = [np.zeros(0, np.int32), *(chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded)]
    return encoded[-1].dictionary if encoded else pa.array([], pa.string()), np.concatenate(codes)


def encoded_column(table: pa.Table, name: str) -> tuple[pa.Array, Codes]:
    """The different texts of a column, and for each row which it has."""
    chunks = table.column(name).chunks
    if not chunks:
        return pa.array([], pa.string()), np.zeros(0, np.int32)
    if len(chunks) == 1:
        chunk = chunks[0] if pa.types.is_dictionary(chunks[0].type) else chunks[0].dictionary_encode()
        numbers = chunk.indices.to_numpy(zero_copy_only=False)
        return _plain(chunk.dictionary), numbers if numbers.dtype == np.int32 else numbers.astype(np.int32)
    codes, texts = coded(chunks)
    if sum(pa.types.is_dictionary(chunk.type) for chunk in chunks) < 2:  # what comes from one dictionary is unique
        return _plain(texts), codes.astype(np.int32)
    unique = texts.dictionary_encode()
    return _plain(unique.dictionary), unique.indices.to_numpy(zero_copy_only=False).astype(np.int32)[codes]


def _plain(texts: pa.Array) -> pa.Array:
    return texts if texts.type == pa.string() else texts.cast(pa.string())


def coded(chunks: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """A column as numbers into texts, which may repeat from chunk to chunk.

    Arrow could unify the dictionaries of chunks, but takes for each chunk as long as all of them together are.
    """
    if chunks and not any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        chunks = [pa.concat_arrays(chunks)]
    encoded = [chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks]
    codes, start = [np.zeros(0, np.int64)], 0
    for chunk in encoded:
        codes.append(chunk.indices.to_numpy(zero_copy_only=False).astype(np.int64) + start)
        start += len(chunk.dictionary)
    texts = pa.concat_arrays([chunk.dictionary for chunk in encoded]) if encoded else pa.array([], pa.string())
    return np.concatenate(codes), texts


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same with these types; a column that has its own already is not cast."""
    if table.schema.equals(schema):
        return table
    columns = zip(table.itercolumns(), schema.types, strict=True)
    return pa.Table.from_arrays(
        [column if column.type == kind else column.cast(kind) for column, kind in columns], schema=schema
    )


def texts_of(table: pa.Table, name: str) -> pa.Array:
    """The different texts of a column."""
    return encoded_column(table, name)[0]
