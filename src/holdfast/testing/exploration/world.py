"""A world in which several actors run the real kernel code, one store operation at a time.

Each actor is a greenlet. Its store hands control back before every operation; the scheduler then says who goes on, and
what happens to the operation: it passes, or it fails before or after its effect, or comes back as a conflict with
itself, or takes effect only later, or the actor dies, or everybody's clock jumps past every lease first. Nothing else
happens in between, so a run is decided by the list of those choices alone and can be replayed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial

import greenlet

from holdfast.chain.handle import ChainHandle
from holdfast.chain.layout import Layout
from holdfast.errors import AlreadyExists, ObjectNotFound, StoreUnavailable, VersionConflict
from holdfast.storage.objects import AsyncObjectReader, ObjectInfo, StoredObject, Version
from holdfast.testing.faulty import Crashed

__all__ = ["Actor", "Choice", "Happening", "Operation", "Watcher", "World"]

START = datetime(2026, 1, 1, tzinfo=UTC)
JUMP_S = 10_000.0
"""Past every lease and lock of the scenarios."""

Objects = dict[str, tuple[bytes, int]]


class Happening(StrEnum):
    """What the scheduler lets happen to one operation."""

    PASS = "pass"
    CRASH = "crash"
    """The actor dies before it. (Dying after it is dying before the next.)"""
    ERROR_BEFORE = "error before"
    ERROR_AFTER = "lost response"
    ECHO = "echo"
    """It takes effect, and is reported as a conflict with itself."""
    LATE = "late"
    """It is reported as failed and takes effect later, whenever the scheduler delivers it, if its condition still
    holds."""
    JUMP = "jump"
    """Every clock goes forward past every lease, then it passes."""


ON_READS = (Happening.CRASH, Happening.ERROR_BEFORE, Happening.JUMP)
ON_WRITES = (
    Happening.CRASH,
    Happening.ERROR_BEFORE,
    Happening.ERROR_AFTER,
    Happening.ECHO,
    Happening.LATE,
    Happening.JUMP,
)
ON_DELETES = (Happening.CRASH, Happening.ERROR_BEFORE, Happening.ERROR_AFTER)

NETWORK = "network"
"""Who delivers late operations."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One step of a schedule: who goes on, and what happens."""

    actor: str
    happening: Happening = Happening.PASS

    def __str__(self) -> str:
        return self.actor if self.happening is Happening.PASS else f"{self.actor}!{self.happening.value}"


@dataclass(slots=True)
class Operation:
    """A store operation that an actor is about to make."""

    kind: str
    key: str
    effect: Callable[[], object]

    @property
    def happenings(self) -> tuple[Happening, ...]:
        if self.kind in {"put_new", "swap"}:
            return ON_WRITES
        return ON_DELETES if self.kind == "delete" else ON_READS


class Watcher:
    """Sees every effect on the store, at once. `holdfast.testing.exploration.invariants` is one."""

    def wrote(self, actor: str, key: str, before: bytes | None, after: bytes) -> None:
        """An object was created or replaced."""

    def deleted(self, actor: str, key: str, before: bytes | None) -> None:
        """An object was deleted."""


class ActorClock:
    """The world's time with an actor's own skew. Sleeping takes no time: the scheduler decides who goes on anyway."""

    __slots__ = ("_skew", "_world")

    def __init__(self, world: World, skew_s: float) -> None:
        self._world = world
        self._skew = timedelta(seconds=skew_s)

    def now(self) -> datetime:
        return self._world.now + self._skew

    def sleep(self, seconds: float) -> None:
        del seconds


class ActorRandomness:
    """Unique per actor, and the same in every run: it depends on nothing but what the actor has drawn before."""

    __slots__ = ("_drawn", "_number")

    def __init__(self, number: int) -> None:
        self._number = number
        self._drawn = 0

    def bits(self, count: int) -> int:
        self._drawn += 1
        return (((self._number << 16) | self._drawn) * 0x9E3779B97F4A7C15) % (1 << count)


class ActorStore:
    """The world's objects as one actor reaches them: every call is one turn."""

    conditional_writes_trusted = True
    url = "explored://world"

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    def _turn(self, kind: str, key: str, effect: Callable[[], object]) -> object:
        return self._world.turn(self._actor, Operation(kind, key, effect))

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        del durable
        world, name = self._world, self._actor.name
        result = self._turn("put_new", key, lambda: world.do_put_new(name, key, data))
        return Version(str(result))

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        del durable
        world, name = self._world, self._actor.name
        result = self._turn("swap", key, lambda: world.do_swap(name, key, data, expected))
        return Version(str(result))

    def get(self, key: str) -> StoredObject:
        found = self._turn("get", key, lambda: self._world.do_get(key))
        assert isinstance(found, StoredObject)
        return found

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        found = self._turn("get", key, lambda: self._world.do_get(key))
        assert isinstance(found, StoredObject)
        return None if found.version == known else found

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key).data[start : start + length]

    def head(self, key: str) -> ObjectInfo:
        info = self.head_many([key])[0]
        if info is None:
            raise ObjectNotFound(key)
        return info

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        if not keys:
            return []
        found = self._turn("head", keys[0], lambda: self._world.do_heads(keys))
        assert isinstance(found, list)
        return found

    def list_folders(self, prefix: str) -> list[str]:
        inside = f"{prefix}/"
        return sorted({key[len(inside) :].partition("/")[0] for key in self._world.objects if key.startswith(inside)})

    def list(self, prefix: str, *, after: str | None = None, page_size: int = 1000) -> Iterator[list[ObjectInfo]]:
        del page_size
        found = self._turn("list", prefix, lambda: self._world.do_list(prefix, after))
        assert isinstance(found, list)
        yield found

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._turn("delete", key, partial(self._world.do_delete, self._actor.name, key))

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        self.put_new(key, b"".join(chunks))
        return self.head(key)

    def as_async(self) -> AsyncObjectReader:
        raise TypeError("actors are synchronous")


class Actor:
    """One participant: a name, a program, a skewed clock."""

    def __init__(self, name: str, program: Callable[[Actor], object], *, number: int, skew_s: float) -> None:
        self.name = name
        self.number = number
        self.skew_s = skew_s
        self.pending: Operation | None = None
        self.result: object = None
        self.error: BaseException | None = None
        self.crashed = False
        self.disturbed = False
        """Whether any fault was injected into it."""
        self.steps = 0
        self._program = program
        self.greenlet: greenlet.greenlet | None = None
        self.handle: ChainHandle | None = None

    @property
    def done(self) -> bool:
        return self.greenlet is not None and self.greenlet.dead

    def run(self) -> None:
        try:
            self.result = self._program(self)
        except Crashed:
            self.crashed = True
        except Exception as error:  # noqa: BLE001 - whatever it was, the judge looks at it
            self.error = error


class World:
    """The objects, the time, the actors, and whoever watches."""

    def __init__(self, layout: Layout, objects: Objects, watcher: Watcher, *, first_number: int = 1) -> None:
        self.layout = layout
        self._next_number = first_number  # what actors draw must differ from what made the objects
        self.objects = objects
        self.watcher = watcher
        self.now = START
        self.actors: dict[str, Actor] = {}
        self.late: list[tuple[str, Operation]] = []
        self._scheduler: greenlet.greenlet | None = None
        self._versions = max((version for _, version in objects.values()), default=0)

    def add(self, name: str, program: Callable[[Actor], object], *, skew_s: float = 0.0) -> Actor:
        actor = Actor(name, program, number=self._next_number, skew_s=skew_s)
        self._next_number += 1
        store = ActorStore(self, actor)
        actor.handle = ChainHandle(
            layout=self.layout,
            store=store,
            records=store,
            clock=ActorClock(self, skew_s),
            randomness=ActorRandomness(actor.number),
            attempts_max=3,
        )
        self.actors[name] = actor
        return actor

    # -- turns -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring every actor to its first operation."""
        self._scheduler = greenlet.getcurrent()
        for actor in self.actors.values():
            actor.greenlet = greenlet.greenlet(actor.run)
            actor.greenlet.switch()

    def turn(self, actor: Actor, operation: Operation) -> object:
        """Called in the actor's greenlet: wait for the scheduler, then let happen what it says."""
        if self._scheduler is None or greenlet.getcurrent() is self._scheduler:
            return operation.effect()  # setting up, or looking at the end: nobody else is there
        actor.pending = operation
        happening = self._scheduler.switch()
        actor.pending = None
        actor.steps += 1
        if happening is Happening.PASS:
            return operation.effect()
        if happening is Happening.JUMP:
            self.now += timedelta(seconds=JUMP_S)
            return operation.effect()
        actor.disturbed = True
        if happening is Happening.CRASH:
            raise Crashed
        if happening is Happening.LATE:
            self.late.append((actor.name, operation))
        elif happening is not Happening.ERROR_BEFORE:
            operation.effect()
            if happening is Happening.ECHO:
                raise AlreadyExists(operation.key) if operation.kind == "put_new" else VersionConflict(operation.key)
        raise StoreUnavailable(f"{happening.value} at {operation.kind} {operation.key}")

    def runnable(self) -> list[str]:
        names = [name for name, actor in self.actors.items() if actor.pending is not None]
        return [*names, NETWORK] if self.late else names

    def resume(self, choice: Choice) -> None:
        """One step."""
        if choice.actor == NETWORK:
            self.deliver()
            return
        actor = self.actors[choice.actor]
        assert actor.greenlet is not None
        actor.greenlet.switch(choice.happening)

    def deliver(self) -> None:
        """Let the oldest late operation take effect, if its condition still holds."""
        _, operation = self.late.pop(0)
        with suppress(AlreadyExists, VersionConflict):
            operation.effect()

    def stop(self) -> None:
        """End what is still waiting, so that greenlets do not pile up."""
        for actor in self.actors.values():
            if actor.greenlet is not None and not actor.greenlet.dead:
                actor.greenlet.throw(Crashed)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _put(self, actor: str, key: str, data: bytes) -> int:
        before = self.objects.get(key)
        self._versions += 1
        self.objects[key] = (data, self._versions)
        self.watcher.wrote(actor, key, None if before is None else before[0], data)
        return self._versions

    def do_put_new(self, actor: str, key: str, data: bytes) -> int:
        if key in self.objects:
            raise AlreadyExists(key)
        return self._put(actor, key, data)

    def do_swap(self, actor: str, key: str, data: bytes, expected: Version) -> int:
        found = self.objects.get(key)
        if found is None or str(found[1]) != expected:
            raise VersionConflict(key)
        return self._put(actor, key, data)

    def do_get(self, key: str) -> StoredObject:
        found = self.objects.get(key)
        if found is None:
            raise ObjectNotFound(key)
        return StoredObject(key=key, data=found[0], version=Version(str(found[1])))

    def do_heads(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        return [self._info(key) if key in self.objects else None for key in keys]

    def _info(self, key: str) -> ObjectInfo:
        data, version = self.objects[key]
        return ObjectInfo(key=key, size=len(data), version=Version(str(version)), modified_at=self.now)

    def do_list(self, prefix: str, after: str | None) -> list[ObjectInfo]:
        inside = f"{prefix}/"
        return [
            self._info(key) for key in sorted(self.objects) if key.startswith(inside) and (after is None or key > after)
        ]

    def do_delete(self, actor: str, key: str) -> None:
        found = self.objects.pop(key, None)
        self.watcher.deleted(actor, key, None if found is None else found[0])
