"""What a KV manifest says, and that one which was tampered with is damage, never a smaller data set."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest

from holdfast.chain import Artifact, Chain, InputPin, Manifest
from holdfast.errors import BuildFailed, CorruptRecord, Damaged, UnsupportedFormat
from holdfast.kv import BadRowReport, DataSet, ShardReceipt, building, publish_arrow
from tests.chain.publishing import sha256

pytestmark = pytest.mark.parametrize("store_kind", ["memory"])

TABLE = pa.table({"day": ["a", "b", "c", "d"], "n": pa.array([1, 2, 3, 4], pa.uint64()), "v": [[1], None, [], [2]]})


@pytest.fixture
def manifest(chain: Chain) -> Manifest:
    pin = InputPin(chain="s3://lake/users#kv", manifest_id=3, manifest_hash=sha256(b"x"), ref="r")
    publish_arrow(
        chain,
        TABLE,
        key=["day", "n"],
        bounds=[("b", 2), ("b", 3), ("c", 0)],
        inputs=[pin],
        custom={"owner": "team a"},
        tags={"stage": "dev"},
    )
    found = chain.load_current()
    assert found is not None
    return found


def test_a_manifest_says_everything_about_its_data_set(chain: Chain, manifest: Manifest) -> None:
    """K8, K12: rows, bytes, checksum, smallest and largest key, writer; schemas, routing, format, statistics."""
    payload: Any = manifest.payload["kv"]
    assert payload["shard_format"] == 1
    assert payload["shard_count"] == 4
    assert payload["empty_shards"] == [2]
    assert payload["key"] == [{"name": "day", "type": "text"}, {"name": "n", "type": "uint64"}]
    assert payload["value"] == "row"
    assert payload["routing"] == {"kind": "range", "bounds": [["b", 2], ["b", 3], ["c", 0]]}
    assert payload["columns"] == [
        {"name": "day", "type": "string", "nullable": False},
        {"name": "n", "type": "uint64", "nullable": False},
        {"name": "v", "type": "list<item: int64>", "nullable": True},
    ]
    assert payload["custom"] == {"owner": "team a"}
    assert payload["statistics"]["skew"] == 2.0
    assert payload["statistics"]["on_duplicate"] == "error"
    assert manifest.inputs[0].manifest_id == 3
    by_shard: dict[Any, Artifact] = {artifact.detail["shard"]: artifact for artifact in manifest.artifacts}
    assert sorted(by_shard) == [0, 1, 3]
    last = by_shard[3]
    assert last.row_count == 2
    assert last.byte_size == chain.store.head(last.path).size
    assert last.checksum == sha256(chain.store.get(last.path).data)
    assert last.detail["min_key"] == ["c", 3]
    assert last.detail["max_key"] == ["d", 4]
    assert last.detail["writer"] == "writer"
    assert last.path.startswith(f"shards/run_id={manifest.run_id}/")
    dataset = DataSet.of_manifest(manifest)
    assert dataset.payload() == manifest.payload
    assert dataset.artifacts() == manifest.artifacts


def tampered(manifest: Manifest, change: Callable[[Any, list[Any]], None]) -> Manifest:
    payload = copy.deepcopy(dict(manifest.payload))
    artifacts = list(manifest.artifacts)
    change(payload["kv"], artifacts)
    return replace(manifest, payload=payload, artifacts=tuple(artifacts))


def detail(artifacts: list[Any], index: int, **changes: object) -> None:
    artifacts[index] = replace(artifacts[index], detail={**artifacts[index].detail, **changes})


TAMPERINGS: dict[str, Callable[[Any, list[Any]], object]] = {
    "a shard is missing": lambda kv, artifacts: artifacts.pop(),
    "a shard is there twice": lambda kv, artifacts: artifacts.append(artifacts[0]),
    "two files for one shard": lambda kv, artifacts: detail(artifacts, 0, shard=1),
    "a shard too many": lambda kv, artifacts: detail(artifacts, 0, shard=4),
    "an empty shard is not listed": lambda kv, artifacts: kv["empty_shards"].clear(),
    "an empty shard is listed twice": lambda kv, artifacts: kv["empty_shards"].append(2),
    "a shard with rows is listed as empty": lambda kv, artifacts: kv["empty_shards"].append(0),
    "a shard is negative": lambda kv, artifacts: detail(artifacts, 0, shard=-1),
    "a shard is no number": lambda kv, artifacts: detail(artifacts, 0, shard="0"),
    "fewer shards": lambda kv, artifacts: kv.update(shard_count=3),
    "more shards": lambda kv, artifacts: kv.update(shard_count=5),
    "no shards": lambda kv, artifacts: kv.update(shard_count=0),
    "billions of shards": lambda kv, artifacts: kv.update(shard_count=1 << 60),
    "no count": lambda kv, artifacts: kv.pop("shard_count"),
    "no list of empty shards": lambda kv, artifacts: kv.pop("empty_shards"),
    "an unknown value": lambda kv, artifacts: kv.update(value="xml"),
    "no key": lambda kv, artifacts: kv.update(key=[]),
    "an unknown key type": lambda kv, artifacts: kv["key"][0].update(type="float"),
    "another key type": lambda kv, artifacts: kv["key"][0].update(type="bytes"),
    "no routing": lambda kv, artifacts: kv.pop("routing"),
    "an unknown routing": lambda kv, artifacts: kv.update(routing={"kind": "moon"}),
    "fewer bounds": lambda kv, artifacts: kv["routing"]["bounds"].pop(),
    "bounds of other keys": lambda kv, artifacts: kv["routing"].update(bounds=[1, 2, 3]),
    "a schema that is none": lambda kv, artifacts: kv.update(schema="AAAA"),
    "a schema that is no base64": lambda kv, artifacts: kv.update(schema="?"),
    "no fingerprint": lambda kv, artifacts: artifacts[0].detail.pop("fingerprint"),
    "a short fingerprint": lambda kv, artifacts: detail(artifacts, 0, fingerprint="12"),
    "a fingerprint of other letters": lambda kv, artifacts: detail(artifacts, 0, fingerprint="x" * 16),
    "a smallest key that is none": lambda kv, artifacts: detail(artifacts, 0, min_key=5),
    "no blocks": lambda kv, artifacts: detail(artifacts, 0, block_count=None),
}


@pytest.mark.parametrize("name", list(TAMPERINGS))
def test_a_tampered_manifest_is_corrupt(name: str, manifest: Manifest) -> None:
    """K26: a shard that is named nowhere is damage, never an empty one."""
    changed = copy.deepcopy(manifest)
    with pytest.raises(CorruptRecord):
        DataSet.of_manifest(tampered(changed, TAMPERINGS[name]))  # type: ignore[arg-type]
    assert DataSet.of_manifest(manifest).row_count == 4


def test_a_newer_shard_format_asks_for_an_upgrade(manifest: Manifest) -> None:
    """K8: before any shard is touched."""
    with pytest.raises(UnsupportedFormat, match="upgrade Holdfast"):
        DataSet.of_manifest(tampered(manifest, lambda kv, artifacts: kv.update(shard_format=2)))


def test_a_manifest_of_something_else_is_no_data_set(manifest: Manifest) -> None:
    """K18: the error says so."""
    with pytest.raises(Damaged, match="not a key-value data set"):
        DataSet.of_manifest(replace(manifest, payload={}))


def test_receipts_travel_from_an_executor_and_back(manifest: Manifest) -> None:
    """K6: with the shard, with what is wrong, or with nothing."""
    dataset = DataSet.of_manifest(manifest)
    report = BadRowReport(null_count=2, null_samples=("{'a': None}",), duplicate_count=1, duplicate_samples=("7",))
    for number, shard in enumerate(dataset.shards):
        receipt = ShardReceipt(number=number, shard=shard, report=report, dropped_rows=3, unchanged=True)
        assert ShardReceipt.decode(receipt.encode(dataset.key), dataset.key) == receipt
        assert orjson.loads(receipt.encode(dataset.key))["number"] == number


def test_a_build_publishes_only_with_one_receipt_for_each_shard(chain: Chain, manifest: Manifest) -> None:
    """K6: of two attempts one wins, and a shard that nobody answered for is no empty shard."""
    dataset = DataSet.of_manifest(manifest)
    receipts = [ShardReceipt(number=number) for number in range(4)]
    for wrong in (receipts[:3], [*receipts, receipts[0]], [*receipts[:3], ShardReceipt(number=4)]):
        with pytest.raises(BuildFailed, match="nothing was published"), building(chain) as build:  # noqa: PT012
            plan = build.plan(schema=dataset.schema, key=dataset.key, value=dataset.value, routing=dataset.routing)
            build.publish(plan, wrong)
    assert chain.load_current() == manifest
