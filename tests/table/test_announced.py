"""A table of a workspace is known to its catalog."""

from __future__ import annotations

import pyarrow as pa

from holdfast.catalog import Workspace
from holdfast.catalog.announce import tell_moves
from holdfast.catalog.events import Event
from holdfast.catalog.payloads import Column, DatasetPublished
from holdfast.storage import MemoryStore
from holdfast.table import publish_arrow


def test_the_catalog_learns_a_tables_columns_from_its_manifest() -> None:
    """C30: kind, rows and columns, as for key-value data sets."""
    workspace = Workspace(root=MemoryStore(), tenant="acme", name="prod")
    workspace.initialize()
    publish_arrow(workspace.dataset("orders", "table"), pa.table({"id": [1, 2], "name": ["a", None]}), run_id="one")

    [receipt] = tell_moves(workspace, "orders")

    [event] = workspace.ledger_reader("catalog").read([receipt.path])
    assert isinstance(event, Event)
    said = event.payload
    assert isinstance(said, DatasetPublished)
    assert (said.kind, said.row_count, said.run_id) == ("table", 2, "one")
    assert said.columns == (
        Column(name="id", type="int64", nullable=True),
        Column(name="name", type="string", nullable=True),
    )
    assert workspace.dataset("orders").layout.name == "table"
