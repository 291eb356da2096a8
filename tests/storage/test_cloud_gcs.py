"""GCS keeps the contract, against a fake of its XML API with generation preconditions."""

from __future__ import annotations

import pytest

from holdfast.errors import VersionConflict
from holdfast.storage import ObjectStore, Version, open_store
from holdfast.testing.fake_gcs import FakeGcs
from holdfast.testing.store_contract import ProcessStoreContract


@pytest.fixture
def opened(fake_gcs: FakeGcs, bucket: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in fake_gcs.environment.items():
        monkeypatch.setenv(name, value)
    return open_store(f"gs://{bucket}/pre/fix")


class TestGcs(ProcessStoreContract):
    """The contract; a listing has no generations, so its versions are not those of a head."""

    listed_versions_equal = False
    processes = 5

    @pytest.fixture
    def store(self, opened: ObjectStore) -> ObjectStore:
        return opened


def test_the_generation_decides_and_not_the_bytes(opened: ObjectStore) -> None:
    """S13: the same bytes written again are a new version, and the old one conflicts."""
    first = opened.put_new("a", b"same")
    second = opened.swap("a", b"same", expected=first)
    assert first != second
    with pytest.raises(VersionConflict):
        opened.swap("a", b"other", expected=first)


def test_a_version_without_a_generation_conflicts(opened: ObjectStore) -> None:
    """S13: an ETag alone, such as a listing shows, is no condition here."""
    version = opened.put_new("a", b"one")
    listed = next(iter(opened.list("")))[0].version
    for useless in (listed, Version(version.partition("|")[0]), Version(version + "0")):
        with pytest.raises(VersionConflict):
            opened.swap("a", b"two", expected=useless)
