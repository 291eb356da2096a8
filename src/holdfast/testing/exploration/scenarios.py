"""Scenarios: who takes part, in which chain, and what must be true of what each of them was told (I8, I9).

Every scenario starts from a chain with three snapshots, made by the real kernel. Leases and locks are 100 s long; an
actor whose clock is ahead takes every lock for expired and every run for abandoned, which is what makes the races
happen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.chain.chain import Chain
from holdfast.chain.commit import Committed, Superseded, Unknown
from holdfast.chain.handle import ChainHandle
from holdfast.chain.layout import Layout, domain_layout, graph_layout, kv_layout
from holdfast.chain.manifest import Artifact, Manifest, ManifestDraft
from holdfast.chain.parts import describe_part, encode_part
from holdfast.chain.pointer import MoveKind
from holdfast.chain.verdict import Verdict, VerdictKind
from holdfast.chain.verify import verify_chain
from holdfast.errors import HoldfastError
from holdfast.testing.exploration.invariants import InvariantWatcher, Truth, Violation, truth_of
from holdfast.testing.exploration.world import JUMP_S, Actor, Objects, Watcher, World

__all__ = ["SCENARIOS", "Scenario", "Stage", "judge"]

TTL_S = 100.0
AHEAD_S = 2 * TTL_S

Program = Callable[[Actor], object]


@dataclass(frozen=True, kw_only=True)
class Role:
    """One actor of a scenario."""

    program: Program
    skew_s: float = 0.0
    collects: bool = False


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Who takes part, on which layout."""

    name: str
    layout: Layout
    roles: Mapping[str, Role]


@dataclass(frozen=True, slots=True)
class Observed:
    """What a reader was served, in order."""

    served: tuple[int, ...]


# -- what the actors do ------------------------------------------------------------------------------------------------


def _handle(actor: Actor) -> ChainHandle:
    assert actor.handle is not None
    return actor.handle


def _artifact(chain: Chain, path: str, data: bytes) -> Artifact:
    kind = next(iter(chain.layout.names.lists))
    digest = hashlib.sha256(data).hexdigest()
    return Artifact(path=path, byte_size=len(data), row_count=1, checksum=f"sha256:{digest}", kind=kind)


def publish(actor: Actor) -> object:
    """Lock, register, write, publish: a whole build."""
    return _publish(actor, base=None)


def publish_on_base(actor: Actor) -> object:
    """An incremental build, which shares what is visible when it begins."""
    chain = Chain(_handle(actor), by=actor.name)
    return _publish(actor, base=chain.load_current())


def publish_in_a_part(actor: Actor) -> object:
    """The same, with everything that is shared and the new file named by a part, and nothing by the manifest itself."""
    chain = Chain(_handle(actor), by=actor.name)
    return _publish(actor, base=chain.load_current(), in_a_part=True)


def _publish(actor: Actor, *, base: Manifest | None, in_a_part: bool = False) -> object:
    chain = Chain(_handle(actor), by=actor.name)
    guard = chain.lock(ttl_s=TTL_S)
    run = chain.begin_run(actor.name, base=base, lease_s=TTL_S)
    data = actor.name.encode()
    path = run.artifact_key("part")
    chain.store.put_new(path, data)
    shared = () if base is None else base.artifacts
    artifacts = (*shared, _artifact(chain, path, data))
    if in_a_part:
        listed = encode_part(artifacts, chain.layout.names)
        part = describe_part(run.artifact_key("list"), listed, artifacts)
        chain.store.put_new(part.path, listed)
        artifacts = (part,)
    draft = ManifestDraft(artifacts=artifacts)
    return chain.publish(draft, run=run, permit=chain.permit(guard), base=base)


def roll_back(actor: Actor) -> object:
    return Chain(_handle(actor), by=actor.name).rollback()


def tag(actor: Actor) -> object:
    """Tag the snapshot before the newest, which the collector is about to take."""
    chain = Chain(_handle(actor), by=actor.name)
    target = chain.find(offset=1)
    chain.tag(target, {"keep": actor.name})
    return target.target_id


def collect(actor: Actor) -> object:
    """Keep one snapshot, and delete the rest at once: no grace period helps here."""
    chain = Chain(_handle(actor), by=actor.name)
    chain.collect(retention=1)
    return chain.purge(grace_s=0)


def collect_only(actor: Actor) -> object:
    return Chain(_handle(actor), by=actor.name).collect(retention=1)


def collect_and_restore(actor: Actor) -> object:
    chain = Chain(_handle(actor), by=actor.name)
    plan = chain.collect(retention=1)
    return None if plan.collection is None else chain.restore(plan.collection)


def read(actor: Actor) -> object:
    """Open, and refresh twice."""
    served: list[int] = []

    def look(manifest: Manifest) -> Manifest:
        return manifest

    with Chain(_handle(actor), by=actor.name).reader(look, max_fallback_attempts=0) as reader:
        for _ in range(3):
            with reader.borrow() as borrowed:
                served.append(borrowed.manifest.manifest_id)
            reader.refresh()
    return Observed(tuple(served))


def settle(actor: Actor) -> object:
    """Ask for the verdict on the commit of the newest manifest anybody has written, for good."""
    chain = Chain(_handle(actor), by=actor.name)
    keys = [info.key for page in chain.handle.records.list(chain.layout.manifest_prefix) for info in page]
    newest = max(keys)
    manifest = Manifest.decode(chain.handle.records.get(newest).data, key=newest, names=chain.layout.names)
    return chain.status(manifest.commit_ulid, settle=True)


def repair(actor: Actor) -> object:
    return Chain(_handle(actor), by=actor.name).reconcile(enforce=True)


# -- the stage ---------------------------------------------------------------------------------------------------------


class _Recorder(Watcher):
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.pointers: list[bytes] = []

    def wrote(self, actor: str, key: str, before: bytes | None, after: bytes) -> None:
        del actor, before
        if key == self._layout.pointer_key:
            self.pointers.append(after)


@dataclass
class Stage:
    """A scenario prepared once, and set up again for every run."""

    scenario: Scenario
    objects: Objects = field(default_factory=dict)
    truth: Truth = field(default_factory=Truth)

    def __post_init__(self) -> None:
        layout = self.scenario.layout
        recorder = _Recorder(layout)
        world = World(layout, {}, recorder)
        for number in range(3):
            outcome = publish(world.add(f"setup-{number}", publish, skew_s=number * JUMP_S - 10 * JUMP_S))
            assert isinstance(outcome, Committed)
        self.objects = dict(world.objects)
        self.truth = truth_of(layout, self.objects, recorder.pointers)

    def set_up(self) -> tuple[World, InvariantWatcher]:
        objects = dict(self.objects)
        collectors = frozenset(name for name, role in self.scenario.roles.items() if role.collects)
        watcher = InvariantWatcher(self.scenario.layout, objects, self.truth.copy(), collectors)
        world = World(self.scenario.layout, objects, watcher, first_number=100)
        for name, role in self.scenario.roles.items():
            world.add(name, role.program, skew_s=role.skew_s)
        return world, watcher


# -- what must be true at the end --------------------------------------------------------------------------------------


def judge(world: World, truth: Truth, *, thorough: bool) -> None:
    """Compare what each actor was told with what happened; `thorough` also verifies the chain and lets the next
    writer go on."""
    for actor in world.actors.values():
        _judge_actor(actor, truth)
    if thorough:
        _judge_chain(world)


def _judge_actor(actor: Actor, truth: Truth) -> None:
    if actor.crashed:
        return
    published = {move.commit_ulid for move in truth.log if move.kind is MoveKind.PUBLISH}
    if actor.error is not None and not isinstance(actor.error, HoldfastError):
        raise Violation("I8", f"{actor.name} failed with {actor.error!r}") from actor.error
    match actor.result:
        case Committed(commit_ulid=ulid) if ulid not in published:
            raise Violation("I8", f"{actor.name} was told committed, and is not in the log")
        case Superseded(commit_ulid=ulid) if ulid in published:
            raise Violation("I8", f"{actor.name} was told superseded, and is in the log")
        case Unknown() if not actor.disturbed:
            raise Violation("I8", f"{actor.name} was told unknown, though the store always answered")
        case None if actor.error is not None and any(
            move.run_id == actor.name and move.by == actor.name and move.kind is MoveKind.PUBLISH for move in truth.log
        ):
            raise Violation("I8", f"{actor.name} failed with {actor.error!r}, but was published")
        case int(tagged) if truth.pointer is not None and tagged in truth.pointer.collected:
            raise Violation("I6", f"{actor.name} was told that snapshot {tagged} is tagged, but it was collected")
        case Observed(served):
            _judge_served(actor, served, truth)
        case Verdict(kind=kind, commit_ulid=ulid):
            if (ulid in {move.commit_ulid for move in truth.log}) != (kind is VerdictKind.COMMITTED):
                raise Violation("I8", f"{actor.name} was told {kind.value} about {ulid}, which is not so")
        case _:
            pass  # it was told nothing that could be wrong


def _judge_served(actor: Actor, served: tuple[int, ...], truth: Truth) -> None:
    """Each served snapshot was visible, and the order is one in which the pointer really was there (I9)."""
    targets = [move.target_id for move in truth.log]
    position = 0
    for manifest_id in served:
        if manifest_id not in targets[position:]:
            raise Violation("I9", f"{actor.name} was served {served}, but the pointer went {targets}")
        position = targets.index(manifest_id, position)


def _judge_chain(world: World) -> None:
    """`verify` finds nothing once `reconcile` has repaired what crashes left, and the next writer goes on."""
    auditor = world.add("auditor", publish, skew_s=3 * JUMP_S)
    handle = _handle(auditor)
    try:
        Chain(handle, by="auditor").reconcile(enforce=True)
        breaks = verify_chain(handle)
        outcome = publish(auditor)
        breaks += verify_chain(handle)
    except HoldfastError as error:
        raise Violation("S21", f"the next writer could not go on: {error!r}") from error
    if breaks:
        raise Violation("S38", f"verify found: {breaks[0]}")
    if not isinstance(outcome, Committed):
        raise Violation("S21", f"the next writer could not go on: {outcome}")


# -- the scenarios -----------------------------------------------------------------------------------------------------

_WRITER = Role(program=publish)
_TAKEOVER = Role(program=publish, skew_s=AHEAD_S)
_SWEEPER = Role(program=collect, skew_s=AHEAD_S, collects=True)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="two-publishers", layout=kv_layout(), roles={"p1": _WRITER, "p2": _TAKEOVER}),
        Scenario(
            name="two-publishers-on-base",
            layout=graph_layout(),
            roles={"p1": Role(program=publish_on_base), "p2": Role(program=publish_on_base, skew_s=AHEAD_S)},
        ),
        Scenario(name="publish-collect", layout=kv_layout(), roles={"p1": _WRITER, "gc": _SWEEPER}),
        Scenario(
            name="publish-rollback-collect",
            layout=graph_layout(),
            roles={"p1": _WRITER, "undo": Role(program=roll_back), "gc": _SWEEPER},
        ),
        Scenario(name="rollback-collect", layout=kv_layout(), roles={"undo": Role(program=roll_back), "gc": _SWEEPER}),
        Scenario(name="tag-collect", layout=kv_layout(), roles={"tag": Role(program=tag), "gc": _SWEEPER}),
        Scenario(
            name="base-collect",
            layout=graph_layout(),
            roles={"p1": Role(program=publish_on_base), "gc": Role(program=collect, skew_s=TTL_S / 2, collects=True)},
        ),
        Scenario(
            name="parts-collect",
            layout=graph_layout(),
            roles={"p1": Role(program=publish_in_a_part), "gc": Role(program=collect, skew_s=TTL_S / 2, collects=True)},
        ),
        Scenario(
            name="two-collectors",
            layout=kv_layout(),
            roles={
                "p1": _WRITER,
                "gc": _SWEEPER,
                "gc2": Role(program=collect_and_restore, skew_s=AHEAD_S, collects=True),
            },
        ),
        Scenario(
            name="domain-mirror",
            layout=domain_layout("catalog"),
            roles={"p1": _WRITER, "p2": _TAKEOVER, "undo": Role(program=roll_back)},
        ),
        Scenario(
            name="settle",
            layout=graph_layout(),
            roles={"p1": _WRITER, "settle": Role(program=settle), "fix": Role(program=repair)},
        ),
        Scenario(
            name="everybody",
            layout=kv_layout(),
            roles={
                "p1": _WRITER,
                "p2": _TAKEOVER,
                "undo": Role(program=roll_back),
                "gc": _SWEEPER,
                "tag": Role(program=tag),
                "reader": Role(program=read),
            },
        ),
    )
}
