"""Holdfast in a few seconds, on local files: publish, look, roll back, fence, survive damage, collect.

    make demo                               # or: python examples/demo.py
    make demo ARGS='--directory ./demo'     # to choose where

Everything here is the real library and the real command line. What it makes is left behind, to try things on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from holdfast.chain import Artifact, Chain, Committed, InputPin, Manifest, ManifestDraft, open_chain
from holdfast.cli.main import main as holdfast
from holdfast.clock import SystemClock
from holdfast.errors import StaleFencingToken

SHARDS = 2


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


def publish(chain: Chain, run_id: str, prices: Sequence[int], *, inputs: tuple[InputPin, ...] = ()) -> Committed:
    """One snapshot: take the lock, register the run, write files, make all of them visible by one swap."""
    with chain.lock(operation=run_id) as guard:
        run = chain.begin_run(run_id)
        artifacts = []
        for shard in range(SHARDS):
            rows = [{"key": f"item-{number}", "price": price} for number, price in enumerate(prices)][shard::SHARDS]
            data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
            info = chain.store.upload(run.artifact_key(f"shard-{shard}.jsonl"), [data])
            checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
            artifacts.append(Artifact(path=info.key, byte_size=info.size, row_count=len(rows), checksum=checksum))
        draft = ManifestDraft(artifacts=tuple(artifacts), inputs=inputs)
        outcome = chain.publish(draft, run=run, permit=chain.permit(guard))
    assert isinstance(outcome, Committed), outcome
    return outcome


def highest_price(chain: Chain, manifest: Manifest) -> int:
    """What a reader makes of a snapshot."""
    lines = [line for one in manifest.artifacts for line in chain.store.get(one.path).data.splitlines()]
    return max(int(json.loads(line)["price"]) for line in lines)


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
    with chain.reader(lambda manifest: highest_price(chain, manifest)) as reader:
        status = reader.status()
        with reader.borrow() as served:
            note(f"a new reader serves run {served.manifest.run_id}: highest price {served.resource}")
        note(f"it knows: fell_back={status.fell_back}, head is {status.head_id}, served is {status.served_id}")
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
    users, scores = folder / "datasets" / "users", folder / "datasets" / "scores"
    place = str(users)

    say(1, "Publish three snapshots of a key-value data set, each of real files, each by one swap of one pointer.")
    chain = open_chain(place, layout="kv", by="nightly")
    for day, count in enumerate((80, 90, 100), start=1):
        outcome = publish(chain, f"nightly-{day}", range(100, 100 + count))
        note(f"nightly-{day} is visible as {outcome.ref}")
    command("history", place)

    say(2, "Tag a snapshot. The collector will keep it, whatever happens.")
    command("tag", place, "release=stable", "--offset", "2")

    say(3, "A bad publish, and a second data set that is built from it. Its manifest pins the exact input.")
    publish(chain, "nightly-4", range(-20, 80))
    publish(open_chain(str(scores), layout="kv", by="scoring"), "scores-1", range(50), inputs=(chain.pin(),))
    command("diff", place, "@1", "@0")

    say(4, "Roll back. It names everything downstream, found beside it, that was built from what is taken back.")
    command("rollback", place, "--why", "negative prices")

    say(5, "Roll forward: a rollback deletes nothing.")
    command("forward", place, "--why", "just to show it")

    say(6, "A stale writer cannot publish, even if it never noticed that it lost its lock.")
    stale_writer(place)

    say(7, "Readers survive a damaged snapshot, and verify finds it.")
    damage(place, users)

    say(8, "Collect old snapshots: a dry run, then for real, then taken back, then deleted.")
    collection(place)

    say(9, "Verify everything, from the pointer to the bytes.")
    command("verify", place)
    command("history", place)

    print("\nIt is all left in place. Try:\n")
    for words in (
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
