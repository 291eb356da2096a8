"""Makes the golden tables: a table of every type, one without rows, and a history, with the rows that they hold.

python -m tests.golden.make_table v2

Kept for ever, like the records (see `tests/golden/make.py`): later releases must find in them what `answers.json` says.
"""

from __future__ import annotations

import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from holdfast.chain import table_layout
from holdfast.storage import LocalStore
from holdfast.table import publish_arrow
from tests.chain.publishing import ChainFactory
from tests.golden.make import GOLDEN, GoldenRandomness
from tests.golden.make_kv import spelled

FOLDER = "table-data"
ANSWERS = "answers.json"
ROWS = 60


def every_type() -> pa.Table:
    """Columns of all types that a table stores, some of them null, with names that are hard to keep."""
    moment = datetime(2026, 3, 14, 10, 30, tzinfo=timezone.utc)  # noqa: UP017
    kinds: dict[str, tuple[pa.DataType, Any]] = {
        "flag": (pa.bool_(), lambda n: n % 2 == 0),
        "tiny": (pa.int8(), lambda n: n - 30),
        "small": (pa.int16(), lambda n: n * 500),
        "middle": (pa.int32(), lambda n: n * 30_000_000),
        "big": (pa.int64(), lambda n: n * (1 << 57)),
        "single": (pa.float32(), lambda n: n / 4),
        "ratio": (pa.float64(), lambda n: n / 8),
        "price.net": (pa.decimal128(38, 2), lambda n: Decimal(n * 37) / 100),
        "größe": (pa.string(), lambda n: "é" * (n % 4) + str(n)),
        "blob": (pa.binary(), lambda n: bytes([n]) * (n % 3)),
        "day": (pa.date32(), lambda n: date(1, 1, 1) + timedelta(days=n * 10_000)),
        "seen": (pa.timestamp("us", "UTC"), lambda n: moment + timedelta(seconds=n)),
        "near": (pa.timestamp("us"), lambda n: datetime(1970, 1, 1) + timedelta(microseconds=n)),  # noqa: DTZ001
        "span": (pa.duration("us"), lambda n: timedelta(microseconds=n)),
        "list": (pa.list_(pa.int32()), lambda n: [n, None][: n % 3]),
        "inner": (pa.struct([("a", pa.string()), ("b", pa.map_(pa.string(), pa.int8()))]),
                  lambda n: {"a": str(n), "b": [("x", n)]}),
    }  # fmt: skip
    return pa.table(
        {
            name: pa.array([None if n % 17 == column else make(n) for n in range(ROWS)], kind)
            for column, (name, (kind, make)) in enumerate(kinds.items())
        }
    )


def make(version: str) -> None:
    """Write the tables of one version, or refuse."""
    folder = GOLDEN / version / FOLDER
    if folder.exists():
        sys.exit(f"{folder.name} of {version} exists and is kept for ever; a new format gets a new version")
    publish(folder / "every-type", every_type())
    publish(folder / "nothing", every_type().slice(0, 0))
    publish(folder / "history", pa.table({"n": range(5)}), pa.table({"n": range(7), "text": ["é"] * 7}))


def publish(folder: Path, *tables: pa.Table) -> None:
    """Snapshots one after the other; the answers are the rows of the last."""
    factory = ChainFactory(layout=table_layout(), store=LocalStore(folder / "chain"), randomness=GoldenRandomness())
    for turn, table in enumerate(tables):
        factory.clock.advance(60)
        publish_arrow(
            factory(by="golden@host:1"), table, run_id=f"nightly-{turn}", custom={"turn": turn}, tags={"t": str(turn)}
        )
    lines = b",\n".join(orjson.dumps(spelled(row)) for row in tables[-1].to_pylist())
    (folder / ANSWERS).write_bytes(b"[\n" + lines + b"\n]\n")


if __name__ == "__main__":
    make(sys.argv[1])
