"""What else people append with. Imported only when asked for: the peers are in the extra `bench`."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path

__all__ = ["have_peers", "open_peers"]


def have_peers() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("deltalake", "pyarrow", "pyiceberg"))


def open_peers(folder: Path) -> dict[str, Callable[[], object]]:
    """An append of one small file for each peer, to a fresh table of its own.

    deltalake is asked both ways: by path, as its documentation does, and with a table kept open, as our chain is.
    """
    return {
        "deltalake": _delta(folder / "delta", keep_open=False),
        "deltalake, open": _delta(folder / "delta-open", keep_open=True),
        "pyiceberg": _iceberg(folder / "iceberg"),
    }


def _delta(folder: Path, *, keep_open: bool) -> Callable[[], object]:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    batch = pa.table({"id": [1], "name": ["one"]})
    table = DeltaTable.create(str(folder), schema=batch.schema)
    place = table if keep_open else str(folder)
    return lambda: write_deltalake(place, batch, mode="append")


def _iceberg(folder: Path) -> Callable[[], object]:
    import pyarrow as pa

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir(parents=True)
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
        catalog.create_namespace("bench")
        batch = pa.table({"id": [1], "name": ["one"]})
        table = catalog.create_table("bench.small", schema=batch.schema)
    return lambda: table.append(batch)
