"""Incremental publish: upserts and deletes rewrite the shards they touch, and the new snapshot shares the rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from holdfast.chain import Chain, open_chain
from holdfast.errors import BadInput, BadRows, CorruptShard, SnapshotNotFound
from holdfast.kv import DataSet, SortedRows, publish_arrow, publish_rows, update_arrow
from holdfast.kv.stored_rows import StoredRows
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import ChainFactory, keys_below
from tests.kv.updating import dataset_of, ids_of, manifest_of, paths_of, stored_rows, table_of

pytestmark = pytest.mark.parametrize("store_kind", ["file"])

BASE = {number: f"row {number}" for number in range(4_000)}
SHARDS = 16
BOUNDS = [number * 250 for number in range(1, SHARDS)]


@pytest.fixture(params=["hash", "range", "expression"])
def base(request: pytest.FixtureRequest, chain: Chain) -> dict[int, str | None]:
    """A data set of sixteen shards, and its rows."""
    match request.param:
        case "hash":
            publish_arrow(chain, table_of(BASE), key="id", shards=SHARDS)
        case "range":
            publish_arrow(chain, table_of(BASE), key="id", bounds=BOUNDS)
        case _:
            publish_arrow(chain, table_of(BASE), key="id", shards=SHARDS, route="id // 250 % 16")
    return dict(BASE)


@pytest.fixture
def by_range(chain: Chain) -> dict[int, str | None]:
    """The same, routed by range: neighbours share a shard."""
    publish_arrow(chain, table_of(BASE), key="id", bounds=BOUNDS)
    return dict(BASE)


# -- what readers see -------------------------------------------------------------------------------------------------


def test_upserts_and_deletes_are_seen_and_everything_else_stays(chain: Chain, base: dict[int, str | None]) -> None:
    """K9: the next snapshot is the base with the changes, for every kind of routing; the base itself stays readable."""
    before = manifest_of(chain)
    upserts = {7: "seven", 1_999: None, 3_999: "last", 10_000: "new"}

    published = update_arrow(chain, upserts=table_of(upserts), deletes=ids_of(0, 8, 3_000, 55_555))

    gone = {0, 8, 3_000}
    assert stored_rows(chain) == {key: name for key, name in (base | upserts).items() if key not in gone}
    assert stored_rows(chain, before) == base
    assert (published.upserted_rows, published.deleted_rows, published.absent_rows) == (4, 3, 1)
    assert published.dataset.routing == DataSet.of_manifest(before).routing


def test_an_update_of_an_update_of_an_update(chain: Chain, base: dict[int, str | None]) -> None:
    """K9: shards of many generations side by side, each snapshot readable."""
    snapshots = [(manifest_of(chain), dict(base))]
    for generation in range(1, 6):
        upserts: dict[int, str | None] = {generation * 37 + step * 501: f"gen {generation}" for step in range(9)}
        deletes = [generation * 11, generation * 400]
        update_arrow(chain, upserts=table_of(upserts), deletes=ids_of(*deletes))
        rows = {key: name for key, name in (snapshots[-1][1] | upserts).items() if key not in deletes}
        snapshots.append((manifest_of(chain), rows))
    for manifest, rows in snapshots:
        assert stored_rows(chain, manifest) == rows


def test_an_empty_shard_gets_rows_and_a_shard_without_rows_loses_its_file(
    chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K9, K6: a shard comes and goes with its rows."""
    update_arrow(chain, deletes=ids_of(*range(250, 500)))
    assert dataset_of(chain).shards[1] is None
    assert 1 not in paths_of(chain)
    assert len(stored_rows(chain)) == 3_750

    update_arrow(chain, upserts=table_of({260: "back"}), deletes=ids_of(261))
    assert paths_of(chain).keys() == set(range(SHARDS))
    assert stored_rows(chain)[260] == "back"

    update_arrow(chain, deletes=ids_of(*range(4_000)))
    assert dataset_of(chain).shards == (None,) * SHARDS
    assert stored_rows(chain) == {}
    update_arrow(chain, upserts=table_of({1: "one"}))
    assert stored_rows(chain) == {1: "one"}


def test_values_of_every_kind_and_composite_keys_are_updated(chain: Chain) -> None:
    """K2, K9: nested values, JSON-like text, and keys of several parts; deletes are given as a table of the key."""
    rows = [(("eu", 1), {"tags": ["a"], "at": {"x": 1.5}}), (("us", 2), {"tags": [], "at": None})]
    publish_rows(chain, rows, key_names=["region", "id"], shards=3)
    upserts = pa.table(
        {
            "at": pa.array([{"x": 2.5}, {"x": None}]),
            "id": pa.array([1, 3], pa.int32()),
            "region": pa.array(["eu", "ap"]).dictionary_encode(),
            "tags": pa.array([["b", "c"], None], pa.large_list(pa.string())),
        }
    )
    update_arrow(chain, upserts=upserts, deletes=pa.table({"id": [2], "region": ["us"]}))
    found = [
        row
        for path in paths_of(chain).values()
        for row in pa.ipc.open_file(chain.store.get(path).data).read_all().to_pylist()
    ]
    assert sorted(found, key=lambda row: row["region"]) == [
        {"region": "ap", "id": 3, "tags": None, "at": {"x": None}},
        {"region": "eu", "id": 1, "tags": ["b", "c"], "at": {"x": 2.5}},
    ]


# -- what is written --------------------------------------------------------------------------------------------------


def test_only_the_touched_shards_are_written_and_the_rest_is_shared(
    chain_factory: ChainFactory, chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K9: one percent of neighbouring keys costs the bytes of their shards, and no more."""
    before = paths_of(chain)
    files = set(keys_below(chain.store, "shards"))
    store = CountingStore(chain_factory.store)
    writer = chain_factory(store=store)

    published = update_arrow(writer, upserts=table_of(dict.fromkeys(range(480, 520), "changed")))

    assert published.written_shards == 2
    after = paths_of(chain)
    assert {number for number in after if after[number] != before[number]} == {1, 2}
    written = [key for key in keys_below(chain.store, "shards") if key not in files]
    assert sorted(written) == sorted([after[1], after[2]])
    assert published.written_bytes == sum(chain.store.head(key).size for key in written)
    read = {operation.key for operation in store.log if operation.kind in {"get", "get_range"}}
    assert read & set(before.values()) == {before[1], before[2]}


def test_a_change_anywhere_touches_exactly_the_shards_of_its_keys(chain: Chain) -> None:
    """K9: random keys by hash rewrite what they must; who rewrites less chooses more shards."""
    publish_arrow(chain, table_of(BASE), key="id", shards=200)
    before = paths_of(chain)
    keys = np.random.default_rng(9).choice(4_000, 40, replace=False).tolist()

    published = update_arrow(chain, upserts=table_of(dict.fromkeys(keys, "changed")))

    arrays = [pa.array(keys, pa.int64())]
    dataset = dataset_of(chain)
    touched = set(dataset.routing.shards_of(arrays, dataset.key.hash_arrays(arrays)).tolist())
    assert {number for number, path in paths_of(chain).items() if before[number] != path} == touched
    assert published.written_shards == len(touched) < 40


def test_the_manifest_tells_what_an_update_did(chain: Chain, by_range: dict[int, str | None]) -> None:
    """K8, K9: how many shards were touched and written, and how many rows upserted and deleted, on which base."""
    base = manifest_of(chain)
    update_arrow(
        chain,
        upserts=table_of({0: "zero", 1: "row 1", 600: "row 600"}),
        deletes=ids_of(2, 9_999),
        custom={"ticket": 7},
        tags={"kind": "fix"},
        why="two rows were wrong",
    )
    manifest = manifest_of(chain)
    statistics = DataSet.of_manifest(manifest).statistics
    assert {
        "base": base.manifest_id,
        "touched_shards": 3,
        "rewritten_shards": 1,
        "upserted_rows": 3,
        "deleted_rows": 1,
        "absent_rows": 1,
        "rows_min": 249,
        "rows_max": 250,
    }.items() <= statistics.items()
    assert DataSet.of_manifest(manifest).custom == {"ticket": 7}
    assert manifest.tags == {"kind": "fix"}


def test_what_the_base_says_of_itself_is_carried_on(chain: Chain) -> None:
    """K8: an update adds to the custom map and drops nothing of it."""
    publish_arrow(chain, table_of(BASE), key="id", shards=2, custom={"owner": "team", "level": 1})
    update_arrow(chain, deletes=ids_of(1), custom={"level": 2})
    assert dataset_of(chain).custom == {"owner": "team", "level": 2}


def test_changes_that_come_to_nothing_write_nothing(chain: Chain, base: dict[int, str | None]) -> None:
    """K9: rows that are there already and keys that are not leave every shard shared, in a snapshot of its own."""
    before = paths_of(chain)
    same = table_of({key: base[key] for key in range(0, 4_000, 3)})
    published = update_arrow(chain, upserts=same, deletes=ids_of(-5, 77_777))
    assert (published.written_shards, published.written_bytes, published.absent_rows) == (0, 0, 2)
    assert paths_of(chain) == before
    assert len(chain.list_manifests()) == 2


def test_an_empty_set_of_changes_is_a_snapshot_that_shares_everything(
    chain: Chain, base: dict[int, str | None]
) -> None:
    """K9: a scheduled update without news still publishes, and costs a manifest."""
    before = paths_of(chain)
    assert update_arrow(chain, upserts=table_of({}), deletes=ids_of()).written_shards == 0
    assert paths_of(chain) == before


# -- rules and refusals -----------------------------------------------------------------------------------------------


def refused(chain: Chain, error: type[Exception], match: str, **changes: object) -> None:
    """Such an update is refused, nobody sees anything of it, and what it wrote is left to the collector."""
    before, visible = set(keys_below(chain.store, "shards")), chain.current()
    with pytest.raises(error, match=match):
        update_arrow(chain, **changes)  # type: ignore[arg-type]
    assert chain.current() == visible
    chain.collect(retention=10)
    chain.purge(grace_s=0)
    assert set(keys_below(chain.store, "shards")) == before


def test_an_empty_chain_cannot_be_updated(chain: Chain) -> None:
    """K9: there is nothing to change yet, and the message says what to do."""
    with pytest.raises(SnapshotNotFound, match="publish one first"):
        update_arrow(chain, upserts=table_of({1: "a"}))


def test_no_changes_at_all_are_a_wrong_call(chain: Chain, by_range: dict[int, str | None]) -> None:
    refused(chain, BadInput, "give upserts, deletes, or both")


def test_a_key_upserted_and_deleted_at_once_is_refused_by_name(chain: Chain, by_range: dict[int, str | None]) -> None:
    """K2, K9: which of the two was meant is not known."""
    upserts = table_of({5: "five", 6: "six", 3_000: "x"})
    refused(
        chain,
        BadRows,
        r"2 keys that are upserted and deleted at once \(such as 5, 3000\)",
        upserts=upserts,
        deletes=ids_of(5, 3_000, 7),
    )


def test_upserts_of_one_key_are_refused_or_resolved_by_the_rule(chain: Chain, by_range: dict[int, str | None]) -> None:
    """K2: on_duplicate is about upserts of one key: error, last, max(column)."""
    twice = pa.table({"id": [7, 8, 7, 9, 7], "name": ["m", "x", "z", "y", "a"]})
    refused(chain, BadRows, r"2 with a key that another row has \(such as 7\)", upserts=twice)

    published = update_arrow(chain, upserts=twice, on_duplicate="last")
    assert stored_rows(chain)[7] == "a"
    assert (published.dropped_rows, published.upserted_rows) == (2, 3)
    update_arrow(chain, upserts=twice, on_duplicate="max(name)")
    assert stored_rows(chain)[7] == "z"
    refused(chain, BadInput, r"on_duplicate max\(nme\): no such column", upserts=twice, on_duplicate="max(nme)")


def test_deleting_a_key_twice_deletes_it(chain: Chain, by_range: dict[int, str | None]) -> None:
    published = update_arrow(chain, deletes=ids_of(7, 7, 7))
    assert (published.deleted_rows, published.absent_rows) == (1, 0)
    assert 7 not in stored_rows(chain)


def test_null_keys_are_counted_in_upserts_and_deletes(chain: Chain, by_range: dict[int, str | None]) -> None:
    """K2: with samples, and nothing is published."""
    upserts = pa.table({"id": pa.array([1, None, None], pa.int64()), "name": ["a", "b", "c"]})
    deletes = pa.array([None, 2], pa.int64())
    refused(chain, BadRows, r"3 with a null in the key \(such as .*'b'", upserts=upserts, deletes=deletes)


def test_columns_that_are_not_the_data_sets_are_named(chain: Chain, by_range: dict[int, str | None]) -> None:
    """K9: what is wrong is said by column, before anything is written."""
    good = table_of({1: "a"})
    refused(chain, BadInput, "column 'name' is missing", upserts=good.drop(["name"]))
    refused(chain, BadInput, "no column 'age'", upserts=good.append_column("age", pa.array([1])))
    refused(chain, BadInput, "'name' is there twice", upserts=good.append_column("name", pa.array(["b"])))
    nested = pa.table({"id": [1], "name": pa.array([["a"]])})
    refused(chain, BadInput, r"column 'name' is list<.*>, and string in the data set", upserts=nested)
    text_key = pa.table({"id": ["1"], "name": ["a"]})
    refused(chain, BadInput, "key column 'id' is string, and int64", upserts=text_key)
    refused(chain, BadInput, "deletes take the key's columns and no others", deletes=good)
    refused(chain, BadInput, "key column 'id' is string, and int64", deletes=pa.array(["1"]))
    refused(chain, BadInput, "give an Arrow table", upserts=[{"id": 1}])


def test_values_that_do_not_fit_are_named_by_column(chain: Chain) -> None:
    """K9: a cast that would lose something is refused."""
    publish_arrow(chain, pa.table({"id": pa.array([1], pa.int8()), "n": pa.array([1], pa.int8())}), key="id", shards=2)
    refused(chain, BadRows, "upserts: column 'n' .* do not fit int8", upserts=pa.table({"id": [1], "n": [300]}))
    refused(chain, BadRows, "deletes: column 'id' .* do not fit int8", deletes=ids_of(1, 300))
    update_arrow(chain, upserts=pa.table({"id": [1], "n": [30]}))


def test_nulls_in_a_column_that_has_none_are_refused(chain: Chain) -> None:
    """K9: a column that was declared without nulls stays without."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    publish_arrow(chain, pa.table({"id": [1, 2], "n": [1, 2]}, schema), key="id", shards=2)
    nulls = pa.table({"id": [1, 3], "n": pa.array([None, 3], pa.int64())})
    refused(chain, BadRows, r"1 with a null in a column that has none here \(such as 1: n\)", upserts=nulls)
    update_arrow(chain, upserts=pa.table({"id": [1, 3], "n": [7, 3]}), deletes=ids_of(2))
    assert dataset_of(chain).row_count == 2


def test_a_data_set_of_another_kind_is_not_updated(chain: Chain) -> None:
    """K9: one binary column stays one binary column."""
    publish_rows(chain, [(b"\x00", b"a"), (b"\xff", b"b")], shards=2)
    refused(chain, BadInput, "no column 'other'", upserts=pa.table({"key": [b"x"], "value": [b"y"], "other": [1]}))
    update_arrow(chain, upserts=pa.table({"key": [b"\xff"], "value": [b"c"]}), deletes=pa.array([b"\x00"]))
    assert dataset_of(chain).row_count == 1


def test_rows_that_got_lost_on_the_way_end_an_update(chain: Chain, by_range: dict[int, str | None]) -> None:
    """K9: what is written has as many rows as the base, plus what was added, minus what was deleted, or nothing is."""
    read = StoredRows.rows

    def careless(self: StoredRows, start: int = 0, end: int | None = None) -> Iterator[SortedRows]:
        for batch, hashes in read(self, start, end):
            yield SortedRows(batch.slice(0, len(hashes) - 1), hashes[:-1])

    with patch.object(StoredRows, "rows", careless):
        refused(chain, CorruptShard, "of its 250 rows, 1 deleted and 0 added leave", deletes=ids_of(7))


# -- memory -----------------------------------------------------------------------------------------------------------

_MERGE = """
import resource, sys
import pyarrow as pa
from holdfast.chain import open_chain
from holdfast.kv import update_arrow
chain = open_chain(sys.argv[1], layout="kv")
small = pa.table({"id": pa.array([0], pa.int64()), "value": [b"changed"]})
update_arrow(open_chain(sys.argv[2], layout="kv"), upserts=small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = pa.array(range(0, 1_500_000, 100), pa.int64())
update_arrow(chain, upserts=pa.table({"id": ids, "value": pa.array([b"changed"] * len(ids))}), deletes=ids_plus)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
""".replace("ids_plus", "pa.array(range(1, 1_500_000, 100), pa.int64())")


def test_memory_does_not_grow_with_the_shard(tmp_path: Path, chain: Chain) -> None:
    """K9, K25: a shard of 170 MB is merged in a small part of that."""
    rows = 1_500_000
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(100), rows, [None, pa.py_buffer(bytes(100 * rows))])
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "value": values.cast(pa.binary())})
    large, small = (tmp_path / "large").as_uri(), (tmp_path / "small").as_uri()
    published = publish_arrow(open_chain(large, layout="kv"), table, key="id", shards=1)
    publish_arrow(open_chain(small, layout="kv"), table.slice(0, 10), key="id", shards=1)
    assert published.written_bytes > 160 << 20
    done = subprocess.run(
        [sys.executable, "-c", _MERGE, large, small], check=True, capture_output=True, text=True, timeout=120
    )
    grown_bytes = int(done.stdout) * 1024
    assert grown_bytes < 64 << 20
    assert dataset_of(open_chain(large, layout="kv")).row_count == rows - 15_000
