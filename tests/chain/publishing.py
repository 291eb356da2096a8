"""What every test of the kernel does: open a chain, write real artifacts, publish them, break things."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import orjson

from holdfast.chain import (
    Artifact,
    Break,
    Chain,
    Committed,
    InputPin,
    Layout,
    Manifest,
    ManifestDraft,
    Outcome,
    Run,
    chain_on,
    domain_layout,
    graph_layout,
    kv_layout,
    orchestration_layout,
)
from holdfast.clock import Clock, Randomness
from holdfast.fencing import LockGuard
from holdfast.storage import MemoryStore, ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock

LAYOUTS: Mapping[str, Layout] = {
    "domain": domain_layout("catalog"),
    "orchestration": orchestration_layout(),
    "kv": kv_layout(),
    "graph": graph_layout(),
}


@dataclass(kw_only=True)
class ChainFactory:
    """Opens handles on one chain, all with the same clock; each call is another writer, as another process would be."""

    layout: Layout = field(default_factory=kv_layout)
    store: ObjectStore = field(default_factory=MemoryStore)
    clock: VirtualClock = field(default_factory=VirtualClock)
    randomness: Randomness = field(default_factory=SeededRandomness)
    damaged: bool = False

    def __call__(
        self,
        *,
        by: str = "writer",
        store: ObjectStore | None = None,
        layout: Layout | None = None,
        clock: Clock | None = None,
        attempts_max: int = 8,
    ) -> Chain:
        """A chain, through `store` where a test wraps it (faults, counts) and directly otherwise."""
        opened = chain_on(
            store or self.store, layout or self.layout, by=by, clock=clock or self.clock, randomness=self.randomness
        )
        return Chain(replace(opened.handle, attempts_max=attempts_max), by=by)

    def expect_damage(self) -> None:
        """Say that this test breaks the chain on purpose: the fixture then does not end with `verify`."""
        self.damaged = True

    def breaks(self) -> list[Break]:
        """What `verify` finds, asked of the store itself."""
        return self().verify()


@contextmanager
def verified_factory(layout: Layout, store: ObjectStore) -> Iterator[ChainFactory]:
    """A factory whose chain must be whole in the end. For Hypothesis tests, which need a new one for every example."""
    factory = ChainFactory(layout=layout, store=store)
    yield factory
    if not factory.damaged:
        assert factory.breaks() == []


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write_artifact(chain: Chain, run: Run, name: str = "part-0", data: bytes = b"rows", *, rows: int = 1) -> Artifact:
    """Put one real file where the run may write, and describe it truly."""
    key = run.artifact_key(name)
    chain.store.upload(key, [data])
    kind = next(iter(chain.layout.names.lists))
    return Artifact(path=key, byte_size=len(data), row_count=rows, checksum=sha256(data), kind=kind)


def draft_of(
    chain: Chain,
    run: Run,
    content: bytes | Mapping[str, bytes] = b"rows",
    *,
    base: Manifest | None = None,
    tags: Mapping[str, str] | None = None,
    counters: Mapping[str, int] | None = None,
    payload: Mapping[str, object] | None = None,
    inputs: tuple[InputPin, ...] = (),
) -> ManifestDraft:
    """Write the content, one artifact a name, and draft a manifest of it, on top of what `base` has."""
    files = {"part-0": content} if isinstance(content, bytes) else content
    written = tuple(write_artifact(chain, run, name, data) for name, data in files.items())
    return ManifestDraft(
        artifacts=(() if base is None else base.artifacts) + written,
        inputs=inputs,
        counters=counters or {},
        tags=tags or {},
        payload=payload or {},
    )


def try_publish(
    chain: Chain,
    content: bytes | Mapping[str, bytes] = b"rows",
    *,
    guard: LockGuard | None = None,
    run_id: str | None = None,
    base: Manifest | None = None,
    tags: Mapping[str, str] | None = None,
    counters: Mapping[str, int] | None = None,
    payload: Mapping[str, object] | None = None,
    inputs: tuple[InputPin, ...] = (),
    why: str = "",
    rebase: bool = False,
) -> Outcome:
    """Lock (unless a guard is given), begin a run, write, publish, release; the outcome as the writer is told it."""
    held = guard or chain.lock(operation="test")
    try:
        run = chain.begin_run(run_id, base=base)
        draft = draft_of(chain, run, content, base=base, tags=tags, counters=counters, payload=payload, inputs=inputs)
        return chain.publish(draft, run=run, permit=chain.permit(held), why=why, base=base, rebase=rebase)
    finally:
        if guard is None:
            held.release()


def publish_one(
    chain: Chain,
    content: bytes | Mapping[str, bytes] = b"rows",
    *,
    guard: LockGuard | None = None,
    run_id: str | None = None,
    base: Manifest | None = None,
    tags: Mapping[str, str] | None = None,
    counters: Mapping[str, int] | None = None,
    payload: Mapping[str, object] | None = None,
    inputs: tuple[InputPin, ...] = (),
    why: str = "",
) -> Committed:
    """A publish that must succeed."""
    outcome = try_publish(
        chain,
        content,
        guard=guard,
        run_id=run_id,
        base=base,
        tags=tags,
        counters=counters,
        payload=payload,
        inputs=inputs,
        why=why,
    )
    assert isinstance(outcome, Committed), outcome
    return outcome


def contents(chain: Chain) -> dict[str, bytes]:
    """What a reader sees: the bytes of every artifact of the visible snapshot, by file name."""
    manifest = chain.load_current()
    if manifest is None:
        return {}
    return {each.path.rpartition("/")[2]: chain.store.get(each.path).data for each in manifest.artifacts}


def overwrite(store: ObjectStore, key: str, data: bytes) -> None:
    """Damage: replace an object's bytes behind Holdfast's back."""
    store.swap(key, data, expected=store.get(key).version)


def edit(store: ObjectStore, key: str, **changes: object) -> None:
    """Damage: change fields of a stored record; a value of `...` removes one."""
    record = orjson.loads(store.get(key).data) | changes
    overwrite(store, key, orjson.dumps({name: value for name, value in record.items() if value is not ...}))


def keys_below(store: ObjectStore, prefix: str = "") -> list[str]:
    """Every key of a folder."""
    return [info.key for page in store.list(prefix) for info in page]


def everything(store: ObjectStore) -> dict[str, bytes]:
    """All objects of a store, to compare before with after."""
    return {key: store.get(key).data for key in keys_below(store)}
