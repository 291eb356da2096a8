"""Tables that released versions published hold for ever what they held on their first day."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from holdfast.chain import Chain, chain_on, table_layout
from holdfast.storage import LocalStore
from holdfast.table import open_table
from tests.golden.make import GOLDEN
from tests.golden.make_kv import spelled
from tests.golden.make_table import ANSWERS, FOLDER, every_type, make, publish

NAMES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob(f"v*/{FOLDER}/*"))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden(name: str, tmp_path: Path) -> Chain:
    """A chain over a copy of the golden files, so that no test can change them."""
    shutil.copytree(GOLDEN / name / "chain", tmp_path / "copy")
    return chain_on(LocalStore(tmp_path / "copy", durable=False), table_layout(), by="reader")


def test_golden_tables_hold_what_they_held(golden: Chain, name: str) -> None:
    """C30: every row of every type, and any reader of Parquet sees as many."""
    answers: list[Any] = orjson.loads((GOLDEN / name / ANSWERS).read_bytes())
    table = open_table(golden)

    assert orjson.loads(orjson.dumps([spelled(row) for row in table.to_arrow().to_pylist()])) == answers
    assert table.row_count == len(answers)
    store = GOLDEN / name / "chain"
    assert sum(pq.read_metadata(store / file.path).num_rows for file in table.data.files) == len(answers)
    assert golden.verify() == []


def test_manifests_are_still_written_as_they_were(tmp_path: Path) -> None:
    """C30: field by field; sizes and hashes of files are Parquet's own business, and change with its library."""
    publish(tmp_path / "every-type", every_type())

    def said(folder: Path) -> Any:
        [path] = (folder / "chain").glob("manifests/*/manifest")
        manifest = orjson.loads(path.read_bytes())
        for artifact in manifest["artifacts"]:
            del artifact["byte_size"], artifact["checksum"]
        return manifest | {"table": manifest["table"] | {"schema": ""}}

    assert said(tmp_path / "every-type") == said(GOLDEN / "v1" / FOLDER / "every-type")


def test_a_golden_version_is_never_written_again() -> None:
    """C30: kept for ever."""
    with pytest.raises(SystemExit, match="kept for ever"):
        make("v1")
