"""Where Spark itself finds the files of a store, if it can."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.storage.objects import ObjectStore, local_path_of

__all__ = ["hadoop_paths"]

_HADOOP = {"s3": "s3a", "gs": "gs"}
"""Schemes of stores, and what Hadoop calls them."""
_PATTERN_CHARACTERS = frozenset("*?[]{}\\,")


def hadoop_paths(store: ObjectStore, keys: Sequence[str]) -> list[str] | None:
    """What Spark would call these files; None if it could not open them, or would take a name for a pattern."""
    scheme, _, rest = store.url.partition("://")
    paths = []
    for key in keys:
        local = local_path_of(store, key)
        if local is not None:
            paths.append(f"file://{local}")
        elif scheme in _HADOOP:
            paths.append(f"{_HADOOP[scheme]}://{rest.rstrip('/')}/{key}")
        else:
            return None
    return None if any(_PATTERN_CHARACTERS & set(path) for path in paths) else paths
