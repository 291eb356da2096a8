"""A lost response is not a lost commit: what a writer reports is compared with the log, read without faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.chain import Chain, Committed, Outcome, Superseded, Unknown, VerdictKind
from holdfast.chain.commit import Lost, Undecided, move_pointer
from holdfast.chain.fence import in_place, touch
from holdfast.chain.pointer import MoveKind
from holdfast.errors import AlreadyExists, BadInput, NotAChain, StoreDenied, StoreUnavailable
from holdfast.testing.faulty import CountingStore, Fault, FaultyStore, Operation
from tests.chain.publishing import ChainFactory, contents, publish_one, try_publish

LOST = [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO]


def committed_ulids(chain_factory: ChainFactory) -> list[str]:
    """The truth: the publishes in the log, read without faults."""
    chain = chain_factory(by="judge")
    return [each.commit_ulid for each in chain.list_manifests(1000)]


def require_true(chain_factory: ChainFactory, outcome: Outcome) -> None:
    """What the writer was told agrees with the log (I8)."""
    truth = committed_ulids(chain_factory)
    match outcome:
        case Committed():
            assert truth.count(outcome.commit_ulid) == 1
        case Superseded():
            assert outcome.commit_ulid not in truth
        case Unknown():
            pass


def requests_of_a_publish(chain_factory: ChainFactory) -> int:
    """How many requests one whole publish makes, from the lock to the release."""
    store = CountingStore(chain_factory.store)
    publish_one(chain_factory(store=store, by="rehearsal"), b"rehearsal")
    return store.total


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.value)
@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_one_lost_answer_anywhere_never_makes_a_writer_lie(
    chain_factory: ChainFactory, fault: Fault, first: bool
) -> None:
    """S17: for every request of a publish and every way to lose its answer, the outcome is what the log says."""
    total = requests_of_a_publish(ChainFactory(layout=chain_factory.layout)) + 12
    commits = 0
    for serial in range(1, total + 1):
        world = ChainFactory(layout=chain_factory.layout)
        if not first:
            publish_one(world(by="before"), b"before")
        store = FaultyStore(world.store, lambda each, turn=serial: fault if each.serial == turn else Fault.PASS)  # type: ignore[misc]
        known = committed_ulids(world)
        outcome: Outcome | None
        try:
            outcome = try_publish(world(store=store), b"mine", run_id="mine")
        except StoreUnavailable:
            outcome = None
        except AlreadyExists:
            outcome = None  # an artifact's upload that conflicts with itself is its writer's to read back
            refused_upload = store.log[serial - 1].kind == "upload"
            assert refused_upload
        fresh = [ulid for ulid in committed_ulids(world) if ulid not in known]
        if outcome is not None:
            require_true(world, outcome)
            assert not isinstance(outcome, Unknown), "one lost answer is no reason not to know"
            commits += 1
        elif fresh:
            # Only the release of the lock comes after the commit and may still fail.
            assert store.log[-1].key == world.layout.lock_key
        assert len(fresh) <= 1
        if fresh or not first:
            world().reconcile(enforce=True)
        assert world.breaks() == []
    assert commits > 0


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.value)
def test_a_lost_answer_to_the_swap_is_found_out_by_reading_back(chain_factory: ChainFactory, fault: Fault) -> None:
    """S17: whether the swap was lost before or after its effect, or came back as a conflict, it commits once."""
    publish_one(chain_factory(), b"one")
    pointer = chain_factory.layout.pointer_key
    struck: list[Operation] = []

    def plan(operation: Operation) -> Fault:
        if (operation.kind, operation.key) == ("swap", pointer) and not struck:
            struck.append(operation)
            return fault
        return Fault.PASS

    done = try_publish(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"two")
    assert struck
    assert isinstance(done, Committed)
    assert committed_ulids(chain_factory)[0] == done.commit_ulid
    assert len(committed_ulids(chain_factory)) == 2
    assert contents(chain_factory()) == {"part-0": b"two"}


@pytest.mark.parametrize("fault", [Fault.ERROR_AFTER, Fault.ECHO], ids=lambda fault: fault.value)
def test_a_commit_that_others_have_passed_is_still_known_as_committed(
    chain_factory: ChainFactory, fault: Fault
) -> None:
    """S17: ours landed, its answer was lost, and forty moves later the read-back finds it in the log all the same."""
    publish_one(chain_factory(), b"one")
    pointer = chain_factory.layout.pointer_key
    struck: list[Operation] = []

    def plan(operation: Operation) -> Fault:
        if (operation.kind, operation.key) == ("swap", pointer) and not struck:
            struck.append(operation)
            return fault
        if struck and len(struck) == 1 and (operation.kind, operation.key) == ("get", pointer):
            struck.append(operation)
            for _ in range(40):
                touch(chain_factory().handle, by="busy", why="much later")
        return Fault.PASS

    done = try_publish(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"two")
    assert isinstance(done, Committed)
    require_true(chain_factory, done)


# -- silence -----------------------------------------------------------------------------------------------------------


def _silent_from_the_swap_on(
    chain_factory: ChainFactory, *, lands: bool, also: Callable[[Chain], object] | None = None
) -> Unknown:
    """A publish whose swap was sent into a store that says nothing more. `also` happens before the writer gives up."""
    pointer = chain_factory.layout.pointer_key
    gone = False

    def plan(operation: Operation) -> Fault:
        nonlocal gone
        if gone:
            return Fault.ERROR_BEFORE if operation.key == pointer else Fault.PASS
        if operation.key == pointer and operation.kind in {"put_new", "swap"}:
            gone = True
            return Fault.ERROR_AFTER if lands else Fault.ERROR_BEFORE
        return Fault.PASS

    outcome = try_publish(chain_factory(by="cut off", store=FaultyStore(chain_factory.store, plan)), b"mine")
    assert isinstance(outcome, Unknown)
    if also is not None:
        also(chain_factory(by="other"))
    return outcome


def test_silence_is_reported_as_unknown_and_later_found_committed(chain_factory: ChainFactory) -> None:
    """S17: a writer that cannot prove it says Unknown; `status` says committed, now and after many more moves."""
    publish_one(chain_factory(), b"one")
    unknown = _silent_from_the_swap_on(chain_factory, lands=True)
    chain = chain_factory(by="later")
    verdict = chain.status(unknown.commit_ulid)
    assert verdict.kind is VerdictKind.COMMITTED
    assert verdict.move is not None
    assert (verdict.move.commit_ulid, verdict.move.by) == (unknown.commit_ulid, "cut off")
    for turn in range(40):
        touch(chain.handle, by="x", why=str(turn))
    publish_one(chain, b"more")
    assert chain.status(unknown.commit_ulid) == verdict
    chain.reconcile(enforce=True)


def test_silence_on_a_swap_that_never_arrived_is_open_until_it_is_passed(chain_factory: ChainFactory) -> None:
    """S17: it could still arrive, so it is open; once another publish took its place it is superseded, for good."""
    publish_one(chain_factory(), b"one")
    unknown = _silent_from_the_swap_on(chain_factory, lands=False)
    chain = chain_factory(by="later")
    assert chain.status(unknown.commit_ulid).kind is VerdictKind.OPEN
    chain_factory.clock.advance(1)
    won = publish_one(chain, b"two")
    verdict = chain.status(unknown.commit_ulid)
    assert verdict.kind is VerdictKind.SUPERSEDED
    assert verdict.move is not None
    assert verdict.move.commit_ulid == won.commit_ulid
    for _ in range(40):
        touch(chain.handle, by="x", why="")
    publish_one(chain, b"three")
    assert chain.status(unknown.commit_ulid) == verdict


def test_an_open_commit_can_be_settled_so_that_it_never_lands(chain_factory: ChainFactory) -> None:
    """S17: `settle` touches the pointer; the delayed swap then fails, and the verdict is never published, for good."""
    publish_one(chain_factory(), b"one")
    cut_off = chain_factory(by="cut off")
    seen = cut_off.handle.read_pointer()
    assert seen is not None
    planned = in_place(cut_off.handle, seen.pointer, kind=MoveKind.FENCE, by="cut off", why="delayed")
    chain = chain_factory(by="later")
    assert chain.status(planned.commit_ulid).kind is VerdictKind.OPEN
    settled = chain.status(planned.commit_ulid, settle=True)
    assert settled.kind is VerdictKind.NEVER_PUBLISHED
    arrived_late = move_pointer(cut_off.handle, seen, planned)
    assert isinstance(arrived_late, Lost)
    chain_factory.clock.advance(1)
    publish_one(chain, b"two")
    kinds = {chain.status(planned.commit_ulid).kind for _ in range(2)}
    assert kinds <= {VerdictKind.NEVER_PUBLISHED, VerdictKind.SUPERSEDED}
    assert chain.status(planned.commit_ulid, settle=True).kind in kinds


def test_settling_what_did_land_says_committed(chain_factory: ChainFactory) -> None:
    """S17: settle never takes a commit away."""
    done = publish_one(chain_factory(), b"one")
    assert chain_factory().status(done.commit_ulid, settle=True).kind is VerdictKind.COMMITTED
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_a_ulid_nobody_ever_used_was_never_published(chain_factory: ChainFactory) -> None:
    """S17: an old ULID that is in no move is never published or superseded; it is not committed."""
    early = chain_factory().handle.ulid(after=None)
    chain_factory.clock.advance(5)
    done = publish_one(chain_factory(), b"one")
    verdict = chain_factory().status(early)
    assert verdict.kind is VerdictKind.SUPERSEDED
    assert verdict.move is not None
    assert verdict.move.commit_ulid == done.commit_ulid
    touched = touch(chain_factory().handle, by="x", why="").pointer.commit_ulid
    between = chain_factory().handle.ulid(after=done.commit_ulid)
    if between < touched:
        assert chain_factory().status(between).kind is VerdictKind.NEVER_PUBLISHED


@pytest.mark.parametrize("text", ["", "nonsense", "0" * 25, "8" + "0" * 25, "7" + "Z" * 25])
def test_what_is_no_commit_ulid_is_refused(chain_factory: ChainFactory, text: str) -> None:
    """S17: a verdict is about a commit; anything else is bad input, and settling it changes nothing."""
    publish_one(chain_factory(), b"one")
    before = chain_factory.store.get(chain_factory.layout.pointer_key).data
    with pytest.raises(BadInput):
        chain_factory().status(text, settle=True)
    assert chain_factory.store.get(chain_factory.layout.pointer_key).data == before


def test_a_verdict_needs_a_chain(chain_factory: ChainFactory) -> None:
    """S17: where there is no pointer there is no verdict."""
    with pytest.raises(NotAChain):
        chain_factory().status(chain_factory().handle.ulid(after=None))


# -- a swap that was sent is never an exception ------------------------------------------------------------------------


@pytest.mark.parametrize("at_swap", [True, False], ids=["swap", "read-back"])
@pytest.mark.parametrize("lands", [True, False], ids=["landed", "not-landed"])
def test_credentials_that_run_out_during_the_swap_do_not_turn_a_commit_into_an_error(
    chain_factory: ChainFactory, at_swap: bool, lands: bool
) -> None:
    """S17: once the swap was sent the writer gets an outcome, whatever the store answers from then on."""
    publish_one(chain_factory(), b"one")
    pointer = chain_factory.layout.pointer_key
    sent: list[Operation] = []

    def plan(operation: Operation) -> Fault:
        if operation.key != pointer or (operation.kind != "swap" and not sent):
            return Fault.PASS
        sent.append(operation)
        if len(sent) == 1:
            return Fault.ERROR_AFTER if lands else Fault.ERROR_BEFORE
        if (operation.kind == "swap") == at_swap:
            raise StoreDenied("the credentials have expired")
        return Fault.PASS

    outcome = try_publish(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"mine")
    require_true(chain_factory, outcome)
    if at_swap == lands:  # the read-back, or the second swap, still got an answer
        assert isinstance(outcome, Committed)
    else:
        assert isinstance(outcome, Unknown)
        assert "the credentials have expired" in outcome.reason
    chain_factory().reconcile(enforce=True)


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.value)
def test_rollback_survives_a_lost_answer(chain_factory: ChainFactory, fault: Fault) -> None:
    """S17: every move of the pointer is told from its echo the same way, not only a publish."""
    publish_one(chain_factory(), b"one")
    publish_one(chain_factory(), b"two")
    pointer = chain_factory.layout.pointer_key
    struck: list[Operation] = []

    def plan(operation: Operation) -> Fault:
        if (operation.kind, operation.key) == ("swap", pointer) and not struck:
            struck.append(operation)
            return fault
        return Fault.PASS

    chain_factory(store=FaultyStore(chain_factory.store, plan)).rollback(why="bad data")
    assert struck
    seen = chain_factory().handle.read_pointer()
    assert seen is not None
    assert [move.kind for move in seen.pointer.moves] == [MoveKind.PUBLISH, MoveKind.PUBLISH, MoveKind.ROLLBACK]
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_an_undecided_move_is_never_called_lost_or_landed(chain_factory: ChainFactory) -> None:
    """S17: with the store silent, the mover says neither."""
    publish_one(chain_factory(), b"one")
    seen = chain_factory().handle.read_pointer()
    assert seen is not None
    silent = FaultyStore(chain_factory.store, lambda _: Fault.ERROR_BEFORE)
    handle = chain_factory(store=silent).handle
    planned = in_place(handle, seen.pointer, kind=MoveKind.FENCE, by="x", why="")
    assert isinstance(move_pointer(handle, seen, planned), Undecided)
