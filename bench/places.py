"""Where the benchmarks write: a real disk for what is synced, a memory disk for what is not, and an object store."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.testing.servers import ServerUnavailable, start_ministack

__all__ = ["object_store", "scratch"]

_MEMORY_DISKS = (Path("/dev/shm"), Path("/run/shm"))


@contextmanager
def scratch(on_disk: Path) -> Iterator[tuple[Path, Path]]:
    """Two fresh folders, on disk and in memory, removed at the end. Without a memory disk both are on disk."""
    on_disk.mkdir(parents=True, exist_ok=True)
    in_memory = next((place for place in _MEMORY_DISKS if place.is_dir() and os.access(place, os.W_OK)), on_disk)
    folders = [Path(tempfile.mkdtemp(prefix="bench-", dir=place)).resolve() for place in (on_disk, in_memory)]
    try:
        yield folders[0], folders[1]
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def object_store(folder: Path) -> Iterator[str | None]:
    """The URL of an empty bucket on an S3 server of this machine; None where the server is not installed."""
    try:
        server = start_ministack(folder)
    except ServerUnavailable:
        yield None
        return
    before = dict(os.environ)
    os.environ |= server.environment
    try:
        server.create_bucket("bench")
        yield "s3://bench"
    finally:
        server.stop()
        os.environ.clear()
        os.environ |= before
