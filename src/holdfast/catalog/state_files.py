"""Files of a domain's state that were read before. A file never changes, so it is known by its checksum."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from holdfast.catalog.domain_state import DomainState, StateFile, read_table
from holdfast.storage.capabilities import Reader

__all__ = ["StateFiles"]


class StateFiles:
    """Reads files of the state once. Any number of threads may ask."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._read: dict[str, pa.Table] = {}

    def table(self, file: StateFile) -> pa.Table:
        """The rows of a file; CorruptShard if it is missing or damaged."""
        found = self._read.get(file.checksum)
        if found is None:
            found = self._read[file.checksum] = read_table(self._store, file)
        return found

    def tables(self, state: DomainState, name: str) -> list[pa.Table]:
        """All rows of a table, the base and its deltas, not folded."""
        return [self.table(file) for file in state.files_of(name)]

    def wrote(self, file: StateFile, rows: pa.Table) -> None:
        self._read[file.checksum] = rows

    def keep(self, files: Iterable[StateFile]) -> None:
        """What the visible state no longer names is not asked for again."""
        kept = {file.checksum for file in files}
        self._read = {checksum: table for checksum, table in self._read.items() if checksum in kept}
