"""Numbers that are never given twice, kept in a database."""

from __future__ import annotations

from pathlib import Path

from holdfast.chain import ChainHandle, open_chain
from tests.chain.test_numbering import KEY, in_threads, require_disjoint


def test_numbers_live_in_a_database_too(database_url: str, tmp_path: Path) -> None:
    """G10, S33: the record of a chain whose records are in SQL is there as well, and as safe."""
    store = f"file://{tmp_path}/store"

    def open_one(number: int) -> ChainHandle:
        return open_chain(store, layout="graph", manifests=database_url, by=str(number)).handle

    require_disjoint(in_threads(open_one))
    assert not (tmp_path / "store" / KEY).exists()
