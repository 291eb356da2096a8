"""What a collector reads of a manifest is what the manifest lists, or an error that names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from holdfast.chain import Chain, chain_on, kv_layout
from holdfast.chain.listed import Listed
from holdfast.errors import CorruptRecord, UnsupportedFormat
from holdfast.storage.local import LocalStore
from tests.chain.publishing import publish_one


def test_all_artifacts_of_a_manifest_are_listed_with_their_sizes(chain: Chain) -> None:
    """S41: in every layout's own words."""
    manifest = publish_one(chain).manifest
    names = chain.layout.names
    listed = Listed.of_manifest(manifest.encode(names), key="manifest", names=names)
    assert listed.sizes == {artifact.path: artifact.byte_size for artifact in manifest.artifacts}
    assert listed.sizes
    assert not listed.legacy


def test_a_record_that_cannot_be_read_is_named(chain: Chain) -> None:
    """S41: nothing is guessed of a manifest that a newer release wrote, or that lacks the path of an artifact."""
    names = chain.layout.names
    record = orjson.loads(publish_one(chain).manifest.encode(names))
    newer = orjson.dumps({**record, "format": "holdfast.manifest/2.0"})
    with pytest.raises(UnsupportedFormat, match="'manifest' has format"):
        Listed.of_manifest(newer, key="manifest", names=names)
    with pytest.raises(CorruptRecord, match="format"):
        Listed.of_part(orjson.dumps(record), key="part", names=names)
    (list_name, *_) = names.lists.values()
    pathless = orjson.dumps({**record, list_name: [{"byte_size": 1}]})
    with pytest.raises(CorruptRecord, match=names.path):
        Listed.of_manifest(pathless, key="manifest", names=names)


def test_what_an_older_release_wrote_is_known_as_that(chain: Chain) -> None:
    """S41: its files are not known, so whoever needs them stops."""
    assert Listed.of_manifest(b'{"shards": ["a"]}', key="manifest", names=chain.layout.names).legacy


class _Haunted(LocalStore):
    """Lists a file that another collector deletes before it can be asked for."""

    def list_keys(self, prefix: str) -> Iterator[tuple[str, None]]:
        yield from super().list_keys(prefix)
        yield f"{prefix}/gone", None


def test_a_file_that_is_gone_before_its_size_is_asked_is_not_condemned(tmp_path: Path) -> None:
    """S42: there is nothing left of it to delete."""
    chain = chain_on(_Haunted(tmp_path, durable=False), kv_layout())
    publish_one(chain)
    chain.store.put_new(f"{chain.layout.artifact_prefixes[0]}/stray", b"stray")
    plan = chain.collect(retention=1)
    assert [(item.key.rpartition("/")[2], item.byte_size) for item in plan.condemned] == [("stray", 5)]
