"""Key columns as Arrow keeps them in memory: their bytes, their numbers, and UUIDs from whatever holds them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["fixed_values", "is_bytes_or_text", "to_uuids", "variable_parts"]

_UUID_PATTERN = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"
_NIBBLES = np.zeros(256, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]


def is_bytes_or_text(found: pa.DataType) -> bool:
    """Whether values are strings of bytes or of characters, in any of Arrow's spellings."""
    return any(
        fits(found)
        for fits in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
        )
    ) or (pa.types.is_fixed_size_binary(found) and not pa.types.is_decimal(found))


def to_uuids(array: pa.Array) -> pa.Array:
    """UUIDs from their 16 bytes, or from text as people write them."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = array.cast(pa.string())
        fits = pc.match_substring_regex(text, _UUID_PATTERN)
        if not pc.all(fits, min_count=0).as_py():
            wrong = text.filter(pc.invert(fits))[0].as_py()
            raise pa.ArrowInvalid(f"{wrong!r:.60} is no UUID")
        digits, offsets = variable_parts(pc.replace_substring(text, "-", ""))
        nibbles = _NIBBLES[digits[offsets[0] : offsets[-1]]].reshape(-1, 2)
        packed = (nibbles[:, 0] << 4) | nibbles[:, 1]
        array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(text), [None, pa.py_buffer(packed)])
    elif not pa.types.is_fixed_size_binary(kind) or kind.byte_width != 16:
        plain = array.cast(pa.binary())
        wrong_length = pc.not_equal(pc.binary_length(plain), 16)
        if pc.any(wrong_length, min_count=0).as_py():
            raise pa.ArrowInvalid(f"{plain.filter(wrong_length)[0].as_py()!r:.60} is no UUID, which has 16 bytes")
        array = plain.cast(pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), array)


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
