"""Makes the golden files: every record of every layout, as this release writes it, by stories told to a stopped clock.

python -m tests.golden.make v2

A version, once made, is kept for ever: later releases must read it, and the same major must go on writing it byte for
byte. So this refuses to touch a version that exists.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from pathlib import Path

from holdfast.chain import Chain, InputPin, Layout
from holdfast.storage import LocalStore, ObjectStore
from tests.chain.publishing import LAYOUTS, ChainFactory, draft_of, publish_one, sha256

GOLDEN = Path(__file__).parent
LEGACY = b'{\n  "manifest_id": 41,\n  "epoch": 3,\n  "updated_at": "2025-11-02T08:00:00Z",\n  "tables": ["users"]\n}\n'


class GoldenRandomness:
    """Repeats for ever. Each width counts for itself, so that one more wait with jitter changes no id and no token."""

    def __init__(self) -> None:
        self._drawn: Counter[int] = Counter()

    def bits(self, count: int) -> int:
        self._drawn[count] += 1
        digest = hashlib.sha256(f"{count}/{self._drawn[count]}".encode()).digest()
        return int.from_bytes(digest) >> (256 - count)


def tell_story(store: ObjectStore, layout: Layout) -> ChainFactory:
    """A chain's life: pointer, manifests, runs, lock, a segment of the log, mirror and root."""
    factory = ChainFactory(layout=layout, store=store, randomness=GoldenRandomness())
    chain = factory(by="golden@host:1")
    for turn in range(3):
        factory.clock.advance(60)
        _publish(chain, turn)
    failed = chain.begin_run("failed-run")
    draft_of(chain, failed, b"never published")
    failed.fail("the job was cancelled")
    for _ in range(15):  # enough moves that the oldest go into a segment of the log
        factory.clock.advance(1)
        chain.rollback(why="compare")
        chain.forward(why="compared")
    factory.clock.advance(60)
    chain.begin_run("live-run", claims=chain.layout.artifact_prefixes[:1])
    chain.lock(operation="hold", holder="golden@host:2", ttl_s=600)
    return factory


def collect_story(store: ObjectStore, layout: Layout) -> ChainFactory:
    """Tags, a pinned base and a collection. How many moves these take may change; their records may not."""
    factory = ChainFactory(layout=layout, store=store, randomness=GoldenRandomness())
    chain = factory(by="golden@host:1")
    for turn in range(3):
        _publish(chain, turn)
    chain.tag(chain.find(offset=1), {"stage": "released", "reviewed": None})
    failed = chain.begin_run("failed-run")
    draft_of(chain, failed, b"never published")
    failed.fail("the job was cancelled")
    factory.clock.advance(86400)
    chain.collect(retention=1)
    chain.begin_run("live-run", base=chain.load_current())
    return factory


def _publish(chain: Chain, turn: int) -> None:
    upstream = InputPin(chain="s3://lake/users#kv", manifest_id=turn, manifest_hash=sha256(b"upstream"), ref="u")
    publish_one(
        chain,
        {"part-0": b"rows of turn %d\n" % turn, "part-1": b"more of turn %d\n" % turn},
        run_id=f"nightly-{turn}",
        tags={"reviewed": "yes"} if turn == 1 else {},
        counters={"events": 100 * turn},
        payload={"model": {"turn": turn, "name": "größe"}},
        inputs=(upstream,) if turn else (),
        why=f"turn {turn}",
    )


def adopt_story(store: ObjectStore, layout: Layout) -> ChainFactory:
    """A chain that an older release wrote, and what the first publish through a pointer makes of it."""
    assert layout.mirror_key is not None
    store.put_new(layout.mirror_key, LEGACY)
    factory = ChainFactory(layout=layout, store=store, randomness=GoldenRandomness())
    publish_one(factory(by="golden@host:1"), b"first with a pointer", run_id="nightly-0")
    return factory


def make(version: str) -> None:
    """Write one version's folder, or refuse."""
    folder = GOLDEN / version
    if folder.exists():
        sys.exit(f"{folder.name} exists and is kept for ever; a new format gets a new version")
    for name, layout in LAYOUTS.items():
        tell_story(LocalStore(folder / name), layout)
        collect_story(LocalStore(folder / f"{name}-collected"), layout)
        if layout.mirror_key is not None:
            adopt_story(LocalStore(folder / f"{name}-adopted"), layout)


if __name__ == "__main__":
    make(sys.argv[1])
