"""Choosing records by attributes of their metadata, which is JSON (G21).

First by the text that must be in it, for all at once; only what is left is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["rows_with_metadata"]


def rows_with_metadata(texts: pa.Array, wanted: Mapping[str, object]) -> npt.NDArray[np.int64]:
    """The rows whose JSON has all these attributes with these values."""
    maybe = np.ones(len(texts), dtype=bool)
    for attribute, value in wanted.items():
        pattern = re.escape(orjson.dumps(attribute).decode())
        if isinstance(value, bool | int):  # spelled in one way only; texts may be escaped in several
            pattern += r"\s*:\s*" + re.escape(orjson.dumps(value).decode())
        if len(texts):
            maybe &= pc.fill_null(pc.match_substring_regex(texts, pattern), False).to_numpy(zero_copy_only=False)
    left = np.flatnonzero(maybe)
    parsed = texts.take(pa.array(left)).to_pylist()
    fits = [row for row, text in zip(left.tolist(), parsed, strict=True) if text and _fits(orjson.loads(text), wanted)]
    return np.array(fits, np.int64)


def _fits(found: object, wanted: Mapping[str, object]) -> bool:
    return isinstance(found, Mapping) and all(name in found and found[name] == value for name, value in wanted.items())
