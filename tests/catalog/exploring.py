"""The explorer on a ledger: appenders as actors, and what must be true after every effect and in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import orjson

from holdfast.catalog import Ledger, Payload, Receipt, Workspace
from holdfast.chain import domain_layout
from holdfast.errors import HoldfastError, IdempotencyConflict, StoreUnavailable
from holdfast.storage import grant
from holdfast.testing.exploration import explorer
from holdfast.testing.exploration.explorer import Run, exhaust, format_schedule, shrink
from holdfast.testing.exploration.invariants import Violation
from holdfast.testing.exploration.scenarios import Stage
from holdfast.testing.exploration.world import JUMP_S, Actor, Objects, Watcher, World
from tests.catalog.auditing import audit, said, told

LAYOUT = domain_layout("catalog")
KEY = "request-7"
_COUNTER = "/locks/catalog.positions.json"


def workspace_of(actor: Actor) -> Workspace:
    assert actor.handle is not None
    handle = actor.handle
    return Workspace(
        root=handle.store, tenant="acme", name="prod", by=actor.name, clock=handle.clock, randomness=handle.randomness
    )


def appending(*names: str, key: str | None = KEY) -> Callable[[Actor], list[Receipt]]:
    """An actor that appends one event after the other, all with the same key if there is one."""

    def program(actor: Actor) -> list[Receipt]:
        rights = grant(workspace_of(actor).store, "api")
        ledger = Ledger(
            "catalog",
            ledger=rights.ledger,
            lock=rights.lock,
            read=rights.read,
            source=actor.name,
            clock=actor.handle.clock if actor.handle is not None else None,
            randomness=actor.handle.randomness if actor.handle is not None else None,
            attempts_max=3,
        )
        return [ledger.append(_event(name), idempotency_key=key) for name in names]

    return program


def _event(name: str) -> Payload:
    return said(name)


class LedgerWatcher(Watcher):
    """Raises in the very step that breaks a rule."""

    truth = None

    def wrote(self, actor: str, key: str, before: bytes | None, after: bytes) -> None:
        if before is not None and "/ledger/" in key:
            raise Violation("C12", f"{actor} replaced {key}")
        if before is not None and key.endswith(_COUNTER):
            old, new = orjson.loads(before), orjson.loads(after)
            if new["next"] <= old["next"] or new["last_id"] <= (old["last_id"] or ""):
                raise Violation("C14", f"{actor} moved the counter down: {old} to {new}")

    def deleted(self, actor: str, key: str, before: bytes | None) -> None:
        raise Violation("C12", f"{actor} deleted {key}")


@dataclass
class LedgerStage(Stage):
    """Actors on a workspace that was just initialized."""

    programs: Mapping[str, tuple[Callable[[Actor], object], float]] = field(default_factory=dict)
    """Name → what it does, and how far its clock is off."""

    def __post_init__(self) -> None:
        world = World(LAYOUT, {}, Watcher())
        workspace_of(world.add("setup", lambda _: None)).initialize()
        self.objects: Objects = dict(world.objects)

    def set_up(self) -> tuple[World, LedgerWatcher]:  # type: ignore[override]
        watcher = LedgerWatcher()
        world = World(LAYOUT, dict(self.objects), watcher, first_number=100)
        for name, (program, skew_s) in self.programs.items():
            world.add(name, program, skew_s=skew_s)
        return world, watcher


def stage_of(**programs: tuple[Callable[[Actor], object], float]) -> LedgerStage:
    return LedgerStage(scenario=None, programs=programs)  # type: ignore[arg-type]


def judge(world: World, truth: object, *, thorough: bool) -> None:
    """What each actor was told is so; whoever was told nothing may ask again, and is told the same as everybody."""
    del truth, thorough
    told_to: dict[str, Receipt] = {}
    for actor in world.actors.values():
        if actor.crashed:
            continue
        if actor.error is not None:
            _judge_error(actor)
        for receipt in actor.result if isinstance(actor.result, list) else []:
            known = told_to.setdefault(receipt.idempotency_key, receipt)
            if (known.event_id, known.position) != (receipt.event_id, receipt.position):
                raise Violation("C13", f"{actor.name} was told {receipt.event_id}, another {known.event_id}")
            if known is not receipt and not (known.duplicate or receipt.duplicate):
                raise Violation("C13", f"{actor.name} was told that it was the first, and so was another")
    store = workspace_of(world.add("auditor", lambda _: None)).store
    events = {str(event["idempotency_key"]): event for event in told(store)}
    if len(events) != len(told(store)):
        raise Violation("C13", "one key has two events")
    for key, receipt in told_to.items():
        if key not in events or events[key]["event_id"] != receipt.event_id:
            raise Violation("C13", f"{receipt.event_id} was acknowledged, and is not in the ledger")
    _ask_again(world, told_to.get(KEY))
    problems = audit(store)
    if problems:
        raise Violation("C14", problems[0])


def _ask_again(world: World, known: Receipt | None) -> None:
    """Whoever appends with the same key now finds what the others were told, or finishes what they left."""
    late = world.add("latecomer", lambda _: None, skew_s=-JUMP_S)
    try:
        (receipt,) = appending("sales")(late)
    except IdempotencyConflict:
        return  # the key stands for another event; that one is there, or was never acknowledged
    if known is not None and known.event_id != receipt.event_id:
        raise Violation("C13", f"a latecomer was told {receipt.event_id}, another {known.event_id}")
    if receipt.event_id not in {str(event["event_id"]) for event in told(workspace_of(late).store)}:
        raise Violation("C13", f"{receipt.event_id} was acknowledged, and is not in the ledger")


def _judge_error(actor: Actor) -> None:
    if not isinstance(actor.error, HoldfastError):
        raise Violation("C13", f"{actor.name} failed with {actor.error!r}") from actor.error
    if isinstance(actor.error, IdempotencyConflict):
        return
    if not (isinstance(actor.error, StoreUnavailable) and actor.disturbed):
        raise Violation("C13", f"{actor.name} failed with {actor.error!r}, though the store answered") from actor.error


@contextmanager
def judged() -> Iterator[None]:
    """Within this block the explorer judges ledgers."""
    with patch.object(explorer, "judge", judge):
        yield


def explored(stage: LedgerStage, *, preemptions: int, faults: int) -> int:
    """Play every schedule up to the bound; the number of them, or the shortest one that breaks a rule."""
    played = 0
    with judged():
        for run in exhaust(stage, preemptions=preemptions, faults=faults):
            played += 1
            assert run.violation is None, explain(stage, run)
    return played


def explain(stage: LedgerStage, run: Run) -> str:
    small = shrink(stage, run)
    return f"{small.violation}: {format_schedule(small.deviations)}"
