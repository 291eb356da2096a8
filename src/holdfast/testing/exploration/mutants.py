"""Kernels with one mistake each. The explorer must catch every one of them, or it proves nothing about the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from holdfast.chain import collect as collect_module
from holdfast.chain import commit as commit_module
from holdfast.chain import successor as successor_module
from holdfast.chain import tags as tags_module
from holdfast.chain.collect import CollectionPlan
from holdfast.chain.commit import Landed, Undecided
from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.listed import Listed
from holdfast.chain.parts import PartReader
from holdfast.chain.pointer import Pointer
from holdfast.chain.runs import Run, RunRecord
from holdfast.chain.survey import Fate, survey_chain
from holdfast.errors import HoldfastError
from holdfast.storage.objects import Version
from holdfast.testing.exploration.world import ActorStore

__all__ = ["MUTANTS"]


@contextmanager
def drop_the_precondition() -> Iterator[None]:
    """The pointer is overwritten whatever is there."""
    real = ActorStore.swap

    def blind(self: ActorStore, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        world = self._world
        if key == world.layout.pointer_key:
            expected = Version(str(world.objects[key][1]))
        return real(self, key, data, expected=expected, durable=durable)

    with patch.object(ActorStore, "swap", blind):
        yield


@contextmanager
def skip_the_fence() -> Iterator[None]:
    """The collector sweeps and deletes at once, without writing the pointer in between."""

    def unfenced(handle: ChainHandle, *, retention: int, by: str) -> CollectionPlan:
        del by
        survey = survey_chain(handle)
        plan = collect_module._plan(handle, survey, collect_module.sweep(handle, survey), retention=retention)
        handle.store.delete([item.key for item in plan.condemned if item.last_id is None])
        return plan

    with patch.object(collect_module, "collect", unfenced):
        yield


@contextmanager
def reuse_an_id() -> Iterator[None]:
    """The next id is counted from what is visible instead of from what was ever used."""
    real = successor_module.write_manifest

    def from_visible(handle: ChainHandle, draft: object, *, seen: SeenPointer | None, **others: object) -> object:
        if seen is not None:
            pointer = seen.pointer
            lowered = {name: getattr(pointer, name) for name in Pointer.__dataclass_fields__}
            lowered["high_water_id"] = pointer.manifest_id
            seen = SeenPointer(pointer=Pointer(**lowered), version=seen.version)
        return real(handle, draft, seen=seen, **others)  # type: ignore[arg-type]

    with patch.object(commit_module, "write_manifest", from_visible):
        yield


@contextmanager
def collect_by_age_only() -> Iterator[None]:
    """A run is abandoned when its lease is over, whatever the log says, and nobody tells its writer."""

    def by_age(handle: ChainHandle, record: RunRecord, published: object) -> Fate:
        del published
        return Fate.LIVE if record.lease_expires_at > handle.clock.now() else Fate.ABANDONED

    def tell_nobody(handle: ChainHandle, survey: object) -> dict[str, Fate]:
        return {record.run_id: by_age(handle, record, ()) for record, _ in survey.runs}  # type: ignore[attr-defined]

    with patch.object(collect_module, "fate_of", by_age), patch.object(collect_module, "sweep", tell_nobody):
        yield


@contextmanager
def trust_the_first_error() -> Iterator[None]:
    """An error of the pointer swap is taken for a failure, without looking."""
    real = commit_module.move_pointer

    def trusting(handle: ChainHandle, seen: SeenPointer | None, pointer: Pointer) -> object:
        once = _with_attempts(handle, 1)
        outcome = real(once, seen, pointer)
        if isinstance(outcome, Landed) and outcome.seen.pointer is pointer:
            return outcome
        if isinstance(outcome, (Landed, Undecided)):
            raise HoldfastError("the store said no")
        return outcome

    with patch.object(commit_module, "move_pointer", trusting):
        yield


def _with_attempts(handle: ChainHandle, attempts_max: int) -> ChainHandle:
    fields = {name: getattr(handle, name) for name in ChainHandle.__dataclass_fields__}
    return ChainHandle(**(fields | {"attempts_max": attempts_max}))


@contextmanager
def skip_the_run_record() -> Iterator[None]:
    """A publisher does not look whether it was declared abandoned."""

    def unchecked(self: Run) -> None:
        del self

    with patch.object(Run, "require_writing", unchecked):
        yield


@contextmanager
def ignore_the_epoch() -> Iterator[None]:
    """A matching version is taken for the right to publish."""

    def unchecked(seen: SeenPointer | None, token: int) -> None:
        del seen, token

    def lenient(previous: Pointer | None, manifest: object) -> list[str]:
        del previous, manifest
        return []

    with (
        patch.object(commit_module, "_require_fresh", unchecked),
        patch.object(successor_module, "succession_problems", lenient),
    ):
        yield


@contextmanager
def tag_without_touching() -> Iterator[None]:
    """A tag is written, and the pointer only looked at."""

    def only_look(handle: ChainHandle, manifest_id: int, *, by: str, why: str) -> SeenPointer | None:
        del manifest_id, by, why
        return handle.read_pointer()

    with patch.object(tags_module, "protect", only_look):
        yield


@contextmanager
def overlook_parts() -> Iterator[None]:
    """The collector sees what a manifest lists, and not what its parts list."""

    def only_listed(self: PartReader, listed: Listed) -> dict[str, Mapping[str, int]]:
        del self
        return {path: {} for path in listed.sizes}

    with patch.object(PartReader, "named_by", only_listed):
        yield


MUTANTS: dict[str, tuple[Callable[[], AbstractContextManager[None]], tuple[str, ...]]] = {
    "drop the precondition": (drop_the_precondition, ("two-publishers",)),
    "skip the fence": (skip_the_fence, ("publish-collect",)),
    "reuse an id": (reuse_an_id, ("publish-rollback-collect",)),
    "collect by age only": (collect_by_age_only, ("publish-collect",)),
    "trust the first error": (trust_the_first_error, ("two-publishers",)),
    "skip the run record": (skip_the_run_record, ("publish-collect",)),
    "ignore the epoch": (ignore_the_epoch, ("two-publishers-on-base",)),
    "tag without touching the pointer": (tag_without_touching, ("tag-collect",)),
    "overlook parts": (overlook_parts, ("parts-collect",)),
}
"""Name → (the mistake, scenarios in which it must be caught)."""
