"""What a graph manifest says in the words of its model, beside what every manifest carries."""

from __future__ import annotations

import orjson
import pytest

from holdfast.chain import Chain, Manifest, ManifestDraft, graph_layout, kv_layout
from holdfast.errors import BadInput, CorruptRecord
from tests.chain.publishing import ChainFactory, edit, publish_one

pytestmark = pytest.mark.parametrize("layout_name", ["graph"])


def decode_changed(chain: Chain, path: str, **changes: object) -> Manifest:
    stored = orjson.loads(chain.store.get(path).data) | changes
    data = orjson.dumps({name: value for name, value in stored.items() if value is not ...})
    return Manifest.decode(data, key=path, names=chain.layout.names)


def test_a_graph_manifest_says_its_version_its_time_and_its_parent(chain_factory: ChainFactory) -> None:
    """G2: `version` from 1, `created_at` in Unix seconds, `parent_version` only where there is a parent."""
    chain = chain_factory()
    first = publish_one(chain, b"one")
    stored = orjson.loads(chain.store.get(first.manifest_path).data)
    assert (stored["version"], stored["created_at"]) == (1, 1773484200)
    assert "parent_version" not in stored
    chain_factory.clock.advance(90.75)
    publish_one(chain, b"two")
    chain.rollback()
    third = publish_one(chain, b"three")
    stored = orjson.loads(chain.store.get(third.manifest_path).data)
    assert (stored["version"], stored["created_at"], stored["parent_version"]) == (3, 1773484290, 1)
    assert third.manifest == chain.load_current()


def test_a_time_before_the_epoch_is_still_above_zero(chain_factory: ChainFactory) -> None:
    """G2: `created_at` is above 0, whatever the clock says."""
    chain_factory.clock.advance(-2e9)
    chain = chain_factory()
    stored = orjson.loads(chain.store.get(publish_one(chain).manifest_path).data)
    assert stored["created_at"] == 1
    assert chain.load_current() is not None


@pytest.mark.parametrize(
    "changes",
    [{"version": 3}, {"version": 0}, {"created_at": 0}, {"created_at": 7}, {"parent_version": 2}, {"version": "2"}],
)
def test_a_manifest_that_contradicts_itself_is_refused(chain: Chain, changes: dict[str, object]) -> None:
    """G2, G9: what it says twice agrees, or it is damaged."""
    publish_one(chain, b"one")
    path = publish_one(chain, b"two").manifest_path
    assert decode_changed(chain, path) == chain.load_current()
    with pytest.raises(CorruptRecord, match=next(iter(changes))):
        decode_changed(chain, path, **changes)


def test_a_first_manifest_with_a_parent_version_is_refused(chain: Chain) -> None:
    """G2: it is left out when there is none."""
    path = publish_one(chain).manifest_path
    with pytest.raises(CorruptRecord, match="parent_version"):
        decode_changed(chain, path, parent_version=1)


def test_a_manifest_at_the_key_of_another_version_is_refused(chain: Chain) -> None:
    """G9: loading checks the version inside the file."""
    path = publish_one(chain).manifest_path
    with pytest.raises(CorruptRecord, match="version 1, not of version 2"):
        Manifest.decode(chain.store.get(path).data, key="manifests/000002.json", names=chain.layout.names)


def test_a_manifest_from_before_these_fields_is_still_read(chain: Chain) -> None:
    """G2, S9: what an older release wrote says it once."""
    publish_one(chain, b"one")
    path = publish_one(chain, b"two").manifest_path
    assert decode_changed(chain, path, version=..., created_at=..., parent_version=...) == chain.load_current()


@pytest.mark.parametrize("field", ["version", "created_at", "parent_version"])
def test_a_model_may_not_say_them_otherwise(chain: Chain, field: str) -> None:
    """G2, S7: in a graph chain these are the kernel's; elsewhere a model may use the names."""
    with pytest.raises(BadInput, match=field):
        publish_one(chain, payload={field: 7})
    assert chain.load_current() is None
    other = ChainFactory(layout=kv_layout())
    assert publish_one(other(), payload={field: 7}).manifest.payload == {field: 7}
    assert ManifestDraft(payload={field: 7}).payload == {field: 7}
    assert graph_layout().names.version_of is not None


def test_verify_finds_a_manifest_whose_version_was_changed(chain: Chain, chain_factory: ChainFactory) -> None:
    """G9, S38: the hash would tell anyway; so does the field."""
    path = publish_one(chain).manifest_path
    edit(chain_factory.store, path, version=2)
    chain_factory.expect_damage()
    assert [found.key for found in chain_factory.breaks()] == [path]
