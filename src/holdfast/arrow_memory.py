"""Arrow columns as they lie in memory: for numpy, without a copy and without Python per value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["fixed_values", "variable_parts"]


def variable_parts(array: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes and the offsets of a text or binary column, whatever slice of a larger one it is."""
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets_buffer, data_buffer = array.buffers()
    dtype = np.dtype("<i8" if wide else "<i4")
    if offsets_buffer is None or len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    offsets = np.frombuffer(offsets_buffer, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(np.int64)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data, offsets


def fixed_values(array: pa.Array, dtype: str) -> npt.NDArray[np.generic]:
    """The values of a fixed-width column as they lie in memory."""
    buffer = array.buffers()[1]
    kind = np.dtype(dtype)
    if buffer is None or len(array) == 0:
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)
