"""Readers: three of them, two ways to serve, every kind of key and value, the same answers."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from holdfast.chain import Chain, Refreshed
from holdfast.errors import BadInput, NotAChain, NotFound, ReaderClosed, SnapshotNotFound, UnknownShard, WrongKeyType
from holdfast.kv import Key, Published, ShardedReader, describe_snapshot, publish_arrow, publish_rows
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import ChainFactory, publish_one
from tests.kv.readers import KINDS, MODES, opened

COUNT = 600
NUMBERS = range(COUNT)
SERVED = [
    *[(store, mode, kind) for store in ("memory", "file") for mode in MODES for kind in KINDS],
    *[pytest.param("s3", mode, kind, marks=pytest.mark.server) for mode in MODES for kind in KINDS],
]

KEYS: dict[str, pa.Array] = {
    "int64": pa.array([n * n - 90_000 for n in NUMBERS], pa.int64()),
    "int8": pa.array(range(-128, 128), pa.int8()),
    "uint64": pa.array([2**64 - 1 - n for n in NUMBERS], pa.uint64()),
    "text": pa.array([f"schlüssel {n}" if n % 2 else f"key-{n:04}" for n in NUMBERS]),
    "bytes": pa.array([bytes([n % 256, 0, n // 256]) for n in NUMBERS], pa.binary()),
    "uuid": pa.array([UUID(int=n << 96 | n).bytes for n in NUMBERS], pa.uuid()),
    "date": pa.array([date(1960, 1, 1) + timedelta(days=17 * n) for n in NUMBERS]),
}

VALUES: dict[str, pa.Array] = {
    "nothing": pa.array([None] * COUNT, pa.string()),
    "maybe": pa.array([None if n % 5 == 0 else n for n in NUMBERS], pa.int32()),
    "flag": pa.array([None if n % 7 == 0 else n % 2 == 0 for n in NUMBERS]),
    "price": pa.array([Decimal(n) / 8 for n in NUMBERS], pa.decimal128(12, 3)),
    "seen": pa.array(
        [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n) for n in NUMBERS], pa.timestamp("us", "UTC")
    ),
    "share": pa.array([n / 3 for n in NUMBERS], pa.float32()),
    "words": pa.array([[f"w{i}" for i in range(n % 4)] if n % 3 else None for n in NUMBERS], pa.list_(pa.string())),
    "inner": pa.array([{"a": n, "b": {"c": str(n) if n % 2 else None}} for n in NUMBERS]),
    "pairs": pa.array([[(f"k{n}", n)] for n in NUMBERS], pa.map_(pa.string(), pa.int64())),
    "raw": pa.array([bytes(range(n % 50)) for n in NUMBERS]),
}


def expected_rows(table: pa.Table, names: list[str]) -> dict[Key, dict[str, object]]:
    """What the source itself says, row by row."""
    rows: dict[Key, dict[str, object]] = {}
    for row in table.to_pylist():
        parts = tuple(row.pop(name) for name in names)
        rows[parts if len(names) > 1 else parts[0]] = row
    return rows


@pytest.mark.parametrize("store_kind, mode, kind", SERVED)
def test_all_readers_give_the_same_answers_in_every_mode_on_every_store(
    chain: Chain, published: Published, table: pa.Table, tmp_path: Path, mode: str, kind: str
) -> None:
    """K14, K17: get, multi_get, get_arrow and contains agree with the source, for hits and for misses."""
    expected = expected_rows(table, ["id"])
    asked: list[Key] = [*range(0, 1_100, 3), -1]
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache") as reader:
        for key in (0, 1, 500, 999):
            assert reader.get(key) == expected[key]
            assert reader.contains(key)
        assert reader.get(1_000) is None
        assert reader.get(-5, "nobody") == "nobody"
        assert not reader.contains(1_000)
        assert reader.multi_get(asked) == {key: expected[key] for key in asked if key in expected}
        found = reader.get_arrow(asked)
        assert found.column("id").to_pylist() == asked
        assert found.column("square").to_pylist() == [
            None if k not in expected else expected[k]["square"] for k in asked
        ]
        assert reader.multi_get([]) == {}
        assert reader.get_arrow([]).num_rows == 0


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", list(KEYS))
def test_every_kind_of_key_and_column_comes_back_as_it_went_in(
    chain: Chain, tmp_path: Path, mode: str, name: str
) -> None:
    """K2, K14: rows with nested, nullable, decimal, time and truth values, under keys of every kind."""
    keys = KEYS[name]
    table = pa.table({"k": keys, **{column: values.slice(0, len(keys)) for column, values in VALUES.items()}})
    publish_arrow(chain, table, key="k", shards=3)
    expected = expected_rows(table, ["k"])
    with ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
        assert {key: reader.get(key) for key in expected} == expected
        assert reader.multi_get(list(expected)) == expected
        backwards = table.take(pa.array(range(len(keys))[::-1]))
        for asked in (backwards.column("k"), backwards.column("k").combine_chunks(), list(expected)[::-1]):
            found = reader.get_arrow(asked)
            assert found.to_pylist() == backwards.to_pylist()


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
def test_composite_keys_are_tuples_and_tables(chain: Chain, tmp_path: Path, mode: str) -> None:
    """K2, K14: a key of several columns is a tuple for `get` and a table for `get_arrow`."""
    table = pa.table({"country": [("DE", "FR", "PL")[n % 3] for n in NUMBERS], "day": KEYS["date"], "n": list(NUMBERS)})
    publish_arrow(chain, table, key=["country", "day"], shards=4)
    expected = expected_rows(table, ["country", "day"])
    with ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
        assert {key: reader.get(key) for key in expected} == expected
        assert reader.multi_get(list(expected)) == expected
        assert reader.get_arrow(table.select(["day", "country"])).column("n").to_pylist() == list(NUMBERS)
        assert reader.get(("PL", date(1960, 1, 1))) is None
        with pytest.raises(WrongKeyType, match=r"tuple of \(country, day\)"):
            reader.get("PL")
        with pytest.raises(WrongKeyType, match="a table with these columns"):
            reader.get_arrow(pa.array(["PL"]))


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_binary_and_json_values_are_bytes_and_json(chain: Chain, tmp_path: Path, mode: str, kind: str) -> None:
    """K2, K14: one binary column answers with bytes, JSON with what it says; an empty value is not a missing one."""
    texts = {f"k{n}": b"" if n % 10 == 0 else b"v" * n for n in range(300)}
    publish_rows(chain, list(texts.items()), shards=2)
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache") as reader:
        assert {key: reader.get(key) for key in texts} == texts
        assert reader.multi_get(list(texts)) == texts
        assert reader.get("k300") is None
    spoken: dict[Key, object] = {n: {"n": n, "list": [n, None]} if n % 2 else n for n in range(300)}
    publish_rows(chain, list(spoken.items()), value="json", shards=2)
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache") as reader:
        assert {key: reader.get(key) for key in spoken} == spoken
        assert reader.multi_get(list(spoken)) == spoken


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
def test_missing_keys_are_null_rows_no_rows_or_an_error(
    chain: Chain, published: Published, tmp_path: Path, mode: str
) -> None:
    """K14: `get_arrow` does with missing keys what it is told."""
    with ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
        asked = np.array([5, 5_000, 7])
        assert reader.get_arrow(asked).column("square").to_pylist() == [25, None, 49]
        assert reader.get_arrow(asked, missing="drop").to_pydict() == {
            "id": [5, 7],
            "square": [25, 49],
            "name": ["row 5", "row 7"],
        }
        with pytest.raises(NotFound, match="1 of 3 keys are not there, such as 5000"):
            reader.get_arrow(asked, missing="error")
        with pytest.raises(BadInput, match="use null, drop, error"):
            reader.get_arrow(asked, missing="ignore")


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_opens_at_the_head_or_at_the_snapshot_that_is_named(
    chain: Chain, clock: VirtualClock, tmp_path: Path, mode: str, kind: str
) -> None:
    """K14: by ref, run id, offset, tag and time; what is named stays, whatever is published later."""
    made, times = [], []
    for version in range(3):
        tags = {"quality": "gold"} if version == 1 else {}
        made.append(publish_rows(chain, [("k", {"v": version})], run_id=f"run-{version}", tags=tags))
        times.append(clock.now())
        clock.advance(60)
    cache = tmp_path / "cache"
    for named in (
        {"ref": made[1].ref},
        {"run_id": "run-1"},
        {"offset": 1},
        {"tag": ("quality", "gold")},
        {"at": times[1] + timedelta(seconds=1)},
    ):
        with opened(kind, chain, mode=mode, cache=cache, **named) as reader:
            assert reader.get("k") == {"v": 1}
            assert reader.refresh() is Refreshed.UNCHANGED
            health = reader.health()
            assert (health.manifest_id, health.head_id, health.pinned, health.fell_back) == (1, 2, True, False)
            assert health.staleness_s == 60
    with opened(kind, chain, mode=mode, cache=cache) as reader:
        assert reader.get("k") == {"v": 2}
        publish_rows(chain, [("k", {"v": 3})])
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.get("k") == {"v": 3}
        chain.rollback(offset=3)
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.get("k") == {"v": 0}
    with (
        pytest.raises(BadInput, match="ref and offset"),
        opened(kind, chain, mode=mode, cache=cache, ref="x", offset=1),
    ):
        pass
    with pytest.raises(SnapshotNotFound), opened(kind, chain, mode=mode, cache=cache, run_id="run-9"):
        pass


WRONG: list[tuple[str, list[object]]] = [
    ("int64", ["7", 7.0, None, True, b"7", 2**63, (7,)]),
    ("int8", [128, "1"]),
    ("uint64", [-1, 2**64]),
    ("text", [7, b"key-0000", None, "\ud800"]),
    ("bytes", ["x", 7, None]),
    ("uuid", ["00000000-0000-0000-0000-000000000001", b"0" * 16, 1]),
    ("date", ["2026-01-01", datetime(2026, 1, 1, tzinfo=UTC), 20_000]),
]


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name, wrong", WRONG)
def test_a_key_of_the_wrong_type_is_an_error_and_not_a_miss(
    chain: Chain, tmp_path: Path, mode: str, name: str, wrong: list[object]
) -> None:
    """K18: every method says WrongKeyType, by itself and among good keys."""
    keys = KEYS[name]
    publish_arrow(chain, pa.table({"k": keys, "v": list(range(len(keys)))}), key="k", shards=2)
    good = keys[0].as_py()
    with ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
        for bad in wrong:
            for call in (reader.get, reader.contains, reader.route_key, reader.shard_for_key):
                with pytest.raises(WrongKeyType):
                    call(bad)  # type: ignore[arg-type]
            with pytest.raises(WrongKeyType):
                reader.multi_get([good, bad])  # type: ignore[list-item]
            with pytest.raises(WrongKeyType):
                reader.get_arrow([good, bad])
        assert reader.get(good) == {"v": 0}


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_calls_say_what_to_do(chain: Chain, published: Published, tmp_path: Path, mode: str, kind: str) -> None:
    """K18: a closed reader, an unknown shard, a text instead of a list, an unknown mode: each its own clear error."""
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache") as reader:
        assert [shard.number for shard in reader.shard_details() if shard is not None] == [0, 1, 2, 3]
        number = reader.route_key(7)
        shard = reader.shard_for_key(7)
        assert shard is not None
        assert shard == reader.shard(number)
        assert shard.min_key <= 7 <= shard.max_key  # type: ignore[operator]
        for unknown in (-1, 4):
            with pytest.raises(UnknownShard, match="0 to 3"):
                reader.shard(unknown)
        for text in ("abc", b"abc", 7):
            with pytest.raises(BadInput, match="a list of keys"):
                reader.multi_get(text)  # type: ignore[arg-type]
        reader.close()
        for call in (
            lambda: reader.get(1),
            lambda: reader.multi_get([1]),
            lambda: reader.get_arrow([1]),
            lambda: reader.contains(1),
            lambda: reader.route_key(1),
            reader.snapshot_info,
            reader.shard_details,
            reader.health,
            reader.refresh,
        ):
            with pytest.raises(ReaderClosed, match="open a new one"):
                call()
    with pytest.raises(BadInput, match="use cache or direct"), opened(kind, chain, mode="fast", cache=tmp_path):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_without_a_data_set_is_said_to_be_one(tmp_path: Path, chain_factory: ChainFactory, kind: str) -> None:
    """K18: no chain at all, a chain of another model, a chain whose snapshots are no key-value data."""
    with pytest.raises(NotAChain), opened(kind, (tmp_path / "nowhere").as_uri(), mode="cache", cache=tmp_path):
        pass
    chain = chain_factory()
    publish_one(chain)
    with pytest.raises(Exception, match="not a key-value data set"), opened(kind, chain, mode="cache", cache=tmp_path):
        pass


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
def test_a_key_that_is_routed_outside_all_shards_is_a_miss_and_its_shard_is_unknown(
    chain: Chain, tmp_path: Path, mode: str
) -> None:
    """K18, K3: nothing can be there, so a look-up misses; who asks for the shard is told that there is none."""
    table = pa.table({"id": pa.array(range(4), pa.int64()), "v": ["a", "b", "c", "d"]})
    publish_arrow(chain, table, key="id", shards=4, route="id")
    with ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
        assert [reader.get(key) for key in (3, 4, -1)] == [{"v": "d"}, None, None]
        assert reader.multi_get([0, 9, -9]) == {0: {"v": "a"}}
        assert reader.route_key(9) == 9
        for key in (9, -9):
            with pytest.raises(UnknownShard, match="0 to 3"):
                reader.shard_for_key(key)


@pytest.mark.parametrize("store_kind", ["file"])
def test_a_reader_opens_a_url(chain: Chain, published: Published) -> None:
    """K14: a URL is all it takes; files of this machine are served where they are."""
    with ShardedReader.open(chain.store.url) as reader:
        assert reader.get(3) == {"square": 9, "name": "row 3"}
        assert reader.dataset.row_count == 1_000


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_health_tells_the_age_of_the_snapshot(
    chain: Chain, clock: VirtualClock, published: Published, tmp_path: Path, mode: str, kind: str
) -> None:
    """K26: not the reader's uptime: a reader that was opened just now serves what is an hour old."""
    clock.advance(3_600)
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache") as reader:
        health = reader.health()
        assert (health.age_s, health.staleness_s, health.head_id) == (3_600, 0, 0)
        assert (health.mode, health.ref, health.serves_head) == (mode, published.ref, True)
        clock.advance(60)
        publish_rows(chain, [("k", {"v": 1})])
        clock.advance(60)
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.health().age_s == 60


@pytest.mark.parametrize("store_kind", ["memory"])
def test_info_touches_no_data(chain_factory: ChainFactory, published: Published, tmp_path: Path) -> None:
    """K26, K14: what a snapshot is comes from two records; a direct reader is open after the same two requests."""
    counting = CountingStore(chain_factory.store)
    chain = chain_factory(store=counting)
    info = describe_snapshot(chain)
    assert counting.counts == {"get": 2}
    assert not any("shards" in operation.key for operation in counting.log)
    assert (info.row_count, info.shard_count, info.ref) == (1_000, 4, published.ref)
    assert [column.name for column in info.columns] == ["id", "square", "name"]
    assert info.byte_size == sum(shard.byte_size for shard in published.dataset.shards if shard is not None)
    for kind in KINDS:
        counting.reset()
        with opened(kind, chain, mode="direct", cache=tmp_path) as reader:
            assert reader.snapshot_info() == info
            assert reader.shard_details() == list(published.dataset.shards)
            reader.health()
            reader.route_key(5)
            assert counting.counts == {"get": 2}
    assert describe_snapshot(chain, offset=0) == info


def test_readers_need_no_jvm() -> None:
    """K14: nothing of Spark is imported by what serves."""
    code = "import sys, holdfast.kv; sys.exit(any(name.split('.')[0] in ('pyspark', 'py4j') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
