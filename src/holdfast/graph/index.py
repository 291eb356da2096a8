"""Finding nodes by their ids in memory: sorted hashes, then the text itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from holdfast.graph.records import hash_texts
from holdfast.xxh64 import SEED

__all__ = ["TextIndex"]

Indices = npt.NDArray[np.int64]


class TextIndex:
    """Where each of many different texts is in a column."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts
        hashes = hash_texts(texts)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, text: str) -> int:
        """The place of one text, or -1."""
        for place in self.with_hash(xxh64_intdigest(text.encode(), SEED)):
            if self._texts[place].as_py() == text:
                return place
        return -1

    def with_hash(self, hashed: int) -> list[int]:
        """The places of all texts with this hash: one, or by a rare chance several."""
        wanted = np.uint64(hashed)
        at = int(self._hashes.searchsorted(wanted))
        places = []
        while at < len(self._hashes) and self._hashes[at] == wanted:
            places.append(int(self._order[at]))
            at += 1
        return places

    def find_all(self, texts: pa.Array) -> Indices:
        """The place of each, -1 for those that are not there."""
        if not len(self._hashes) or not len(texts):
            return np.full(len(texts), -1, np.int64)
        hashes = hash_texts(texts)
        at = np.searchsorted(self._hashes, hashes)
        inside = np.minimum(at, len(self._hashes) - 1)
        places = np.where(self._hashes[inside] == hashes, self._order[inside], -1)
        found = np.flatnonzero(places >= 0)
        same = pc.equal(self._texts.take(pa.array(places[found])), texts.take(pa.array(found)).cast(self._texts.type))
        for row in found[~same.to_numpy(zero_copy_only=False)].tolist():  # two texts with one hash
            places[row] = self.find(texts[row].as_py())
        return places
