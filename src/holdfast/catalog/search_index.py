"""The search index of a workspace: which words stand where, made from the catalog as a whole (C27).

A document is a namespace, a table or a data set: its name, its description, its columns and its tags. The index is
three tables, sorted, so that reading it is loading arrays: documents, words, and postings (word, document, weight). All
of it is made by Arrow and numpy: no Python per word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "CATALOG_TABLES",
    "DOCUMENTS",
    "FIELD_WEIGHTS",
    "POSTINGS",
    "WORDS",
    "SearchTables",
    "build_index",
    "documents_of",
    "index_of",
    "merge_indexes",
    "words_in",
]

DOCUMENTS, WORDS, POSTINGS = "documents", "words", "postings"
CATALOG_TABLES = ("namespaces", "tables", "datasets", "snapshots")
"""What documents are made of."""
FIELD_WEIGHTS = {"name": 4.0, "columns": 2.0, "tags": 2.0, "description": 1.0}
COMPOUND_SHARE = 0.25
WORD_CHARACTERS_MAX = 64

_DOCUMENT = pa.schema(
    [
        ("kind", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("columns", pa.string()),
        ("tags", pa.string()),
    ]
)
_CAMEL = r"(\p{Ll}|\p{N})(\p{Lu})"
_NOT_A_WORD = r"[^\p{L}\p{N}]+"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTables:
    """An index, as it is stored."""

    documents: pa.Table
    words: pa.Table
    """Each word once, sorted; its place is its number."""
    postings: pa.Table
    """`word`, `document`, `weight`; by word, then document."""

    def by_name(self) -> dict[str, pa.Table]:
        return {DOCUMENTS: self.documents, WORDS: self.words, POSTINGS: self.postings}


def words_in(texts: pa.Array) -> tuple[pa.Array, Numbers]:
    """The words of texts in lower case, and for each the row it is from. `orderId` is two words, as `order_id` is."""
    return _split(pc.replace_substring_regex(pc.fill_null(texts, ""), _CAMEL, r"\1 \2"))


def _compounds_in(texts: pa.Array) -> tuple[pa.Array, Numbers]:
    """The same with `orderId` and `order_id` as one word: some people type it so."""
    return _split(pc.replace_substring(pc.fill_null(texts, ""), "_", ""))


def _split(texts: pa.Array) -> tuple[pa.Array, Numbers]:
    lists = pc.split_pattern_regex(pc.utf8_lower(texts), _NOT_A_WORD)
    words, rows = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    words = pc.utf8_slice_codeunits(words, 0, WORD_CHARACTERS_MAX)
    there = pc.not_equal(words, "")
    return words.filter(there), rows[there.to_numpy(zero_copy_only=False)].astype(np.int64)


def build_index(catalog: Mapping[str, pa.Table]) -> SearchTables:
    """From the catalog's tables, as they are there (`namespaces`, `tables`, `datasets`, `snapshots`)."""
    return index_of(documents_of(catalog))


def documents_of(catalog: Mapping[str, pa.Table]) -> pa.Table:
    """What can be found, in order; two of one name by what is said of them, so that the order is never chance."""
    documents = pa.concat_tables([_namespaces(catalog), _tables(catalog), _datasets(catalog)])
    return documents.sort_by([(name, "ascending") for name in _DOCUMENT.names]).combine_chunks()


def index_of(documents: pa.Table) -> SearchTables:
    """Which words stand in which documents, and how much each counts there."""
    found: list[tuple[pa.Array, Numbers, float]] = []
    for field, weight in FIELD_WEIGHTS.items():
        column = documents.column(field).combine_chunks()
        texts = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
        found.append((*words_in(texts), weight))
        found.append((*_compounds_in(texts), weight * COMPOUND_SHARE))
    every = pa.concat_arrays([words for words, _, _ in found])
    rows = np.concatenate([rows for _, rows, _ in found])
    weights = np.concatenate([np.full(len(rows), weight) for _, rows, weight in found])
    return _arranged(documents, every, rows, weights)


def merge_indexes(indexes: Sequence[SearchTables]) -> SearchTables:
    """The index of all documents of some, each of which is in one of them only: what `index_of` makes of them all."""
    documents = pa.concat_tables([_DOCUMENT.empty_table(), *(one.documents for one in indexes)]).combine_chunks()
    order = pc.sort_indices(documents, [(name, "ascending") for name in _DOCUMENT.names]).to_numpy()
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    words: list[pa.Array] = [pa.array([], pa.string())]
    rows, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
    first = 0
    for one in indexes:
        numbers = one.postings.column("word").to_numpy()
        words.append(
            pa.concat_arrays([pa.array([], pa.string()), *one.words.column("word").chunks]).take(pa.array(numbers))
        )
        rows.append(places[first + one.postings.column("document").to_numpy()])
        weights.append(one.postings.column("weight").to_numpy())
        first += len(one.documents)
    return _arranged(
        documents.take(pa.array(order)).combine_chunks(),
        pa.concat_arrays(words),
        np.concatenate(rows),
        np.concatenate(weights),
    )


def _arranged(documents: pa.Table, every: pa.Array, rows: Numbers, weights: npt.NDArray[np.float64]) -> SearchTables:
    """Words and documents as numbers, sorted, and their weights summed."""
    unique = pc.unique(every)
    unique = unique.take(pc.sort_indices(unique))
    numbers = pc.index_in(every, value_set=unique).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs, place = np.unique(numbers * max(1, len(documents)) + rows, return_inverse=True)
    summed = np.bincount(place, weights=weights, minlength=len(pairs))
    postings = pa.table(
        {
            "word": pa.array(pairs // max(1, len(documents)), pa.int64()),
            "document": pa.array(pairs % max(1, len(documents)), pa.int64()),
            "weight": pa.array(summed, pa.float64()),
        }
    )
    return SearchTables(documents=documents, words=pa.table({"word": unique}), postings=postings)


# -- documents --------------------------------------------------------------------------------------------------------


def _namespaces(catalog: Mapping[str, pa.Table]) -> pa.Table:
    rows = catalog["namespaces"]
    return _documents("namespace", rows["namespace"], rows["description"], None, rows["properties"])


def _tables(catalog: Mapping[str, pa.Table]) -> pa.Table:
    rows = catalog["tables"]
    names = pc.binary_join_element_wise(rows["namespace"], rows["table"], ".")
    return _documents("table", names, rows["description"], _column_names(rows["columns"]), rows["tags"])


def _datasets(catalog: Mapping[str, pa.Table]) -> pa.Table:
    """With what was said when the visible snapshot was published."""
    said = catalog["snapshots"].select(["dataset", "manifest_id", "description", "columns", "tags"])
    texts = said.set_column(3, "columns", _column_names(said["columns"]))
    rows = catalog["datasets"].select(["dataset", "manifest_id"]).join(texts, ["dataset", "manifest_id"])
    return _documents("dataset", rows["dataset"], rows["description"], rows["columns"], rows["tags"])


def _documents(
    kind: str,
    names: pa.ChunkedArray,
    descriptions: pa.ChunkedArray,
    columns: pa.ChunkedArray | pa.Array | None,
    tags: pa.ChunkedArray,
) -> pa.Table:
    empty = pa.array([""] * len(names), pa.string())
    filled = [pc.fill_null(given, "") for given in (descriptions, empty if columns is None else columns, tags)]
    return pa.table([pa.array([kind] * len(names), pa.string()), names, *filled], schema=_DOCUMENT)


def _column_names(lists: pa.ChunkedArray) -> pa.Array:
    """The names and descriptions of a table's columns as one text."""
    held = lists.combine_chunks()
    held = held if isinstance(held, pa.Array) else pa.concat_arrays(held.chunks)
    flat = pc.list_flatten(held)
    texts = pc.binary_join_element_wise(pc.struct_field(flat, "name"), pc.struct_field(flat, "description"), " ")
    lengths = pc.fill_null(pc.list_value_length(held), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), " ")
