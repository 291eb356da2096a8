"""Metadata is a JSON object: that it is one, and choosing records by its attributes (G6, G21).

Choosing goes first by the text that must be in it, for all at once; only what is left is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadRows

__all__ = ["check_metadata", "rows_with_metadata"]

_TOGETHER_ROWS = 20_000
_TOGETHER_BYTES = 1 << 20


def check_metadata(texts: pa.Array, what: str) -> None:
    """BadRows unless every text is a JSON object. Thousands are parsed as one list: their number must come out.

    As many as are a megabyte together, or one that is larger: metadata may be more than there is memory.
    """
    present = texts.drop_null()
    ends = np.cumsum(pc.binary_length(present).to_numpy(zero_copy_only=False), dtype=np.int64)
    start = 0
    while start < len(present):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + _TOGETHER_BYTES, side="right"))
        end = min(max(end, start + 1), start + _TOGETHER_ROWS)
        some = present.slice(start, end - start)
        start = end
        whole = pa.ListArray.from_arrays(pa.array([0, len(some)], pa.int32()), some)
        joined = pc.binary_join(whole, ",")[0].as_py()
        try:
            parsed = orjson.loads(f"[{joined}]")
            good = len(parsed) == len(some) and set(map(type, parsed)) <= {dict}
        except orjson.JSONDecodeError:
            good = False
        if not good:
            sample = next((text for text in some.to_pylist() if not _is_object(text)), "")
            raise BadRows(
                f"nothing was committed: the metadata of {what}s should be a JSON object, such as "
                f'{{"line": 12}}, not {sample[:80]!r}'
            )


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


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
