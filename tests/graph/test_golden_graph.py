"""Golden graphs: what earlier releases wrote stays readable, for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from holdfast.graph.records import Node
from holdfast.graph.store import GraphStore
from holdfast.graph.version_diff import diff
from holdfast.testing.clock import VirtualClock
from tests.golden.make import GOLDEN
from tests.golden.make_graph import ANSWERS, FOLDER, answers, make

VERSIONS = sorted(folder.parent.name for folder in GOLDEN.glob(f"*/{FOLDER}"))


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    copy = tmp_path / "golden"
    shutil.copytree(GOLDEN / request.param / FOLDER, copy)
    return copy


def test_every_version_of_a_golden_graph_answers_as_it_did(golden: Path) -> None:
    """G1, G7, G16: segments, tombstones, parts of versions and a compaction, as an earlier release wrote them."""
    store = GraphStore.open(str(golden / "chain"))
    told = orjson.loads((golden / ANSWERS).read_bytes())
    assert orjson.loads(orjson.dumps(answers(store))) == told
    for version, said in told.items():
        direct = store.direct(int(version))
        assert orjson.loads(orjson.dumps(direct.nodes().to_dicts())) == said["nodes"]
        assert orjson.loads(orjson.dumps(direct.edges().to_dicts())) == said["edges"]
        for id_, near in said["near"].items():
            assert direct.neighbors(id_, direction="both") == near
    assert store.chain.verify() == []
    assert store.find_snapshot("release", "first").manifest_id == 2
    assert not diff(store, store.current() - 1, store.current()), "a compaction changes no record"


def test_a_golden_graph_goes_on_from_where_it_was(golden: Path) -> None:
    """G10: the next segment takes a number that no file has."""
    store = GraphStore.open(str(golden / "chain"), clock=VirtualClock())
    before = {path.name for path in (golden / "chain/segments").iterdir()}
    count, version = store.snapshot().node_count, store.current()
    store.commit(nodes=[Node(semantic_id="new", type="T")])
    assert (store.snapshot().node_count, store.current()) == (count + 1, version + 1)
    assert {path.name for path in (golden / "chain/segments").iterdir()} > before
    assert store.chain.verify() == []


def test_golden_segments_are_plain_parquet(golden: Path) -> None:
    """G7: anything that reads Parquet reads them."""
    files = sorted((golden / "chain/segments").glob("seg_*.seg"))
    assert files
    for file in files:
        assert pq.read_table(file, page_checksum_verification=True).num_rows > 0


def test_a_golden_version_is_never_made_again() -> None:
    """G1: what was kept is kept."""
    with pytest.raises(SystemExit, match="kept for ever"):
        make(VERSIONS[0])
