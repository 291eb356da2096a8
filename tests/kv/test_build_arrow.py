"""Building without Spark: what is refused, what is counted, what is left behind by a failure."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from holdfast.chain import Chain
from holdfast.errors import BadInput, BadRows, RunIdInUse, StoreUnavailable, WrongKeyType
from holdfast.kv import DataSet, Key, publish_arrow, publish_rows, router
from holdfast.storage import LocalStore, ObjectStore
from holdfast.testing.faulty import CountingStore, Fault, FaultyStore, Operation
from tests.chain.publishing import ChainFactory
from tests.kv.shards import assert_serves, built, open_mapped

memory_only = pytest.mark.parametrize("store_kind", ["memory"])
file_only = pytest.mark.parametrize("store_kind", ["file"])

PEOPLE = pa.table({"id": range(100), "name": [f"name {n}" for n in range(100)], "age": [n % 90 for n in range(100)]})


def nothing_published(chain: Chain) -> bool:
    return chain.load_current() is None


@memory_only
@pytest.mark.parametrize(
    "options,why",
    [
        ({"key": "id"}, "say how many shards"),
        ({"key": "id", "shards": 0}, "0 shards"),
        ({"key": "id", "shards": True}, "True shards"),
        ({"key": "id", "shards": 2, "rows_per_shard": 5}, "give one of shards"),
        ({"key": "id", "rows_per_shard": 5, "bytes_per_shard": 5}, "give one of shards"),
        ({"key": "id", "bounds": [5], "rows_per_shard": 5}, "give one of shards"),
        ({"key": "id", "rows_per_shard": 0}, "rows_per_shard is 0"),
        ({"key": "id", "bytes_per_shard": True}, "bytes_per_shard is True"),
        ({"key": "nobody", "shards": 1}, "no column 'nobody' for the key"),
        ({"key": [], "shards": 1}, "at least one column"),
        ({"key": "id", "shards": 1, "value": "binary"}, "needs one column of bytes beside the key"),
        ({"key": ["id", "age"], "shards": 1, "value": "binary"}, "needs one column of bytes"),
        ({"key": ["id", "name"], "shards": 1, "value": "json"}, "needs one column of JSON text"),
        ({"key": "id", "shards": 1, "value": "other"}, "value 'other': use row, binary, json"),
        ({"key": "id", "shards": 1, "on_duplicate": "first"}, "use error, last or max"),
        ({"key": "id", "shards": 1, "on_duplicate": "max(size)"}, "no such column; there are id, name, age"),
        ({"key": "id", "shards": 1, "key_types": {"id": "big"}}, "'big' is no kind of key"),
        ({"key": "id", "shards": 2, "route": "id % 2 +"}, "cannot be read"),
        ({"key": "id", "bounds": [5, 3]}, "must grow"),
    ],
)
def test_a_call_that_cannot_be_right_says_what_to_change(chain: Chain, options: dict[str, object], why: str) -> None:
    """K2, K5: before any run is registered and any file written."""
    with pytest.raises(BadInput, match=why):
        publish_arrow(chain, PEOPLE, **options)  # type: ignore[arg-type]
    assert nothing_published(chain)
    assert [info.key for page in chain.store.list("") for info in page] == []


@memory_only
def test_a_rule_by_a_column_that_cannot_be_compared_is_refused(chain: Chain) -> None:
    """K2: max(column) needs values that have an order."""
    table = pa.table({"id": [1], "tags": [["a"]]})
    with pytest.raises(BadInput, match="cannot be compared"):
        publish_arrow(chain, table, key="id", shards=1, on_duplicate="max(tags)")


@memory_only
def test_null_keys_are_counted_with_samples(chain: Chain) -> None:
    """K2: of every part of a key, also where a dictionary hides them; all of them at once."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, None]), pa.array([None, "x"]))
    table = pa.table({"a": [1, None, 3, 4], "b": words})
    with pytest.raises(BadRows, match="3 with a null in the key") as caught:
        publish_arrow(chain, table, key=["a", "b"], shards=3)
    assert "'a': None" in str(caught.value)
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([None, "x"]))
    assert hidden.null_count == 0
    with pytest.raises(BadRows, match="1 with a null in the key"):
        publish_arrow(chain, pa.table({"k": hidden}), key="k", shards=3)
    assert nothing_published(chain)


@memory_only
def test_duplicate_and_oversized_keys_are_counted_together(chain: Chain) -> None:
    """K2: one report of everything that is wrong in all shards, so that it is mended once."""
    keys = [*(f"k{n % 40}" for n in range(100)), None, "long" * 1025, "long" * 1026]
    with pytest.raises(BadRows) as caught:
        publish_arrow(chain, pa.table({"k": keys, "v": range(103)}), key="k", shards=5)
    told = str(caught.value)
    assert "1 with a null in the key" in told
    assert "60 with a key that another row has" in told
    assert "2 with a key longer than 4,096 bytes" in told
    assert "on_duplicate='last' or 'max(COLUMN)'" in told
    assert nothing_published(chain)


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1])
def test_duplicates_are_resolved_by_the_stated_rule(memory_bytes: int, tmp_path: Path) -> None:
    """K2: the last row that came, or the one with the largest value; the others are counted."""
    nan = float("nan")
    rows = [(1, 5.0), (2, 1.0), (1, 7.0), (1, 6.0), (2, None), (3, nan), (3, 9.0), (4, None), (5, 2.0), (5, 2.0)]
    table = pa.table({"key": [key for key, _ in rows], "v": [v for _, v in rows], "n": range(len(rows))})
    batches = table.to_batches(max_chunksize=3)
    last = built(tmp_path / "last", batches, on_duplicate="last", shards=2, memory_bytes=memory_bytes)
    assert {key: row["n"] for key, row in last.multi_get([1, 2, 3, 4, 5]).items()} == {1: 3, 2: 4, 3: 6, 4: 7, 5: 9}  # type: ignore[index]
    largest = built(tmp_path / "max", batches, on_duplicate="max(v)", shards=2, memory_bytes=memory_bytes)
    found = {key: row["n"] for key, row in largest.multi_get([1, 2, 3, 4, 5]).items()}  # type: ignore[index]
    assert found == {1: 2, 2: 1, 3: 5, 4: 7, 5: 9}, (
        "nulls lose, not-a-number wins as in Spark, the later of equals stays"
    )
    assert largest.dataset.statistics["dropped_rows"] == 5


@memory_only
@pytest.mark.parametrize(
    "option,shards", [({"rows_per_shard": 30}, 4), ({"bytes_per_shard": 1000}, 4), ({"bounds": [5, 50]}, 3)]
)
def test_the_number_of_shards_can_be_derived(chain: Chain, option: dict[str, object], shards: int) -> None:
    """K5: from rows or bytes per shard, of tables and of streams, which are read once."""
    for data in (PEOPLE, iter(PEOPLE.to_batches(max_chunksize=7)), PEOPLE.to_reader()):
        published = publish_arrow(chain, data, key="id", **option)  # type: ignore[arg-type]
        count = len(published.dataset.shards)
        assert count == shards if "bytes_per_shard" not in option else count >= 2
        assert published.dataset.row_count == 100


@memory_only
def test_a_stream_with_changing_dictionaries_can_be_counted_first(chain: Chain) -> None:
    """K5: also when it does not fit into memory."""
    batches = [pa.record_batch({"id": [n], "w": pa.array([f"word {n}"]).dictionary_encode()}) for n in range(20)]
    published = publish_arrow(chain, batches, key="id", rows_per_shard=5, memory_bytes=1)
    assert published.dataset.row_count == 20


@memory_only
def test_skew_is_reported(chain: Chain) -> None:
    """K5: how many rows the largest shard has, and how many times the mean that is."""
    statistics = publish_arrow(chain, PEOPLE, key="id", bounds=[90]).dataset.statistics
    assert {name: statistics[name] for name in ("rows_min", "rows_max", "skew", "largest_shard")} == {
        "rows_min": 10,
        "rows_max": 90,
        "skew": 1.8,
        "largest_shard": 0,
    }


@memory_only
def test_a_route_that_leads_nowhere_is_refused_with_a_row(chain: Chain) -> None:
    """K3: a row without a shard is not dropped."""
    with pytest.raises(BadRows, match=r"the routing gives shard 99 of 4 for row \{'id': 99"):
        publish_arrow(chain, PEOPLE.slice(99), key="id", shards=4, route="id")
    assert nothing_published(chain)


@memory_only
def test_a_later_batch_of_other_columns_is_refused(chain: Chain) -> None:
    """K7: nothing of the earlier ones is visible."""
    batches = [pa.record_batch({"id": [1]}), pa.record_batch({"id": ["a"]})]
    with pytest.raises(BadRows, match="other columns than the first"):
        publish_arrow(chain, batches, key="id", shards=1)
    for nonsense in ([], [(1, 2)], 5):
        with pytest.raises(BadInput, match="give an Arrow table"):
            publish_arrow(chain, nonsense, key="id", shards=1)
    assert nothing_published(chain)


@memory_only
def test_text_that_is_no_json_is_refused_when_it_is_published(chain: Chain) -> None:
    """K2: not when somebody asks for it."""
    texts = ['{"a": 1}', "null", None, '"x"']
    publish_arrow(chain, pa.table({"id": range(4), "v": texts}), key="id", shards=1, value="json")
    for wrong in ("{'a': 1}", "", "1,2", "NaN", '"a', "[1"):
        with pytest.raises(BadRows, match="is not JSON"):
            publish_arrow(chain, pa.table({"id": range(5), "v": [*texts, wrong]}), key="id", shards=1, value="json")


def failing_upload(number: int) -> object:
    def plan(operation: Operation) -> Fault:
        return Fault.ERROR_BEFORE if operation.kind == "upload" and operation.number == number else Fault.PASS

    return plan


@pytest.mark.parametrize("number", [1, 3, 8])
def test_a_store_that_fails_in_the_middle_leaves_nothing_visible(
    number: int, chain_factory: ChainFactory, store: ObjectStore
) -> None:
    """K7: the error says in which shard; the run has failed; its files can be collected; the next build works."""
    publish_arrow(chain_factory(), PEOPLE.slice(0, 50), key="id", shards=8)
    before = chain_factory().load_current()
    faulty = chain_factory(store=FaultyStore(store, failing_upload(number)))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match=r"nothing was published: shard \d: "):
        publish_arrow(faulty, PEOPLE, key="id", shards=8, run_id="broken")
    chain = chain_factory()
    assert chain.load_current() == before
    assert chain.verify() == []
    chain_factory.clock.advance(7200)
    collected = chain.collect(retention=1)
    assert "broken" in collected.runs
    assert publish_arrow(chain, PEOPLE, key="id", shards=8).dataset.row_count == 100


def test_an_upload_whose_answer_was_lost_is_not_taken_for_somebody_elses(
    chain_factory: ChainFactory, store: ObjectStore
) -> None:
    """K6: a shard's path is nobody else's, so "already exists" is our own write."""

    def plan(operation: Operation) -> Fault:
        return Fault.ECHO if operation.kind == "upload" else Fault.PASS

    published = publish_arrow(chain_factory(store=FaultyStore(store, plan)), PEOPLE, key="id", shards=4)
    assert published.dataset.row_count == 100


@memory_only
def test_empty_shards_cost_no_request_and_no_file(chain_factory: ChainFactory, store: ObjectStore) -> None:
    """K6: of a hundred shards for two rows, two are written."""
    counting = CountingStore(store)
    published = publish_arrow(chain_factory(store=counting), PEOPLE.slice(0, 2), key="id", shards=100)
    assert published.written_shards <= 2
    assert counting.counts["upload"] == published.written_shards
    assert sum(shard is None for shard in published.dataset.shards) == 100 - published.written_shards


@file_only
def test_rows_that_wait_on_disk_make_the_same_files(
    chain: Chain, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K4: memory decides how rows wait, not what is written; no temporary file stays, whatever happens."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(router, "_PIECE_BYTES", 50_000)
    table = pa.table({"id": range(30_000), "v": [f"{n}" * (n % 9) for n in range(30_000)]})
    checksums = set()
    for memory_bytes in (1 << 30, 200_000, 1):
        published = publish_arrow(
            chain, table.to_reader(max_chunksize=1000), key="id", shards=3, memory_bytes=memory_bytes
        )
        assert published.dataset.row_count == 30_000
        checksums.add(tuple(shard and shard.row_count for shard in published.dataset.shards))
        assert not os.listdir(temporary)
        assert isinstance(store, LocalStore)
        snapshot = open_mapped(tmp_path / "store", published.dataset)
        assert snapshot.multi_get([0, 1, 29_999]) == {n: {"v": f"{n}" * (n % 9)} for n in (0, 1, 29_999)}
    assert len(checksums) == 1

    def broken() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=1000)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        publish_arrow(chain, broken(), key="id", shards=3, memory_bytes=1)
    assert not os.listdir(temporary)


@memory_only
def test_shards_are_written_side_by_side(chain_factory: ChainFactory, store: ObjectStore) -> None:
    """K26: not one after the other: the first upload waits until the second has begun."""
    second = threading.Event()

    def plan(operation: Operation) -> Fault:
        if operation.kind == "upload" and operation.number == 1:
            assert second.wait(30), "no other shard was begun meanwhile"
        elif operation.kind == "upload":
            second.set()
        return Fault.PASS

    told: list[tuple[int, int]] = []
    publish_arrow(
        chain_factory(store=FaultyStore(store, plan)),
        PEOPLE,
        key="id",
        shards=4,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1] == (4, 4)


@memory_only
def test_a_run_id_is_used_once(chain: Chain) -> None:
    """K26: a reused run id does not merge old rows into a new snapshot."""
    publish_arrow(chain, PEOPLE, key="id", shards=2, run_id="nightly")
    with pytest.raises(RunIdInUse):
        publish_arrow(chain, PEOPLE.slice(0, 5), key="id", shards=2, run_id="nightly")
    manifest = chain.load_current()
    assert manifest is not None
    assert DataSet.of_manifest(manifest).row_count == 100


@file_only
def test_pairs_of_python_values_are_published(chain: Chain, tmp_path: Path) -> None:
    """K1, K26: keys of every type that Python has for them, large and negative numbers and bytes among them."""
    keys: list[list[Key]] = [
        [-5, 0, (1 << 63) - 1],
        [1, (1 << 64) - 1],
        ["a", "é", ""],
        [b"\x00", b"\xff"],
        [UUID(int=1), UUID(int=1 << 127)],
        [date(2026, 11, 15), date.min],
    ]
    for some in keys:
        for value, make in (
            ("binary", lambda n: b"%d" % n),
            ("json", lambda n: {"n": [n]}),
            ("row", lambda n: {"n": n}),
        ):
            pairs: list[tuple[Key, object]] = [(key, make(n)) for n, key in enumerate(some)]
            published = publish_rows(chain, pairs, value=value, shards=2)
            assert_serves(open_mapped(tmp_path / "store", published.dataset), dict(pairs))
    composite: list[tuple[Key, object]] = [(("a", 1), {"n": 1}), (("a", 2), {"m": "x"})]
    published = publish_rows(chain, composite, key_names=["t", "n2"], bounds=[("a", 2)])
    expected: dict[Key, object] = {("a", 1): {"n": 1, "m": None}, ("a", 2): {"n": None, "m": "x"}}
    assert_serves(open_mapped(tmp_path / "store", published.dataset), expected)


@memory_only
@pytest.mark.parametrize(
    "pairs,why",
    [
        ([], "no rows"),
        ([(1, b"a"), ("b", b"a")], "keys of different types"),
        ([(1, b"a"), (True, b"a")], "keys of different types"),
        ([(date(2026, 1, 1), b"a"), (datetime(2026, 1, 1), b"a")], "keys of different types"),  # noqa: DTZ001
        ([(1, b"a"), (2, "b")], "not bytes"),
        ([(1, {"a": 1}), (2, {"a": "x"})], "column 'a' has values of different types"),
        ([(1, {"a": 1}), (2, 5)], "a value is bytes, or a dict"),
        ([(1, {"key": 1})], "a column 'key'"),
        ([(-1, b""), (1 << 63, b"")], "too large"),
        ([("\ud800", b"")], "column 'key'"),
        ([((1, 2), b"")], "a key has 1 part"),
        ([1], "rows are pairs"),
        ([(1.5, b"")], "cannot be a key"),
        ([(None, b""), (None, b"")], "cannot be a key"),
    ],
)
def test_pairs_that_do_not_fit_together_are_refused(chain: Chain, pairs: list[object], why: str) -> None:
    """K2: Arrow would make something of most of them."""
    with pytest.raises(BadInput, match=why):
        publish_rows(chain, pairs)  # type: ignore[arg-type]
    assert nothing_published(chain)


@memory_only
def test_a_later_chunk_of_pairs_must_have_the_columns_of_the_first(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K2: a column that comes later would be lost without a word."""
    monkeypatch.setattr("holdfast.kv.pairs._CHUNK_ROWS", 2)
    with pytest.raises(BadRows, match="a row has a column 'b'"):
        publish_rows(chain, [(1, {"a": 1}), (2, {"a": 1}), (3, {"a": 1, "b": 2})])
    with pytest.raises(BadRows, match="cannot be spelled in JSON"):
        publish_rows(chain, [(1, {1, 2})], value="json")
    schema = pa.schema([("key", pa.int32()), ("a", pa.float32())])
    published = publish_rows(chain, ((n, {"a": n}) for n in range(5)), schema=schema)
    assert published.dataset.schema.types == [pa.int32(), pa.float32()]
    assert publish_rows(chain, [], schema=schema).dataset.row_count == 0
    with pytest.raises(BadInput, match="the schema has no column 'key'"):
        publish_rows(chain, [], schema=pa.schema([("a", pa.int32())]))


@memory_only
def test_a_key_of_the_wrong_stated_kind_is_refused_by_value(chain: Chain) -> None:
    """K2: a UUID in text must be one."""
    table = pa.table({"id": ["not a uuid"], "v": [1]})
    with pytest.raises(WrongKeyType, match="'not a uuid' is no UUID"):
        publish_arrow(chain, table, key="id", shards=1, key_types={"id": "uuid"})
    assert nothing_published(chain)
