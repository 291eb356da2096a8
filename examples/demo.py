"""Holdfast on local Spark and local files: build, look up, update, a graph, roll back, fence, survive damage, collect.

    make demo                               # or: python examples/demo.py
    make demo ARGS='--directory ./demo'     # to choose where

Everything here is the real library and the real command line. What it makes is left behind, to try things on.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from code_graph import code_graph, silent_children
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from holdfast.chain import Chain, InputPin, ManifestDraft, open_chain
from holdfast.cli.main import main as holdfast
from holdfast.clock import SystemClock
from holdfast.errors import StaleFencingToken
from holdfast.kv import ShardedReader, publish_rows
from holdfast.spark import local_spark, publish_kv, update_kv


class SlowClock(SystemClock):
    """The clock of a machine that is ten minutes behind and does not know it."""

    def now(self) -> datetime:
        return super().now() - timedelta(minutes=10)


def program() -> str:
    """How `holdfast` is called from here."""
    script = Path(sys.executable).with_name("holdfast")
    return shutil.which("holdfast") or (str(script) if script.exists() else f"{sys.executable} -m holdfast.cli")


def say(number: int, text: str) -> None:
    print(f"\n{number:>2}. {text}", flush=True)


def note(text: str) -> None:
    print(f"    {text}", flush=True)


def command(*words: str, expected: int = 0) -> None:
    """Run the real program and show what was typed."""
    print(f"\n$ {shlex.join(['holdfast', *words])}", flush=True)
    code = holdfast(words)
    if code != expected:
        sys.exit(f"the demo expected exit code {expected}, not {code}")
    if code:
        note(f"(exit code {code})")


def source_files(spark: SparkSession) -> DataFrame:
    """Python's own library as rows: one per source file, made by Spark from the files themselves."""
    root = sysconfig.get_paths()["stdlib"]
    files = spark.read.text(f"{root}/*.py", wholetext=True).withColumn("path", F.input_file_name())
    return files.select(
        F.regexp_extract("path", r"([^/]+)\.py$", 1).alias("module"),
        F.length("value").alias("characters"),
        F.regexp_count("value", F.lit("\n")).alias("lines"),
        F.regexp_count("value", F.lit(r"(?m)^ *def ")).alias("functions"),
        F.regexp_extract("value", r'^"""([^\n"]*)', 1).alias("title"),
    )


def build(spark: SparkSession, place: str) -> DataFrame:
    """The main job: rows from Spark become a snapshot that anything can look up."""
    files = source_files(spark).cache()
    published = publish_kv(files, place, key="module", shards=4, run_id="stdlib-1", why="first build")
    note(f"run stdlib-1 is visible: {published.dataset.row_count:,} rows in {published.written_shards} shards")
    return files


def update(place: str, files: DataFrame) -> None:
    """Upserts and a delete: only the shards they touch are written again."""
    changed = files.where("module = 'csv' or module = 'ast'").withColumn("title", F.lit("looked at today"))
    gone = files.where("module = 'this'").select("module")
    published = update_kv(place, upserts=changed, deletes=gone, run_id="stdlib-2", why="two notes, one removed")
    note(
        f"run stdlib-2: {published.upserted_rows} rows put, {published.deleted_rows} deleted; "
        f"{published.written_shards} of {len(published.dataset.shards)} shards were written again"
    )


def publish(chain: Chain, run_id: str, prices: Sequence[int], *, inputs: tuple[InputPin, ...] = ()) -> None:
    """A small snapshot without Spark: the same shards, by the same code."""
    rows = [(f"item-{number}", {"price": price}) for number, price in enumerate(prices)]
    publish_rows(chain, rows, shards=2, run_id=run_id, inputs=inputs)


def highest_price(reader: ShardedReader) -> int:
    """What a service makes of a snapshot."""
    table = reader.get_arrow([f"item-{number}" for number in range(200)], missing="drop")
    return int(max(table.column("price").to_pylist()))


def stale_writer(place: str) -> None:
    """A writer whose lock has long expired for everybody else tries to publish over its successor."""
    slow = open_chain(place, layout="kv", by="slow-writer", clock=SlowClock())
    guard = slow.lock(operation="a build that never ends")
    run = slow.begin_run("slow-build")
    note(f"slow-writer holds the lock with token {guard.token.sequence}; its clock is ten minutes behind")
    quick = open_chain(place, by="quick-writer")
    publish(quick, "quick-build", range(100, 220))
    note("quick-writer found the lock expired, took it over and published")
    slow.current()
    try:
        slow.publish(ManifestDraft(), run=run, permit=slow.permit(guard))
    except StaleFencingToken as error:
        note(f"slow-writer is refused: {error}")
        run.fail("fenced off")
    else:
        sys.exit("the stale writer was not refused")


def damage(place: str, folder: Path) -> None:
    """Ruin the visible manifest on disk; a reader that starts now serves the snapshot before it."""
    chain = open_chain(place)
    current = chain.current()
    assert current is not None
    path = folder / current.manifest_path
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    note(f"half of the manifest of run {current.run_id}, which readers should see, is gone")
    with ShardedReader.open(place) as reader:
        served, health = reader.snapshot_info(), reader.health()
        note(f"a new reader serves run {served.run_id}: highest price {highest_price(reader)}")
        note(f"it knows: fell_back={health.fell_back}, head is {health.head_id}, served is {served.manifest_id}")
    command("verify", place, expected=6)
    path.write_bytes(good)
    note("the manifest is put back as it was")


def collection(place: str) -> None:
    """Collect, restore, collect again, purge."""
    command("gc", "collect", place, "--retention", "2")
    command("gc", "collect", place, "--retention", "2", "--apply")
    pending, _ = open_chain(place).pending_collections()[0]
    command("gc", "restore", place, pending.collection)
    note("and once more, to purge it for good:")
    open_chain(place).collect(retention=2)
    command("gc", "purge", place, "--grace", "0s", "--apply")


def run_demo(folder: Path) -> None:
    library = str(folder / "datasets" / "stdlib")
    users, scores = folder / "datasets" / "users", folder / "datasets" / "scores"
    place = str(users)

    say(1, "Build a key-value data set on Spark from Python's own source files (Spark takes a few seconds to start).")
    with silent_children():
        spark = local_spark(settings={"spark.sql.shuffle.partitions": "4"})
    try:
        files = build(spark, library)
        command("info", library)

        say(2, "Look things up: no Spark, no JVM, straight from the files.")
        command("get", library, "csv")
        command("multiget", library, "ast", "csv", "no-such-module", expected=3)
        command("route", library, "csv")

        say(
            3,
            "Change a few rows with Spark: only the shards they touch are written again.",
        )
        update(library, files)
        command("get", library, "csv")
        command("get", library, "csv", "--offset", "1")

        say(4, "A graph, on Spark too: the code of two packages of that library, asked, changed, compared, taken back.")
        graph = code_graph(spark, folder / "code", packages=("json", "email"))
    finally:
        spark.stop()

    say(5, "Publish three snapshots of another data set from plain Python, each by one swap of one pointer. Tag one.")
    chain = open_chain(place, layout="kv", by="nightly")
    for day, count in enumerate((80, 90, 100), start=1):
        publish(chain, f"nightly-{day}", range(100, 100 + count))
    command("history", place)
    command("tag", place, "release=stable", "--offset", "2")

    say(6, "A bad publish, and a third data set that is built from it. Its manifest pins the exact input.")
    publish(chain, "nightly-4", range(-20, 80))
    publish(open_chain(str(scores), layout="kv", by="scoring"), "scores-1", range(50), inputs=(chain.pin(),))
    command("diff", place, "@1", "@0")

    say(7, "Roll back. It names everything downstream, found beside it, that was built from what is taken back.")
    command("rollback", place, "--why", "negative prices")

    say(8, "Roll forward: a rollback deletes nothing.")
    command("forward", place, "--why", "just to show it")

    say(9, "A stale writer cannot publish, even if it never noticed that it lost its lock.")
    stale_writer(place)

    say(10, "Readers survive a damaged snapshot, and verify finds it.")
    damage(place, users)

    say(11, "Collect old snapshots: a dry run, then for real, then taken back, then deleted.")
    collection(place)

    say(12, "Verify everything, from the pointer to the bytes.")
    command("verify", place)
    command("history", place)

    print("\nIt is all left in place. Try:\n")
    for words in (
        ("repl", library),
        ("get", library, "csv", "--json"),
        ("shards", library),
        ("graph", "info", graph),
        ("graph", "neighbors", graph, "email:message_from_file"),
        ("history", place, "--json"),
        ("show", place),
        ("tags", place),
        ("rollback", place),
        ("gc", "collect", place, "--retention", "1"),
        ("verify", str(scores)),
    ):
        print(f"  {shlex.join(['holdfast', *words])}")
    print(f"\nThe program: {program()}\nThe files:   {folder}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to put it; a new temporary directory if not given")
    chosen: Path | None = parser.parse_args(arguments).directory
    logging.basicConfig(stream=sys.stdout, format="    log: %(message)s")
    folder = chosen if chosen is not None else Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: choose another directory")
    run_demo(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
