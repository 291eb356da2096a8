"""Damage to a shard file: whatever byte is wrong, an answer is right or there is none. Never a false miss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh3_64_intdigest

from holdfast.errors import CorruptShard, Damaged, UnsupportedFormat
from holdfast.kv import DataSet, Key
from holdfast.kv.mapped_snapshot import MappedSnapshot
from holdfast.kv.shard_format import DIRECTORY_ENTRY_BYTES, TRAILER_BYTES, Trailer, trailer_offset
from tests.kv.shards import WrittenShard, built, open_mapped, publish_to, write_shard

TABLES: dict[str, tuple[pa.Table, str, Key]] = {
    "int64 to bytes": (pa.table({"key": range(12), "v": [b"v%d" % n for n in range(12)]}), "binary", -1),
    "text to bytes": (
        pa.table({"key": [f"k{n}" for n in range(12)], "v": [b"" if n % 3 else None for n in range(12)]}),
        "binary",
        "nobody",
    ),
    "UUID to rows": (
        pa.table(
            {
                "key": pa.array([UUID(int=n << 100) for n in range(12)], pa.uuid()),
                "n": pa.array([None if n % 4 == 0 else n for n in range(12)], pa.int16()),
                "t": ["é" * n for n in range(12)],
                "l": [[n, None] for n in range(12)],
                "b": [n % 2 == 0 for n in range(12)],
            }
        ),
        "row",
        UUID(int=5),
    ),
}


def asked(dataset: DataSet, path: Path, expected: dict[Key, object], absent: Key) -> list[str]:
    """What became of each question to a file: `right`, or the error. Anything else fails here."""
    outcomes = []

    def ask(question: Callable[[MappedSnapshot], object], answer: object) -> None:
        try:
            found = question(MappedSnapshot(dataset, [path]))
        except (CorruptShard, UnsupportedFormat) as error:
            outcomes.append(type(error).__name__)
        else:
            assert found == answer
            outcomes.append("right")

    keys = list(expected)
    ask(lambda snapshot: snapshot.multi_get([*keys, absent]), expected)
    ask(lambda snapshot: {key: snapshot.get(key, "nothing") for key in keys}, expected)
    ask(lambda snapshot: snapshot.get(absent, "nothing"), "nothing")
    return outcomes


@pytest.fixture(params=list(TABLES))
def shard(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[DataSet, Path, dict[Key, object], Key]:
    """One shard of a data set, its file, its rows, and a key that it has not."""
    table, value, absent = TABLES[request.param]
    snapshot = built(tmp_path, table, value=value)
    found = snapshot.dataset.shards[0]
    assert found is not None
    keys = table["key"].to_pylist()
    return snapshot.dataset, tmp_path / found.path, dict(snapshot.multi_get(keys)), absent


def test_no_single_wrong_byte_is_ever_believed(
    shard: tuple[DataSet, Path, dict[Key, object], Key], tmp_path: Path
) -> None:
    """K18: every byte is turned, one after the other: answers are right or an error; what is read is always checked."""
    dataset, path, expected, absent = shard
    good = path.read_bytes()
    assert asked(dataset, path, expected, absent) == ["right"] * 3
    parts = checked_parts(good)
    damaged = tmp_path / "damaged"
    for place in range(len(good)):
        damaged.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        outcomes = asked(dataset, damaged, expected, absent)
        for name, (start, end) in parts.items():
            if start <= place < end:
                assert "right" not in outcomes[:2], f"byte {place - start} of the {name}"
                assert name == "block" or outcomes[2] != "right"


def checked_parts(data: bytes) -> dict[str, tuple[int, int]]:
    """Where everything is that a look-up reads; the rest is Arrow's schema and footer, and padding."""
    start = trailer_offset(len(data), data[-10:], key="")
    trailer = Trailer.unpack(data[start : start + TRAILER_BYTES], key="")
    offset, length, *_ = np.frombuffer(data, "<u8,<u4,<u4,<u8", 1, trailer.directory_offset)[0].tolist()
    return {
        "block": (offset, offset + length),
        "directory": (trailer.directory_offset, trailer.directory_offset + trailer.directory_bytes),
        "table": (trailer.table_offset, trailer.table_offset + trailer.table_bytes),
        "tags": (trailer.tags_offset, trailer.tags_offset + trailer.tags_bytes),
        "trailer": (start, start + TRAILER_BYTES),
    }


def test_bytes_of_a_large_file_are_no_different(tmp_path: Path) -> None:
    """K18: a sample of a file with many blocks, where most look-ups touch other blocks than the damaged one."""
    table = pa.table({"key": range(20_000), "v": [b"%d" % (n * n) for n in range(20_000)]})
    snapshot = built(tmp_path, table, value="binary")
    found = snapshot.dataset.shards[0]
    assert found is not None
    good = (tmp_path / found.path).read_bytes()
    damaged = tmp_path / "damaged"
    keys = list(range(0, 20_000, 7))
    expected: dict[Key, object] = {key: b"%d" % (key * key) for key in keys}
    random = np.random.default_rng(1)
    seen = set()
    for place in random.integers(0, len(good), 150).tolist():
        damaged.write_bytes(good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :])
        seen.add(tuple(asked(snapshot.dataset, damaged, expected, -5)))
    assert ("CorruptShard", "CorruptShard", "right") in seen, "a damaged block, and a miss that needs no block"
    assert ("CorruptShard",) * 3 in seen


def test_a_file_that_is_cut_short_is_refused(shard: tuple[DataSet, Path, dict[Key, object], Key]) -> None:
    """K18: at every length, from nothing to one byte less than all."""
    dataset, path, expected, absent = shard
    good = path.read_bytes()
    for length in [*range(0, len(good), 13), *range(len(good) - 150, len(good))]:
        path.write_bytes(good[:length])
        assert asked(dataset, path, expected, absent) == ["CorruptShard"] * 3, length
    path.write_bytes(good + b"\x00")
    assert asked(dataset, path, expected, absent) == ["CorruptShard"] * 3


def test_one_shard_is_never_taken_for_another(tmp_path: Path) -> None:
    """K18, K26: two files change places, each whole, with as many rows and bytes: refused, not a false miss."""
    tables = [pa.table({"key": [n], "v": [f"value {n}"]}) for n in (1, 2)]
    shards = [write_shard(tmp_path / f"shard-{n}", table, "key") for n, table in enumerate(tables)]
    assert shards[0].summary.byte_size == shards[1].summary.byte_size
    for mine, other in (shards, shards[::-1]):
        mine.open().verify_all()
        with pytest.raises(CorruptShard, match="it is another shard than the manifest's"):
            mine.open(fingerprint=other.summary.fingerprint)
        with pytest.raises(CorruptShard, match="it is another shard than the manifest's, with 1 rows"):
            mine.open(row_count=2)


def test_an_older_version_of_a_shard_is_not_taken_for_the_newer(tmp_path: Path) -> None:
    """K18: the same keys with other values, in a file of the same size."""
    old = publish_to(tmp_path, pa.table({"key": [1, 2], "v": ["a", "b"]}), key="key", shards=1)
    new = publish_to(tmp_path, pa.table({"key": [1, 2], "v": ["a", "c"]}), key="key", shards=1)
    paths = [shard.path for dataset in (old, new) for shard in dataset.shards if shard is not None]
    (tmp_path / paths[1]).write_bytes((tmp_path / paths[0]).read_bytes())
    with pytest.raises(CorruptShard):
        open_mapped(tmp_path, new)
    assert open_mapped(tmp_path, old).get(2, None) == {"v": "b"}


def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    """K18: its numbers would be taken for places in memory."""
    narrow = write_shard(tmp_path / "narrow", pa.table({"key": range(10), "v": range(10)}), "key")
    wide = write_shard(tmp_path / "wide", pa.table({"key": range(10), "v": ["x"] * 10}), "key")
    mixed = WrittenShard(narrow.path, narrow.key, wide.schema, narrow.summary)
    with pytest.raises(CorruptShard, match="its rows have 4 buffers, the schema's 5"):
        mixed.open()


def forged(path: Path, change: Callable[[dict[str, int]], None]) -> None:
    """A trailer that says something else, and whose own checksum is right."""
    good = path.read_bytes()
    start = trailer_offset(len(good), good[-10:], key="")
    trailer = Trailer.unpack(good[start : start + TRAILER_BYTES], key="")
    fields = {name: getattr(trailer, name) for name in Trailer.__dataclass_fields__}
    change(fields)
    path.write_bytes(good[:start] + Trailer(**fields).pack() + good[start + TRAILER_BYTES :])


HUGE = ((1 << 64) - 1, 1 << 63, 1 << 62, (1 << 61) + 1)


@pytest.mark.parametrize("name", ["row_count", "block_count", "directory_offset", "table_offset", "tags_offset"])
def test_numbers_of_a_trailer_never_lead_outside_the_file(name: str, tmp_path: Path) -> None:
    """K18: not even with a checksum that is right: nothing is read before its place and its bytes were checked."""
    shard = write_shard(tmp_path / "shard", pa.table({"key": range(300), "v": range(300)}), "key")
    good = shard.path.read_bytes()
    for number in (*HUGE, 0, 1, len(good), len(good) - 8):
        forged(shard.path, lambda fields, number=number: fields.update({name: number}))  # type: ignore[misc]
        with pytest.raises(CorruptShard):
            shard.open()
        shard.path.write_bytes(good)


def test_a_block_table_that_points_outside_the_file_is_refused(tmp_path: Path) -> None:
    """K18: many keys are looked up in plain memory, so the table is compared with the file when it is opened."""
    shard = write_shard(tmp_path / "shard", pa.table({"key": range(1000), "v": range(1000)}), "key")
    good = shard.path.read_bytes()
    start = trailer_offset(len(good), good[-10:], key="")
    trailer = Trailer.unpack(good[start : start + TRAILER_BYTES], key="")
    for place, number in [(0, 7), (trailer.table_stride, 5000), (2, len(good)), (2, 1 << 63)]:
        table = np.frombuffer(good, "<u8", trailer.table_bytes // 8, trailer.table_offset).copy()
        table[place] = number
        raw = table.tobytes()
        data = good[: trailer.table_offset] + raw + good[trailer.table_offset + len(raw) :]
        shard.path.write_bytes(data)
        forged(shard.path, lambda fields, raw=raw: fields.update(table_checksum=xxh3_64_intdigest(raw)))  # type: ignore[misc]
        with pytest.raises(CorruptShard, match="block table is not one of this file"):
            shard.open()


@pytest.mark.parametrize("major,error", [(2, UnsupportedFormat), (99, UnsupportedFormat), (0, CorruptShard)])
def test_a_newer_format_asks_for_an_upgrade(major: int, error: type[Damaged], tmp_path: Path) -> None:
    """K18: nothing is wrong with such a file, and nothing of it is guessed."""
    shard = write_shard(tmp_path / "shard", pa.table({"key": [1], "v": [1]}), "key")
    good = shard.path.read_bytes()
    start = trailer_offset(len(good), good[-10:], key="")
    trailer = bytearray(good[start : start + TRAILER_BYTES])
    trailer[8:12] = major.to_bytes(4, "little")
    trailer[120:] = xxh3_64_intdigest(bytes(trailer[:120])).to_bytes(8, "little")
    shard.path.write_bytes(good[:start] + trailer + good[start + TRAILER_BYTES :])
    with pytest.raises(error):
        shard.open()


def test_a_missing_file_is_not_an_empty_shard(tmp_path: Path) -> None:
    """K26: a shard that is gone is an error wherever it is met."""
    snapshot = built(tmp_path, pa.table({"key": range(10), "v": range(10)}))
    found = snapshot.dataset.shards[0]
    assert found is not None
    (tmp_path / found.path).unlink()
    with pytest.raises(OSError, match="No such file"):
        open_mapped(tmp_path, snapshot.dataset)


def test_the_entries_of_a_directory_know_their_place(tmp_path: Path) -> None:
    """K18: an entry that is whole, but another block's, fails its checksum."""
    shard = write_shard(tmp_path / "shard", pa.table({"key": range(1000), "v": range(1000)}), "key")
    data = bytearray(shard.path.read_bytes())
    first, second = (shard.summary.directory_offset + n * DIRECTORY_ENTRY_BYTES for n in (0, 1))
    data[first : first + DIRECTORY_ENTRY_BYTES], data[second : second + DIRECTORY_ENTRY_BYTES] = (
        data[second : second + DIRECTORY_ENTRY_BYTES],
        data[first : first + DIRECTORY_ENTRY_BYTES],
    )
    raw = bytes(data[first : first + shard.summary.block_count * DIRECTORY_ENTRY_BYTES])
    shard.path.write_bytes(bytes(data))
    forged(shard.path, lambda fields: fields.update(directory_checksum=xxh3_64_intdigest(raw)))
    opened = shard.open()
    for block in (0, 1):
        with pytest.raises(CorruptShard, match=f"directory entry {block} fails its checksum"):
            opened.verify_block(block)
