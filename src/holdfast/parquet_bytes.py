"""Parquet from bytes that lie in memory.

Arrow's threads must never hold the last reference to a Python object. They let go of it a moment after the call has
returned, and for that they take the interpreter's lock: where the interpreter is ending, such a thread is unwound,
which C++ answers with "terminate called without an active exception" and an abort of a program that had done all it
should.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["read_parquet"]

# Below this, threads cost more than they save.
_THREADS_FROM = 1 << 20


def read_parquet(data: bytes, *, read_dictionary: Sequence[str] = ()) -> pa.Table:
    """The rows of a Parquet file, decoded by several threads where it is large.

    Raises what Arrow raises where it is no such file.
    """
    threads = len(data) >= _THREADS_FROM
    source = pa.BufferReader(_arrow_owned(data) if threads else data)
    return pq.ParquetFile(source, read_dictionary=list(read_dictionary)).read(use_threads=threads)


def _arrow_owned(data: bytes) -> pa.Buffer:
    """A copy that any thread may let go of."""
    buffer = pa.allocate_buffer(len(data))
    memoryview(buffer).cast("B")[:] = data
    return buffer
