"""Holdfast on local Spark and local files: pipelines, look-ups, a graph, a catalog, a rollback, fencing, collection.

    make demo                               # or: python examples/demo.py
    make demo ARGS='--directory ./demo'     # to choose where

Everything here is the real library and the real command line, on the source files of this very Python. What it makes
is left behind, to try things on.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
from code_graph import silent_children

from holdfast.catalog.datasets import announcing
from holdfast.chain import Chain, ManifestDraft, open_chain
from holdfast.cli.main import main as holdfast
from holdfast.clock import Clock, SystemClock
from holdfast.errors import StaleFencingToken
from holdfast.kv import Published, ShardedReader, update_arrow
from holdfast.spark import local_spark

WORKSPACE = "./lake/acme/demo"
MODULES, IMPORTS, SIZES, LETTERS = (
    f"{WORKSPACE}/datasets/{name}" for name in ("modules", "imports", "sizes", "letters")
)
PIPELINES = ("library.toml", "library_imports.sql", "report.toml")
LIBRARY = f"folder={sysconfig.get_paths()['stdlib']}"

COLUMNS = "SELECT name AS column, count(*) AS tables FROM system.columns GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 4"
SNAPSHOTS = "SELECT dataset, manifest_id, row_count FROM system.dataset_snapshots ORDER BY 1, 2"


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
    with redirect_stderr(sys.stdout):
        code = holdfast(words)
    if code != expected:
        sys.exit(f"the demo expected exit code {expected}, not {code}")
    if code:
        note(f"(exit code {code})")


def run(run_name: str, *words: str, expected: int = 0) -> None:
    """Run the pipeline of the library, on the session that is there."""
    command(
        "run", "library.toml", "--workspace", WORKSPACE, "--run", run_name, "--param", LIBRARY, *words,
        expected=expected,
    )  # fmt: skip


def data_set(by: str, *, clock: Clock | None = None) -> Chain:
    """The data set of modules, as one of several writers opens it; its moves are told to the catalog."""
    return announcing(open_chain(MODULES, by=by, clock=clock))


def retitle(chain: Chain, title: str, run_id: str) -> Published:
    """A small change without Spark: only the shard that it touches is written again."""
    with ShardedReader.open(MODULES) as reader:
        row = reader.get_arrow(["csv"])
    changed = row.set_column(row.column_names.index("title"), "title", pa.array([title]))
    return update_arrow(chain, upserts=changed, run_id=run_id, why="a better title")


# -- what the steps do that is no command -----------------------------------------------------------------------------


def stale_writer() -> None:
    """A writer whose lock has long expired for everybody else tries to publish over its successor."""
    slow = data_set("slow-writer", clock=SlowClock())
    guard = slow.lock(operation="a build that never ends")
    begun = slow.begin_run("slow-build")
    note(f"slow-writer holds the lock with token {guard.token.sequence}; its clock is ten minutes behind")
    quick = data_set("quick-writer")
    published = retitle(quick, "CSV", "quick-fix-1")
    note("quick-writer found the lock expired, took it over and changed one row, without Spark:")
    note(f"{published.written_shards} of {len(published.dataset.shards)} shards were written again")
    retitle(quick, "CSV files", "quick-fix-2")
    slow.current()
    try:
        slow.publish(ManifestDraft(), run=begun, permit=slow.permit(guard))
    except StaleFencingToken as error:
        note(f"slow-writer is refused: {error}")
        begun.fail("fenced off")
    else:
        sys.exit("the stale writer was not refused")


def damage() -> None:
    """Ruin the visible manifest on disk; a reader that starts now serves the snapshot before it."""
    current = open_chain(MODULES).current()
    assert current is not None
    path = Path(MODULES) / current.manifest_path
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    note(f"half of the manifest of run {current.run_id}, which readers should see, is gone")
    with ShardedReader.open(MODULES) as reader:
        served, health = reader.snapshot_info(), reader.health()
        note(
            f"a new reader serves run {served.run_id}, {served.row_count} rows, and knows: fell_back={health.fell_back}"
        )
    command("verify", MODULES, expected=6)
    path.write_bytes(good)
    note("the manifest is put back as it was")


def collection() -> None:
    """Collect, restore, collect again, purge. What is tagged stays."""
    command("tag", MODULES, "release=stable", "--run-id", "library-2+1")
    command("gc", "collect", MODULES, "--retention", "1")
    command("gc", "collect", MODULES, "--retention", "1", "--apply")
    pending, _ = open_chain(MODULES).pending_collections()[0]
    command("gc", "restore", MODULES, pending.collection)
    note("and once more, to purge it for good:")
    open_chain(MODULES).collect(retention=1)
    command("gc", "purge", MODULES, "--grace", "0s", "--apply")


# -- the steps --------------------------------------------------------------------------------------------------------


def built_and_asked() -> None:
    """One run of a pipeline, and everything that can be asked afterwards."""
    say(1, "A workspace is a folder, here or in a bucket. A pipeline is a file: sources, SQL, data sets, checks.")
    command("init", WORKSPACE)
    command("pipeline", "check", "library.toml", "--param", LIBRARY)

    say(2, "Run it: Spark reads Python's own library; a key-value data set, a graph and a table are published.")
    run("library-1")

    say(3, "Look rows up by key: no Spark, no JVM, straight from the files.")
    command("get", MODULES, "csv")
    command("multiget", MODULES, "ast", "csv", "no-such-module", expected=3)

    say(4, "Ask the graph: who imports tokenize, what does that need, and how does pdb come to need token?")
    command("graph", "dependents", IMPORTS, "tokenize.py")
    command("graph", "reach", IMPORTS, "tokenize", "--depth", "1")
    command("graph", "path", IMPORTS, "pdb", "token")

    say(
        5,
        "Ask the catalog: what is there, where was that thing about modles, in SQL, and which column came from where.",
    )
    command("catalog", "ls", WORKSPACE)
    command("catalog", "search", WORKSPACE, "modle")
    command("catalog", "sql", WORKSPACE, COLUMNS)
    command("catalog", "lineage", WORKSPACE, "sizes", "--columns", "--indirect")


def changed_and_checked() -> None:
    """A second version, and one that is not published."""
    say(6, "Run it again without very short modules: a second version of each. What changed is in the report.")
    run("library-2", "--param", "least_lines=40")
    command("graph", "diff", IMPORTS, "2", "3")
    note("the first version is still there:")
    command("get", MODULES, "this", "--offset", "1")

    say(7, "The same run once more does nothing: what it has published is neither built nor published again.")
    run("library-2", "--param", "least_lines=40")

    say(8, "A run whose check fails publishes nothing and names rows. Here 50 lines of each file are not counted.")
    run("library-3", "--param", "header_lines=50", "--only", "modules", expected=2)


def taken_back() -> None:
    """A bad publish that passes, what is built from it, and the way back."""
    say(9, "A bad publish that passes its checks, and a report that another pipeline builds from it.")
    run("library-4", "--param", "pattern=%e%", "--only", "modules")
    command("run", "report.toml", "--workspace", WORKSPACE, "--run", "report-1")
    note("somebody asks for csv, which has no e:")
    command("get", MODULES, "csv", expected=3)

    say(
        10, "Roll back: one swap of one pointer. It names everything downstream that was built from what is taken back."
    )
    command("rollback", MODULES, "--why", "modules without an e are gone")
    command("get", MODULES, "csv")
    note("what was named is built again, from the snapshot that is visible now, and pins it:")
    command("run", "report.toml", "--workspace", WORKSPACE, "--run", "report-2")
    command("catalog", "lineage", WORKSPACE, "letters", "--snapshot", "1")


def kept_safe() -> None:
    """Stale writers, damage, old snapshots."""
    say(11, "A stale writer cannot publish, even if it never noticed that it lost its lock.")
    stale_writer()

    say(12, "Readers survive a damaged snapshot, and verify finds it.")
    damage()

    say(13, "Collect old snapshots, but never tagged ones: a dry run, then for real, then taken back, then deleted.")
    collection()

    say(14, "Verify everything, from the pointer to the bytes; and see what ran, and what became of the data set.")
    for place in (MODULES, IMPORTS, SIZES, LETTERS, f"{WORKSPACE}#domain:catalog"):
        command("verify", place)
    command("runs", WORKSPACE)
    command("history", MODULES)


def try_these(folder: Path) -> None:
    print(f"\nIt is all left in place. Try:\n\n  cd {shlex.quote(str(folder))}")
    for words in (
        ("repl", MODULES),
        ("get", MODULES, "ast", "--json"),
        ("graph", "neighbors", IMPORTS, "inspect"),
        ("graph", "dependents", IMPORTS, "token.py", "--transitive"),
        ("catalog", "show", WORKSPACE, "modules"),
        ("catalog", "lineage", WORKSPACE, "modules", "--downstream", "--depth", "all"),
        ("catalog", "sql", WORKSPACE, SNAPSHOTS),
        ("runs", WORKSPACE, "library-3"),
        ("rollback", MODULES),
        ("run", "library.toml", "--workspace", WORKSPACE, "--param", LIBRARY),
    ):
        print(f"  {shlex.join(['holdfast', *words])}")
    print(f"\nThe program: {program()}\nThe files:   {folder}")


def run_demo(folder: Path) -> None:
    clock = SystemClock()
    began = clock.now()
    folder.mkdir(parents=True, exist_ok=True)
    for name in PIPELINES:
        shutil.copy(Path(__file__).with_name(name), folder)
    os.chdir(folder)
    with silent_children():
        spark = local_spark(settings={"spark.sql.shuffle.partitions": "2"})
    try:
        built_and_asked()
        changed_and_checked()
        taken_back()
    finally:
        spark.stop()
    kept_safe()
    try_these(folder)
    print(f"It took {(clock.now() - began).total_seconds():.0f} s.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to put it; a new temporary directory if not given")
    chosen: Path | None = parser.parse_args(arguments).directory
    logging.basicConfig(stream=sys.stdout, format="    log: %(message)s")
    folder = (chosen if chosen is not None else Path(tempfile.mkdtemp(prefix="holdfast-demo-"))).absolute()
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: choose another directory")
    run_demo(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
