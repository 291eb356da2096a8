"""Search: what is meant is found first, with half a word and with a slip of the fingers, now and as it was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.operations import Catalog
from holdfast.catalog.search import Hit, load_search, refresh_search, search
from holdfast.catalog.search_index import words_in
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput, CorruptShard, NotFound
from holdfast.storage.memory import MemoryStore
from holdfast.testing.clock import VirtualClock

NOW = datetime(2026, 3, 14, 10, 30, tzinfo=UTC)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def workspace(clock: VirtualClock) -> Workspace:
    made = Workspace(root=MemoryStore(), tenant="acme", name="prod", clock=clock)
    made.initialize()
    return made


@pytest.fixture
def catalog(workspace: Workspace) -> Catalog:
    found = Catalog(workspace)
    found.create_namespace("sales", description="Everything about selling")
    found.register_table(
        "sales", "customer_orders", description="One row an order",
        columns=[p.Column(name="orderId", type="int"), p.Column(name="total", type="double", description="in euros")],
    )  # fmt: skip
    found.register_table("sales", "returns", description="Orders that came back", tags={"team": "logistics"})
    found.register_table("sales", "customers", columns=[p.Column(name="größe", type="int")])
    refresh_search(workspace)
    return found


def names(hits: list[Hit]) -> list[str]:
    return [hit.name for hit in hits]


def test_the_best_match_comes_first(catalog: Catalog, workspace: Workspace) -> None:
    """C27: names before descriptions, all words before one; columns and tags count."""
    assert names(search(workspace, "customer orders")) == ["sales.customer_orders", "sales.customers", "sales.returns"]
    assert names(search(workspace, "orders"))[0] == "sales.customer_orders"
    assert names(search(workspace, "euros")) == ["sales.customer_orders"]
    assert names(search(workspace, "logistics")) == ["sales.returns"]
    assert names(search(workspace, "GRÖSSE größe")) == ["sales.customers"]
    assert names(search(workspace, "sales", kind="namespace")) == ["sales"]
    assert search(workspace, "nothing like it") == []
    assert search(workspace, " -- ") == []


def test_all_of_the_words_count_more_than_one_of_them_often(catalog: Catalog, workspace: Workspace) -> None:
    """C27: ranked by what was meant."""
    catalog.register_table("sales", "refund_refund", description="refund refund refund", tags={"refund": "refund"})
    catalog.register_table("sales", "misc", description="a long text about many things, one of them a refund, weekly")
    refresh_search(workspace)
    assert names(search(workspace, "refund weekly"))[0] == "sales.misc"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("custo", "sales.customers"),  # half a word
        ("custmers", "sales.customers"),  # a letter missing
        ("cutsomers", "sales.customers"),  # two letters exchanged
        ("retruns", "sales.returns"),
        ("logistcs", "sales.returns"),
        ("orderid", "sales.customer_orders"),
    ],
)
def test_prefixes_and_typos_are_understood(catalog: Catalog, workspace: Workspace, text: str, expected: str) -> None:
    """C27: prefixes and typos tolerated."""
    assert expected in names(search(workspace, text))[:2]


def test_an_index_follows_the_catalog_and_says_what_it_was_built_from(
    catalog: Catalog, workspace: Workspace, clock: VirtualClock
) -> None:
    """C27: rebuilt when the catalog moves, not otherwise; as of an old snapshot."""
    assert refresh_search(workspace) is None, "the catalog has not moved"
    clock.advance(60)
    before = clock.now()
    clock.advance(60)
    catalog.drop_table("sales", "returns")
    published = p.DatasetPublished(
        dataset="features", kind="kv", chain="c", manifest_id=1, manifest_hash="h", ref="r", commit_ulid="u",
        run_id="run", published_at=NOW, description="What the model eats", columns=(p.Column(name="age", type="int"),),
    )  # fmt: skip
    Compactor(workspace, "catalog").compact([workspace.ledger("catalog").append(published).path])
    assert names(search(workspace, "logistics")) == ["sales.returns"], "an index is of one snapshot"
    assert refresh_search(workspace) is not None
    assert search(workspace, "logistics") == []
    assert [(hit.kind, hit.name) for hit in search(workspace, "model age")] == [("dataset", "features")]
    assert names(search(workspace, "logistics", at=before)) == ["sales.returns"]
    current = workspace.domain("catalog").current()
    assert current is not None
    assert load_search(workspace).built_from.manifest_id == current.manifest_id
    assert workspace.domain("search").verify() == []


def test_what_cannot_be_asked_is_told(workspace: Workspace) -> None:
    """C27: no index yet, a wrong limit, a damaged file."""
    with pytest.raises(NotFound, match="no search index"):
        search(workspace, "x")
    refresh_search(workspace)
    assert search(workspace, "x") == []
    with pytest.raises(BadInput, match="finds nothing"):
        search(workspace, "x", limit=0)
    manifest = workspace.domain("search").load_current()
    assert manifest is not None
    path = manifest.artifacts[0].path
    workspace.store.delete([path])
    with pytest.raises(CorruptShard, match="missing"):
        search(workspace, "x")


plain_words: Callable[[str], list[str]] = lambda text: [word for word in text.lower().split() if word]  # noqa: E731


@settings(max_examples=60)
@given(st.lists(st.lists(st.text("abcxyz09", min_size=1, max_size=6), max_size=5).map(" ".join), max_size=5))
def test_words_are_those_of_their_rows(texts: list[str]) -> None:
    """C27: every word of every text, with the text it is from."""
    words, rows = words_in(pa.array(texts, pa.string()))
    expected = [(word, row) for row, text in enumerate(texts) for word in plain_words(text)]
    assert list(zip(words.to_pylist(), rows.tolist(), strict=True)) == expected
