"""Data sets that released versions published answer for ever as they did on their first day."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from holdfast.chain import Chain, chain_on, kv_layout
from holdfast.kv import ShardedReader, publish_arrow
from holdfast.storage import LocalStore
from tests.golden.make import GOLDEN
from tests.golden.make_kv import ANSWERS, FOLDER, make, spelled, tables

NAMES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob(f"v*/{FOLDER}/*"))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden(name: str, tmp_path: Path) -> Chain:
    """A chain over a copy of the golden files, so that no test can change them."""
    shutil.copytree(GOLDEN / name / "chain", tmp_path / "copy")
    return chain_on(LocalStore(tmp_path / "copy", durable=False), kv_layout(), by="reader")


@pytest.fixture
def answers(name: str) -> list[Any]:
    found: list[Any] = orjson.loads((GOLDEN / name / ANSWERS).read_bytes())
    return found


@pytest.mark.parametrize("mode", ["cache", "direct"])
def test_golden_data_sets_answer_as_they_did(mode: str, golden: Chain, answers: list[Any], tmp_path: Path) -> None:
    """K2, K3, K8: every key of every kind is in its shard and has its value, mapped and by range requests."""
    with ShardedReader.open(golden, mode=mode, cache=tmp_path / "cache") as reader:
        key_of = reader.dataset.key.from_json_key
        assert reader.dataset.row_count == len(answers)
        for spelling, shard, value in answers:
            key = key_of(spelling)
            assert reader.route_key(key) == shard
            assert spelled(reader.get(key)) == value
        found = reader.multi_get([key_of(spelling) for spelling, _, _ in answers])
        assert [spelled(value) for value in found.values()] == [value for _, _, value in answers]
    assert golden.verify() == []


def test_golden_shards_are_arrow_files(golden: Chain, answers: list[Any]) -> None:
    """K2: any Arrow reader sees as many rows as there are answers."""
    manifest = golden.load_current()
    assert manifest is not None
    files = [golden.store.get(artifact.path).data for artifact in manifest.artifacts]
    assert sum(pa.ipc.open_file(data).read_all().num_rows for data in files) == len(answers)


def test_a_golden_version_is_never_made_again() -> None:
    """K8: what is there is kept for ever."""
    with pytest.raises(SystemExit, match="kept for ever"):
        make("v1")


@pytest.mark.parametrize("made", [each for each in tables() if each[1].num_rows], ids=lambda each: each[0])
def test_the_same_rows_are_still_in_the_same_blocks(made: tuple[str, pa.Table, dict[str, Any]], tmp_path: Path) -> None:
    """K8: today's writer puts golden rows where the first one did, so that shards of both can be read alike."""
    name, table, options = made
    old = chain_on(LocalStore(GOLDEN / "v1" / FOLDER / name / "chain"), kv_layout(), by="reader").load_current()
    chain = chain_on(LocalStore(tmp_path, durable=False), kv_layout(), by="writer")
    new = publish_arrow(chain, table, **options).commit.manifest
    assert old is not None
    for before, after in zip(old.artifacts, new.artifacts, strict=True):
        same = ("shard", "min_key", "max_key", "block_count")
        assert [before.detail[field] for field in same] == [after.detail[field] for field in same]
        assert before.row_count == after.row_count
