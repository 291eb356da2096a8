"""Listing a chain's records in key order, a page at a time.

Each page is one query that starts above the last key of the page before. However far down it is, it costs the same,
and nothing but one page is ever held: not the keys that were passed, nor a cursor on the server.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.chain.sql.database import Database
from holdfast.chain.sql.reading import Place, manifest_version, record_version
from holdfast.storage.objects import ObjectInfo, Version

__all__ = ["key_range", "list_pages"]

_SEPARATOR = "/"

_RECORDS = """
SELECT * FROM (
    SELECT 'r' AS kind, key, length(data) AS size, CAST(version AS TEXT) AS version, modified_at
    FROM holdfast_records WHERE chain = ? AND key > ? {bound} ORDER BY key LIMIT ?
) AS records
"""
_MANIFESTS = """
SELECT * FROM (
    SELECT 'm' AS kind, name AS key, length(data) AS size, content_hash AS version, created_at AS modified_at
    FROM holdfast_manifests WHERE chain = ? AND name > ? {bound} ORDER BY name LIMIT ?
) AS manifests
"""
_POINTER = """
SELECT * FROM (
    SELECT 'p' AS kind, {key_value} AS key, length(data) AS size, version, updated_at AS modified_at
    FROM holdfast_pointer WHERE chain = ? ORDER BY sequence DESC LIMIT 1
) AS pointer
"""


def key_range(folder: str) -> tuple[str, str]:
    """What every key below a folder lies between."""
    return folder + _SEPARATOR, folder + chr(ord(_SEPARATOR) + 1)


def list_pages(
    database: Database, place: Place, folder: str, *, after: str | None, page_size: int
) -> Iterator[list[ObjectInfo]]:
    """Pages of what is below a folder (`""` is all), with keys above `after`."""
    low, high = key_range(folder) if folder else ("", None)
    low = max(low, after or "")
    while True:  # ends because every page begins above the one before
        page = _page(database, place, low, high, page_size)
        if page:
            yield page
        if len(page) < page_size:
            return
        low = page[-1].key


def _page(database: Database, place: Place, low: str, high: str | None, page_size: int) -> list[ObjectInfo]:
    values = (place.chain, low, *(() if high is None else (high,)), page_size)
    parts = [
        _RECORDS.replace("{bound}", "" if high is None else "AND key < ?"),
        _MANIFESTS.replace("{bound}", "" if high is None else "AND name < ?"),
    ]
    parameters: list[object] = [*values, *values]
    pointer_key = place.layout.pointer_key
    if low < pointer_key and (high is None or pointer_key < high):
        parts.append(_POINTER.replace("{key_value}", place.dialect.key_value))
        parameters += [pointer_key, place.chain]
    rows = database.rows(
        f"SELECT kind, key, size, version, modified_at FROM ({' UNION ALL '.join(parts)}) AS page ORDER BY key LIMIT ?",
        (*parameters, page_size),
    )
    return [
        ObjectInfo(
            key=key,
            size=int(size),
            version=_version(kind, version),
            modified_at=place.dialect.read_time(modified_at),
        )
        for kind, key, size, version, modified_at in rows
    ]


def _version(kind: str, text: str) -> Version:
    match kind:
        case "r":
            return record_version(int(text))
        case "m":
            return manifest_version(text)
        case _:
            return Version(text)
