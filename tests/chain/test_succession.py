"""What may follow what: checked before the swap, and again by verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.chain import Chain, Committed, Manifest, Pointer, SeenPointer, kv_layout
from holdfast.chain.ids import next_ulid
from holdfast.chain.successor import succession_problems
from holdfast.errors import InvariantViolation
from holdfast.testing.clock import SeededRandomness, VirtualClock
from tests.chain.publishing import ChainFactory, contents, draft_of, everything, overwrite, publish_one, sha256


def seen_by(chain: Chain) -> SeenPointer:
    seen = chain.handle.read_pointer()
    assert seen is not None
    return seen


def pair(counters: dict[str, int] | None = None) -> tuple[Pointer, Manifest]:
    """A pointer, and the manifest that really was published after it."""
    factory = ChainFactory(layout=kv_layout())
    chain = factory()
    for _ in range(3):
        publish_one(chain, counters=counters)
    pointer = seen_by(chain).pointer
    return pointer, publish_one(chain, counters=counters).manifest


POINTER, SUCCESSOR = pair({"events": 10, "rows": 7})
EARLIER = st.integers(min_value=0, max_value=POINTER.high_water_id)
LATER = st.integers(min_value=POINTER.high_water_id + 1, max_value=10**19)


def test_a_true_successor_has_no_problems() -> None:
    """S14: what really follows is accepted."""
    assert succession_problems(POINTER, SUCCESSOR) == []


@given(EARLIER)
def test_an_id_that_is_not_greater_is_refused(manifest_id: int) -> None:
    """S14: an id at or below the highest ever published is refused, even where the visible one is lower."""
    found = succession_problems(POINTER, replace(SUCCESSOR, manifest_id=manifest_id))
    assert len(found) == 1
    assert "the highest ever published" in found[0]
    rolled_back = replace(POINTER, manifest_id=0)
    assert succession_problems(rolled_back, replace(SUCCESSOR, manifest_id=manifest_id)) != []


@given(LATER)
def test_gaps_between_ids_are_normal(manifest_id: int) -> None:
    """S14: greater is enough."""
    assert succession_problems(POINTER, replace(SUCCESSOR, manifest_id=manifest_id)) == []


@given(st.integers(min_value=0, max_value=10**9))
def test_a_commit_ulid_that_is_not_greater_is_refused(back_s: int) -> None:
    """S14: the ULID of the pointer itself, and every earlier one."""
    clock = VirtualClock(POINTER.updated_at)
    clock.advance(-1 - back_s)
    older = next_ulid(clock, SeededRandomness(back_s), after=None)
    for ulid in (older, POINTER.commit_ulid):
        found = succession_problems(POINTER, replace(SUCCESSOR, commit_ulid=ulid))
        assert len(found) == 1
        assert "commit_ulid" in found[0]


@given(st.integers(0, 5), st.integers(0, 5))
def test_neither_epoch_nor_token_may_be_smaller(epoch: int, token: int) -> None:
    """S14: equal is allowed (one holder may publish many times), smaller in either is not."""
    found = succession_problems(POINTER, replace(SUCCESSOR, epoch=epoch, fencing_token=token))
    assert bool(found) == (min(epoch, token) < POINTER.epoch)
    assert all("epoch" in problem for problem in found)


@given(st.sampled_from([None, "sha256:" + "0" * 64, SUCCESSOR.commit_ulid]), st.sampled_from([None, "manifests/x"]))
def test_a_parent_that_is_not_what_is_visible_is_refused(parent: str | None, path: str | None) -> None:
    """S14: the parent is the predecessor by the hash of its raw bytes and by its place; one is not enough."""
    if (parent is None) != (path is None):
        return
    found = succession_problems(POINTER, replace(SUCCESSOR, parent_hash=parent, previous_manifest_path=path))
    assert found == [f"its parent is not {POINTER.manifest_path!r}, which is visible"]
    if parent is not None:
        assert succession_problems(POINTER, replace(SUCCESSOR, parent_hash=parent)) != []
        assert succession_problems(POINTER, replace(SUCCESSOR, previous_manifest_path="manifests/x")) != []


@given(st.dictionaries(st.sampled_from(["events", "rows", "new"]), st.integers(0, 20)))
def test_a_counter_that_falls_is_refused(counters: dict[str, int]) -> None:
    """S14: a counter that must not regress may stay, grow, be left out or appear; it may not fall."""
    found = succession_problems(POINTER, replace(SUCCESSOR, counters=counters))
    fallen = [name for name, value in POINTER.counters.items() if counters.get(name, value) < value]
    assert len(found) == len(fallen)
    assert all(any(name in problem for problem in found) for name in fallen)


def test_the_first_manifest_has_no_parent() -> None:
    """S7, S14: on an empty chain a manifest with a parent is refused, one without is fine."""
    orphaned = replace(SUCCESSOR, parent_hash=None, previous_manifest_path=None)
    assert succession_problems(None, orphaned) == []
    assert succession_problems(None, SUCCESSOR) != []


@given(
    manifest_id=EARLIER | LATER,
    epoch=st.integers(0, 6),
    token=st.integers(0, 6),
    own_parent=st.booleans(),
    ulid_is_old=st.booleans(),
    events=st.integers(0, 20),
)
def test_any_mixture_is_refused_unless_everything_holds(
    manifest_id: int, epoch: int, token: int, own_parent: bool, ulid_is_old: bool, events: int
) -> None:
    """S14: mutated in several ways at once, a manifest passes only if no single rule is broken."""
    mutated = replace(
        SUCCESSOR,
        manifest_id=manifest_id,
        epoch=epoch,
        fencing_token=token,
        parent_hash=SUCCESSOR.parent_hash if own_parent else "sha256:" + "1" * 64,
        commit_ulid=POINTER.commit_ulid if ulid_is_old else SUCCESSOR.commit_ulid,
        counters={"events": events},
    )
    holds = (
        manifest_id > POINTER.high_water_id
        and min(epoch, token) >= POINTER.epoch
        and own_parent
        and not ulid_is_old
        and events >= POINTER.counters["events"]
    )
    assert (succession_problems(POINTER, mutated) == []) == holds


# -- before the swap ---------------------------------------------------------------------------------------------------


def test_a_falling_counter_stops_the_publish_before_anything_is_written(chain_factory: ChainFactory) -> None:
    """S14: validated before the swap: nothing is written, and the same run may publish a corrected draft."""
    chain = chain_factory()
    publish_one(chain, b"one", counters={"events": 10})
    with chain.lock() as guard:
        run = chain.begin_run()
        wrong = draft_of(chain, run, {"a": b"two"}, counters={"events": 9})
        before = everything(chain_factory.store)
        with pytest.raises(InvariantViolation, match="counter 'events' would fall from 10 to 9"):
            chain.publish(wrong, run=run, permit=chain.permit(guard))
        assert everything(chain_factory.store) == before
        right = draft_of(chain, run, {"b": b"two"}, counters={"events": 11})
        assert isinstance(chain.publish(right, run=run, permit=chain.permit(guard)), Committed)
    assert contents(chain_factory()) == {"b": b"two"}


def test_a_counter_is_remembered_through_snapshots_that_do_not_name_it(chain_factory: ChainFactory) -> None:
    """S14: leaving a counter out, or rolling back, is no way around it."""
    chain = chain_factory()
    publish_one(chain, b"one", counters={"events": 5})
    publish_one(chain, b"two", counters={"events": 10})
    publish_one(chain, b"three")
    chain.rollback(offset=2)
    with pytest.raises(InvariantViolation, match="from 10 to 7"):
        publish_one(chain, b"four", counters={"events": 7})


# -- again by verify ---------------------------------------------------------------------------------------------------


def _forge(chain: Chain, **changes: object) -> None:
    """Rewrite the newest manifest, and the pointer's hashes with it: only the succession gives it away."""
    pointer = orjson.loads(chain.store.get(chain.layout.pointer_key).data)
    path = pointer["manifest_path"]
    forged = orjson.dumps(orjson.loads(chain.store.get(path).data) | changes)
    overwrite(chain.store, path, forged)
    pointer["manifest_hash"] = pointer["moves"][-1]["manifest_hash"] = sha256(forged)
    overwrite(chain.store, chain.layout.pointer_key, orjson.dumps(pointer))


@pytest.mark.parametrize(
    "changes",
    [
        {"manifest_id": "00000000000000000001"},
        {"epoch": 1},
        {"fencing_token": 1},
        {"commit_ulid": "00000000000000000000000000"},
        {"parent_hash": "sha256:" + "0" * 64},
        {"previous_manifest_path": "manifests/none"},
        {"counters": {"events": 1}},
    ],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize("layout_name", ["kv", "graph"])
@pytest.mark.parametrize("store_kind", ["memory"])
def test_verify_checks_the_succession_again(chain_factory: ChainFactory, changes: dict[str, object]) -> None:
    """S14, S38: a manifest that could not have been published is found, although every hash was made to fit."""
    chain = chain_factory()
    for turn in range(3):
        publish_one(chain, b"%d" % turn, counters={"events": 10 + turn})
    path = seen_by(chain).pointer.manifest_path
    assert chain.verify() == []
    chain_factory.expect_damage()
    _forge(chain, **changes)
    assert path in {found.key for found in chain.verify()}


@pytest.mark.parametrize(
    "damage",
    [
        lambda moves: moves[-1].update(epoch=0),
        lambda moves: moves[-1].update(sequence=9),
        lambda moves: moves[-1].update({"from": "00000000000000000009"}),
        lambda moves: moves.pop(0) and moves.pop(0),
        lambda moves: moves[-1].update(commit_ulid=moves[0]["commit_ulid"]),
    ],
    ids=["epoch", "sequence", "from", "gap", "ulid"],
)
@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_pointer_whose_moves_do_not_follow_each_other_is_refused(
    chain_factory: ChainFactory, damage: Callable[[list[dict[str, object]]], object]
) -> None:
    """S8, S14: the moves inside a pointer must be a succession too; one that is not is a break, whatever it names."""
    chain = chain_factory()
    for turn in range(3):
        publish_one(chain, b"%d" % turn)
    chain_factory.expect_damage()
    pointer = orjson.loads(chain_factory.store.get(chain.layout.pointer_key).data)
    damage(pointer["moves"])
    overwrite(chain_factory.store, chain.layout.pointer_key, orjson.dumps(pointer))
    assert chain.verify() != []
