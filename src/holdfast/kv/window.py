"""One array over many mapped files, so that a look-up of many keys is a handful of array operations, not one per shard.

A process's mappings lie somewhere in one address space. A window is an array that begins at the lowest and ends behind
the highest; a file's bytes are at a known distance from its start. What lies between the files is never touched: every
offset that is used comes from an index or a block whose checksum was right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

__all__ = ["NEAR", "Window"]

NEAR = 48
"""How many tags around the place where one should be are looked at together."""


class Window:
    """The mapped files as arrays of bytes and of wider numbers, all of the same memory."""

    def __init__(self, files: Sequence[memoryview]) -> None:
        self._files = list(files)  # keeps the mappings alive, through the arrays too, but never in a circle
        addresses = [np.frombuffer(file, np.uint8).ctypes.data for file in files]
        ends = [address + len(file) for address, file in zip(addresses, files, strict=True)]
        self._start = min(addresses, default=0)
        span = -(-(max(ends, default=0) - self._start) // 8) * 8
        self.bases: npt.NDArray[np.int64] = np.array([a - self._start for a in addresses], np.int64)
        """How far from the window's start each file begins: a whole number of pages, so its numbers stay aligned."""
        # A mapping covers whole pages, so rounding up to eight bytes stays inside the last one.
        self.u8: npt.NDArray[np.uint8] = (
            np.asarray(_Span(self._start, span, self._files)) if files else np.empty(0, np.uint8)
        )
        self.u16: npt.NDArray[np.uint16] = self.u8.view("<u2")
        self.i32: npt.NDArray[np.int32] = self.u8.view("<i4")
        self.i64: npt.NDArray[np.int64] = self.u8.view("<i8")
        self.near: npt.NDArray[np.uint16] = as_strided(
            self.u16, (max(0, len(self.u16) - NEAR + 1), NEAR), (2, 2), writeable=False
        )
        """`near[i]` are the numbers of `u16` from i on: a row that is copied as one piece."""

    def pieces(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.void]:
        """The `width` bytes from each start on, wherever that is."""
        if not width or not len(starts):
            return np.empty(len(starts), f"V{width}")
        every_byte = np.ndarray((len(self.u8) - width + 1,), f"V{width}", self.u8, strides=(1,))
        return every_byte[starts]


class _Span:
    """What numpy asks to make an array of memory it does not own."""

    def __init__(self, start: int, length: int, owner: object) -> None:
        self._owner = owner
        self.__array_interface__ = {"data": (start, True), "shape": (length,), "typestr": "|u1", "version": 3}
