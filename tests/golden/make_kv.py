"""Makes the golden data sets: every kind of key, of value and of routing, published, with the answers that they give.

python -m tests.golden.make_kv v2

Kept for ever, like the records (see `tests/golden/make.py`): later releases must find in them what `answers.json` says.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa

from holdfast.kv import DataSet, Key, KeyKind, publish_arrow, update_arrow
from holdfast.storage import LocalStore
from tests.chain.publishing import ChainFactory
from tests.golden.make import GOLDEN, GoldenRandomness

FOLDER = "kv-data"
ANSWERS = "answers.json"


def keys_of(kind: KeyKind, rows: int) -> list[Any]:
    """Keys at the ends of their range and between them."""
    if kind.is_integer:
        bits = int(kind.value.removeprefix("u").removeprefix("int"))
        low = 0 if kind.value.startswith("u") else -(1 << (bits - 1))
        high = low + (1 << bits) - 1
        return [low, high, *range(1, min(rows, 120) - 1)]
    makers: dict[KeyKind, Callable[[int], object]] = {
        KeyKind.TEXT: lambda n: ["", "größe", "\U0001f600"][n] if n < 3 else f"user:{n}",
        KeyKind.BYTES: lambda n: b"" if n == 0 else n.to_bytes(2 + n % 5),
        KeyKind.UUID: lambda n: UUID(int=n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)),
        KeyKind.DATE: lambda n: [date.min, date.max][n] if n < 2 else date(1969, 12, 1) + timedelta(days=n),
    }
    return list(dict.fromkeys(makers[kind](n) for n in range(rows)))


def tables() -> Iterable[tuple[str, pa.Table, dict[str, Any]]]:
    """A name, the rows, and how they are published."""
    for number, kind in enumerate(KeyKind):
        keys = keys_of(kind, 300 if number % 2 else 40)
        column = pa.array(keys, kind.arrow_type)
        for value in (
            ("row", "binary", "json")[number % 3 : number % 3 + 1]
            if kind is not KeyKind.TEXT
            else (
                "row",
                "binary",
                "json",
            )
        ):
            yield f"{kind}-{value}", pa.table({"k": column, "v": values_of(value, len(keys))}), {
                "key": "k", "shards": 1 + number % 3, "value": value,
            }  # fmt: skip
    many = pa.table({"tenant": [n % 7 for n in range(200)], "name": [f"n{n}" for n in range(200)], **row_columns(200)})
    yield "composite-expression", many, {"key": ["tenant", "name"], "shards": 7, "route": "tenant % 7"}
    yield "text-range", pa.table({"k": [f"{n:03}" for n in range(200)], "n": range(200)}), {
        "key": "k", "bounds": ["050", "100", "150"],
    }  # fmt: skip
    yield "nothing", pa.schema([("k", pa.int64()), ("v", pa.string())]).empty_table(), {"key": "k", "shards": 2}


def values_of(value: str, rows: int) -> pa.Array:
    if value == "binary":
        return pa.array([None if n % 11 == 3 else bytes([n % 256]) * (n % 5) for n in range(rows)], pa.binary())
    if value == "json":
        return pa.array([f'{{"n":{n},"list":[null,"é",{n / 2}]}}' for n in range(rows)])
    return pa.array([None if n % 7 == 3 else "é" * (n % 4) + str(n) for n in range(rows)])


def row_columns(rows: int) -> dict[str, pa.Array]:
    """Values of many types, some of them null."""
    moment = datetime(2026, 3, 14, 10, 30, tzinfo=timezone.utc)  # noqa: UP017
    kinds: dict[str, tuple[pa.DataType, Any]] = {
        "flag": (pa.bool_(), lambda n: n % 2 == 0),
        "small": (pa.int16(), lambda n: n - 100),
        "ratio": (pa.float64(), lambda n: n / 8),
        "price": (pa.decimal128(12, 2), lambda n: Decimal(n * 37) / 100),
        "seen": (pa.timestamp("us", "UTC"), lambda n: moment + timedelta(seconds=n)),
        "blob": (pa.large_binary(), lambda n: bytes([n]) * (n % 3)),
        "list": (pa.list_(pa.int32()), lambda n: [n, None][: n % 3]),
        "inner": (pa.struct([("a", pa.string()), ("b", pa.map_(pa.string(), pa.int8()))]),
                  lambda n: {"a": str(n), "b": [("x", n % 100)]}),
    }  # fmt: skip
    return {
        name: pa.array([None if n % 9 == column else make(n) for n in range(rows)], kind)
        for column, (name, (kind, make)) in enumerate(kinds.items())
    }


def spelled(value: object) -> object:
    """A value of a row in JSON."""
    match value:
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case Mapping():
            return {name: spelled(inner) for name, inner in value.items()}
        case list() | tuple():
            return [spelled(inner) for inner in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def make(version: str) -> None:
    """Write the data sets of one version, or refuse."""
    folder = GOLDEN / version / FOLDER
    if folder.exists():
        sys.exit(f"{folder.name} of {version} exists and is kept for ever; a new format gets a new version")
    for name, table, options in tables():
        publish(folder / name, table, options)
    publish_twice(folder / "updated")


def publish(folder: Path, table: pa.Table, options: dict[str, Any]) -> None:
    factory = ChainFactory(store=LocalStore(folder / "chain"), randomness=GoldenRandomness())
    dataset = publish_arrow(factory(by="golden@host:1"), table, run_id="nightly-0", **options).dataset
    write_answers(folder, dataset, table)


def publish_twice(folder: Path) -> None:
    """A snapshot that shares shards with the one before."""
    rows = pa.table({"k": range(100), "v": [f"old {n}" for n in range(100)]})
    factory = ChainFactory(store=LocalStore(folder / "chain"), randomness=GoldenRandomness())
    publish_arrow(factory(by="golden@host:1"), rows, key="k", shards=4, run_id="nightly-0")
    factory.clock.advance(60)
    changed = pa.table({"k": [7, 1000], "v": ["new", "added"]})
    chain = factory(by="golden@host:1")
    dataset = update_arrow(chain, upserts=changed, deletes=pa.array([8]), run_id="nightly-1").dataset
    kept = rows.filter(pa.array([n not in {7, 8} for n in range(100)]))
    write_answers(folder, dataset, pa.concat_tables([kept, changed]))


def write_answers(folder: Path, dataset: DataSet, table: pa.Table) -> None:
    """What each key's look-up answers with, and which shard it is in."""
    names = dataset.key.names
    others = [name for name in table.schema.names if name not in names]
    answers = []
    for row in table.to_pylist():
        key: Key = tuple(row[name] for name in names) if dataset.key.is_composite else row[names[0]]
        value: object = {name: row[name] for name in others} if dataset.value == "row" else row[others[0]]
        if dataset.value == "json":
            value = orjson.loads(str(value))
        shard = dataset.routing.shard_of(key, dataset.key.hash_of(key))
        answers.append([dataset.key.to_json_key(key), shard, spelled(value)])
    lines = b",\n".join(orjson.dumps(answer) for answer in answers)
    (folder / ANSWERS).write_bytes(b"[\n" + lines + b"\n]\n")


if __name__ == "__main__":
    make(sys.argv[1])
