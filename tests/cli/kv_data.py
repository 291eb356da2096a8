"""Key-value data sets for the tests of the command line: whole numbers, composite keys, bytes and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.kv import publish_rows
from tests.cli.support import DataSet, Program, Result

Script = Callable[..., Result]
PEOPLE = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances")


def publish_users(
    users: DataSet, version: int, *, custom: dict[str, object] | None = None, tags: dict[str, str] | None = None
) -> None:
    """Six people and two negative numbers; the version tells the snapshots apart."""
    rows = [(number, {"name": PEOPLE[number % 6], "version": version}) for number in range(-2, 6)]
    publish_rows(users.chain, rows, key_names=("id",), shards=4, run_id=f"build-{version}", custom=custom, tags=tags)
    users.clock.step()


def make_users(folder: Path) -> DataSet:
    """Three snapshots: versions 1 to 3."""
    users = DataSet(folder / "people")
    for version in (1, 2, 3):
        publish_users(users, version)
    return users


def make_prices(folder: Path) -> DataSet:
    """Keys of two parts, and a value of every kind that JSON has no word for."""
    prices = DataSet(folder / "prices")
    row = {
        "price": Decimal("12.50"),
        "seen": datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
        "token": UUID(int=7).bytes,
        "ratio": math.nan,
        "note": None,
        "places": [{"city": "Köln", "mark": b"\xff"}],
    }
    rows = [((country, date(2026, 3, day)), row) for country in ("de", "nl") for day in (1, 2)]
    publish_rows(prices.chain, rows, key_names=("country", "day"), shards=16)
    return prices


def make_blobs(folder: Path) -> DataSet:
    blobs = DataSet(folder / "blobs")
    rows = [("logo", b"\x89PNG\r\n\x00\xff"), ("readme", b"hello there"), ("empty", b""), ("a b", b"quoted")]
    publish_rows(blobs.chain, rows, shards=2)
    return blobs


def make_documents(folder: Path) -> DataSet:
    documents = DataSet(folder / "documents")
    rows: list[tuple[str, object]] = [("a", {"x": [1, {"y": None}], "text": "bell\x07"}), ("b", None)]
    publish_rows(documents.chain, rows, value="json", shards=2)
    return documents


def shard_files(found: DataSet) -> list[Path]:
    return sorted(found.folder.rglob("*.arrow"))


def script_runner(holdfast: Program, monkeypatch: pytest.MonkeyPatch) -> Script:
    """`holdfast repl` fed with lines from a pipe."""

    def run(found: object, *lines: str, words: tuple[str, ...] = (), code: int = 0) -> Result:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdin", StringIO("".join(f"{line}\n" for line in lines)))
            return holdfast("repl", found, *words, code=code)

    return run
