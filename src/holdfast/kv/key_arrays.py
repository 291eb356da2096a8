"""Which columns can be keys of bytes or text, and UUIDs from whatever holds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.arrow_memory import variable_parts

__all__ = ["is_bytes_or_text", "to_uuids"]

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
