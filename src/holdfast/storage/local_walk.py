"""Listing a tree of files in key order, one folder at a time.

Key order is the byte order of whole keys, and `/` sorts before letters but after `-` and `.`: `a-b` < `a.b` < `a/b` <
`ab`. A folder therefore sorts as its name followed by `/`, and a walk that sorts so in every folder is in order
overall.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast.errors import InvalidKey
from holdfast.storage import local_io as io
from holdfast.storage.keys import check_key
from holdfast.storage.objects import ObjectInfo

__all__ = ["has_objects", "temporaries", "walk", "walk_keys"]

_MISSING = (FileNotFoundError, NotADirectoryError)


def walk(path: str, start: str, after: str | None, page_size: int) -> Iterator[list[ObjectInfo]]:
    """Pages of the objects below the folder at `path`, whose keys start with `start`."""
    page: list[ObjectInfo] = []
    for info in _objects(path, start, after):
        page.append(info)
        if len(page) == page_size:
            yield page
            page = []
    if page:
        yield page


def walk_keys(path: str, start: str, after: str | None = None) -> Iterator[str]:
    """Only their keys, without a look at the files: one may be gone already."""
    for name, is_folder in _entries(path):
        key = f"{start}{name}"
        if is_folder:
            # All keys below start with `key`: skip the folder if `after` lies behind them all.
            if after is None or key > after or after.startswith(key):
                yield from walk_keys(f"{path}/{name[:-1]}", key, after)
        elif (after is None or key > after) and _is_key(key):
            yield key


def has_objects(path: str) -> bool:
    """Whether there is an object anywhere below.

    An empty folder, or one with temporary files only, is none to a store.
    """
    return next(_objects(path, "", None), None) is not None


def temporaries(path: str, start: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Temporary files below the folder, wherever a writer may have left one."""
    for name, is_folder in _entries(path):
        if is_folder:
            yield from temporaries(f"{path}/{name[:-1]}", f"{start}{name}")
        elif io.is_temporary(name):
            try:
                yield f"{start}{name}", os.stat(f"{path}/{name}")
            except _MISSING:
                continue


def _objects(path: str, start: str, after: str | None) -> Iterator[ObjectInfo]:
    for key in walk_keys(path, start, after):
        try:
            status = os.stat(f"{path}/{key[len(start) :]}")
        except _MISSING:
            continue
        except OSError as error:
            raise io.translate(error, key) from error
        yield io.info_of(key, status)


def _entries(path: str) -> list[tuple[str, bool]]:
    """Names in one folder in key order, folders with a `/` at their end."""
    try:
        with os.scandir(path) as entries:
            found = [(f"{entry.name}/", True) if entry.is_dir() else (entry.name, False) for entry in entries]
    except _MISSING:
        return []
    except OSError as error:
        raise io.translate(error, path) from error
    found.sort()
    return found


def _is_key(key: str) -> bool:
    """Whether a file is an object. Temporary files and names that are not UTF-8 are not ours to show."""
    try:
        check_key(key)
    except InvalidKey:
        return False
    return True
