"""A shard is an ordinary Arrow file to whoever does not know better; and its writer needs little memory for it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadRows
from holdfast.kv import KeySchema, ShardStream, SortedRows, shard_writer
from holdfast.kv.shard_format import BLOCK_ROWS, place, places
from tests.kv.shards import assert_serves, built, sorted_rows, write_shard

TABLE = pa.table(
    {
        "key": pa.array(range(5000), pa.int64()),
        "name": [f"row {n}" if n % 5 else None for n in range(5000)],
        "list": [[n, None] for n in range(5000)],
    }
)


def test_every_arrow_reader_sees_the_rows_and_nothing_else(tmp_path: Path) -> None:
    """K2: as a file, as a stream behind the magic, and as a data set of files: exactly the rows."""
    shard = write_shard(tmp_path / "shard.arrow", TABLE, "key")
    expected = TABLE.cast(shard.schema)
    data = shard.path.read_bytes()
    found = {
        "file": pa.ipc.open_file(shard.path).read_all(),
        "mapped file": pa.ipc.open_file(pa.memory_map(str(shard.path))).read_all(),
        "stream": pa.ipc.open_stream(data[8:]).read_all(),
        "data set": pyarrow.dataset.dataset([str(shard.path)], format="ipc").to_table(),
    }
    for how, table in found.items():
        table.validate(full=True)
        assert table.schema.equals(shard.schema), how
        assert table.sort_by("key").equals(expected), how


def test_blocks_are_where_the_hash_of_a_key_says(tmp_path: Path) -> None:
    """K17: the block of a key follows from its hash and the number of blocks alone."""
    shard = write_shard(tmp_path / "shard", TABLE, "key")
    opened = shard.open()
    assert opened.block_count == -(-5000 // BLOCK_ROWS)
    for key in range(0, 5000, 37):
        hashed = shard.key.hash_of(key)
        found = opened.find(hashed, shard.key.encode(key))
        assert found is not None
        assert found[0] == place(hashed, opened.block_count)[0]
        assert opened.batch(found[0]).column(0)[found[1]].as_py() == key


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1), st.integers(1, (1 << 31) - 1))
def test_one_place_and_many_places_agree(hashes: list[int], count: int) -> None:
    """K17: and both grow with the hash as a signed number, so that sorted rows fill block after block."""
    ordered = sorted(hashes, key=lambda hashed: hashed ^ (1 << 63))
    blocks, tags = places(np.array(ordered, np.uint64), count)
    one_by_one = [place(hashed, count) for hashed in ordered]
    assert list(zip(blocks.tolist(), tags.tolist(), strict=True)) == one_by_one
    assert one_by_one == sorted(one_by_one)
    assert all(0 <= block < count for block, _ in one_by_one)


@pytest.mark.parametrize("rows", [200_000])
def test_the_number_of_blocks_is_estimated_from_the_first_rows(rows: int, tmp_path: Path) -> None:
    """K17: hashes are uniform, so the first rows tell how many there will be: blocks have the size they should."""
    shard = write_shard(tmp_path / "shard", pa.table({"key": range(rows)}), "key", batch_rows=10_000)
    assert shard.summary.block_count == pytest.approx(rows / BLOCK_ROWS, rel=0.05)


@pytest.mark.parametrize("distinct,top", [(1, False), (3, True), (50, False), (50, True)])
def test_keys_with_one_hash_are_told_apart(distinct: int, top: bool, tmp_path: Path) -> None:
    """K2: when hashes collide, the keys themselves decide: for one key, for many, and for duplicates."""
    keys = [f"key {n}" for n in range(150)]

    def collide(hashes: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        few = hashes % np.uint64(distinct)
        return few << np.uint64(50 if top else 0)

    with pytest.MonkeyPatch.context() as patch:
        real_many, real_one = KeySchema.hash_arrays, KeySchema.hash_of.func  # type: ignore[attr-defined]

        def hash_of(schema: KeySchema) -> object:
            plain = real_one(schema)
            return lambda key: int(collide(np.array([plain(key)], np.uint64))[0])

        patch.setattr(KeySchema, "hash_arrays", lambda schema, arrays: collide(real_many(schema, arrays)))
        patch.setattr(KeySchema, "hash_of", property(hash_of))
        order = np.random.default_rng(1).permutation(150)
        table = pa.table({"key": keys, "v": range(150)}).take(order)
        snapshot = built(tmp_path, table, shards=2)
        assert_serves(snapshot, {f"key {n}": {"v": n} for n in range(150)}, ["key -1", "key 150"])
        twice = pa.concat_tables([table, table.slice(0, 50)])
        with pytest.raises(BadRows, match="50 with a key that another row has"):
            built(tmp_path, twice, shards=2)
        newest = pa.table({"key": keys[:10], "v": range(100, 110)})
        last = built(tmp_path, pa.concat_tables([table, newest]), shards=2, on_duplicate="last")
        assert_serves(last, {f"key {n}": {"v": n + 100 if n < 10 else n} for n in range(150)})


def test_hashes_that_pretend_to_be_of_far_more_rows_are_refused(tmp_path: Path) -> None:
    """K18: an index for billions of rows that are not there would fill the disk."""
    shard = write_shard(tmp_path / "shard", TABLE, "key")
    wide = pa.table({"key": range(20_000), "name": ["x"] * 20_000, "list": [[1]] * 20_000}).cast(shard.schema)
    rows = next(sorted_rows(wide, shard.key, batch_rows=20_000))
    crowded = (np.uint64(1 << 63) + np.arange(20_000, dtype=np.uint64)).astype(np.uint64)
    with pytest.raises(BadRows, match=r"a shard seems to have .* rows; use more shards"):
        list(ShardStream([SortedRows(rows.batch, crowded)], schema=shard.schema, key=shard.key))


def test_rows_whose_hashes_are_all_at_the_end_share_a_block(tmp_path: Path) -> None:
    """K18: skewed hashes cost time, not answers; more than fits into a block is an error that says so."""
    shard = write_shard(tmp_path / "shard", TABLE, "key")
    rows = next(sorted_rows(TABLE.cast(shard.schema), shard.key, batch_rows=5000))
    crowded = np.uint64((1 << 63) - 5000) + np.arange(5000, dtype=np.uint64)
    stream = ShardStream([SortedRows(rows.batch, crowded)] * 1, schema=shard.schema, key=shard.key)
    data = b"".join(stream)
    assert pa.ipc.open_file(data).read_all().num_rows == 5000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_writer, "_PENDING_BYTES_MAX", 10_000)
        patch.setattr(shard_writer, "_SAMPLE_ROWS", 100)
        with pytest.raises(BadRows, match="hashes that are almost equal"):
            list(ShardStream([SortedRows(rows.batch, crowded)], schema=shard.schema, key=shard.key))


MEASURED = """
import resource, sys, tempfile, os
import numpy as np, pyarrow as pa
from holdfast.kv import KeySchema, ShardStream, SortedRows, ValueKind, shard_schema

rows, size = int(sys.argv[1]), int(sys.argv[2])
schema = pa.schema([("key", pa.int64()), ("v", pa.binary())])
key = KeySchema.from_arrow(schema, ["key"])
stored = shard_schema(schema, key, ValueKind.BINARY)
hashes = np.sort(np.random.default_rng(1).integers(0, 1 << 63, rows, np.uint64) * 2 ^ (1 << 63))
signed = np.sort(hashes.view(np.int64)).view(np.uint64)

def batches():
    for start in range(0, rows, 10_000):
        some = signed[start : start + 10_000]
        keys = pa.array(np.arange(start, start + len(some)))
        values = pa.array([b"x" * size]).take(pa.array(np.zeros(len(some), np.int64)))
        yield SortedRows(pa.RecordBatch.from_arrays([keys, values], schema=stored), some)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

list(ShardStream(list(batches())[:2], schema=stored, key=key)) if rows > 20_000 else None
before, written = peak(), 0
stream = ShardStream(batches(), schema=stored, key=key)
for chunk in stream:
    written += len(chunk)
print(written, peak() - before, stream.summary.row_count, len(os.listdir(tempfile.gettempdir())))
"""


@pytest.mark.slow
@pytest.mark.parametrize("rows,size,file_mib", [(3_000_000, 100, 300), (6_000_000, 0, 90), (30_000, 10_000, 280)])
def test_the_memory_of_the_writer_does_not_grow_with_the_shard(
    rows: int, size: int, file_mib: int, tmp_path: Path
) -> None:
    """K25: a file of hundreds of megabytes is written in a few dozen, and no temporary file is left."""
    script = tmp_path / "measured.py"
    script.write_text(textwrap.dedent(MEASURED))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(rows), str(size)],
        capture_output=True,
        text=True,
        check=True,
        env={"TMPDIR": str(temporary), "PATH": "", "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    written, grown, counted, left = map(int, done.stdout.split())
    assert counted == rows
    assert written > file_mib << 20
    assert left == 0
    assert grown < 80 << 20, f"{grown >> 20} MiB for a file of {written >> 20} MiB"
