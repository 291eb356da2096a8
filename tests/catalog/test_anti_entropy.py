"""Anti-entropy finds every event that was missed, tells nobody else's business, and never looks past one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.catalog import Workspace, ledger_layout
from holdfast.catalog import payloads as p
from holdfast.catalog.anti_entropy import AntiEntropy, Round, fold_here
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.cursor import CursorKeeper, read_cursor
from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.reading import read_state, read_tables
from holdfast.catalog.watermark import Watermark
from holdfast.chain import ManifestDraft
from holdfast.errors import BadInput, Conflict, ScopeEscape
from holdfast.storage import MemoryStore, grant
from holdfast.storage.capabilities import ManifestSwap, Reader
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import CountingStore
from tests.catalog.auditing import audit

SETTLE_S = 600.0
Told = tuple[list[str], str | None]


class Compacting:
    """A compactor that can be told and does nothing until it is let, as one behind a queue; or may forget it all."""

    def __init__(self, workspace: Workspace) -> None:
        self.told: list[Told] = []
        self._fold = fold_here(workspace)
        self._domain = ""

    def __call__(self, domain: str, paths: Sequence[str], cursor: str | None) -> None:
        self._domain = domain
        self.told.append((list(paths), cursor))

    def work(self) -> None:
        for paths, cursor in self.told:
            self._fold(self._domain, paths, cursor)
        self.told = []


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def root() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
def workspace(root: CountingStore, clock: VirtualClock) -> Workspace:
    made = Workspace(root=root, tenant="acme", name="prod", by="test", clock=clock, randomness=SeededRandomness())
    made.initialize()
    return made


@pytest.fixture
def compacting(workspace: Workspace) -> Compacting:
    return Compacting(workspace)


def job_on(workspace: Workspace, notify: Compacting, **options: object) -> AntiEntropy:
    """With the rights of its principal and no others."""
    return AntiEntropy(
        "lineage",
        rights=grant(workspace.store, "compactor-antientropy"),
        notify=notify,
        clock=workspace.clock,
        **{"settle_s": SETTLE_S, **options},  # type: ignore[arg-type]
    )


def tell(workspace: Workspace, *targets: str) -> list[str]:
    """An event each, which nobody was told of."""
    ledger = workspace.ledger("lineage")
    return [
        ledger.append(
            p.LineageEdgesAdded(edges=(p.Edge(source="raw", target=target),)), idempotency_key=f"{target}/{number}"
        ).path
        for number, target in enumerate(targets)
    ]


def targets(workspace: Workspace) -> set[str]:
    return set(map(str, read_tables(workspace, "lineage")["edges"].column("target").to_pylist()))


def cursor_of(workspace: Workspace) -> str | None:
    found = read_cursor(Reader(workspace.store), "lineage")
    return None if found is None else found.event_id


def id_of(path: str) -> str:
    found = ledger_layout("lineage").parse_event_key(path)
    assert found is not None
    return found


def test_what_was_missed_is_told_and_what_was_applied_is_not(workspace: Workspace, compacting: Compacting) -> None:
    """C18: of five events two were told; the last applied one is not missed, though it is the watermark's."""
    paths = tell(workspace, "a", "b", "c", "d", "e")
    Compactor(workspace, "lineage").compact([paths[1], paths[4]])
    done = job_on(workspace, compacting).round()
    assert compacting.told == [([paths[0], paths[2], paths[3]], None)]
    assert done == Round(domain="lineage", events=5, told=3, pages=1, cursor=None)
    compacting.work()
    assert targets(workspace) == {"a", "b", "c", "d", "e"}
    again = job_on(workspace, compacting).round()
    assert (again.told, compacting.told) == (0, [])


def test_the_last_applied_event_is_not_missed_even_where_no_row_is_its(
    workspace: Workspace, compacting: Compacting
) -> None:
    """C18: the watermark says that it was applied."""
    first, last = tell(workspace, "a", "b")
    chain = workspace.domain("lineage")
    state = DomainState(domain="lineage", watermark=Watermark(position=2, event_id=id_of(last)), snapshot_version=1)
    with chain.lock() as guard:
        run = chain.begin_run()
        chain.publish(ManifestDraft(payload=state.payload()), run=run, permit=chain.permit(guard))
    job_on(workspace, compacting).round()
    assert compacting.told == [([first], None)]


def test_an_applied_event_whose_row_was_superseded_is_told_until_the_cursor_has_passed_it(
    workspace: Workspace, compacting: Compacting, clock: VirtualClock
) -> None:
    """C18: nothing tells it from a missed one; folding it again changes nothing, and that ends with the cursor."""
    paths = tell(workspace, "a", "a", "a", "b")
    Compactor(workspace, "lineage").compact(paths)
    before, job = read_state(workspace, "lineage")[0], job_on(workspace, compacting)
    for _ in range(2):
        assert job.round().told == 2
        compacting.work()
    assert read_state(workspace, "lineage")[0] == before, "no snapshot more"
    clock.advance(SETTLE_S)
    assert job.round().told == 2
    compacting.work()
    assert cursor_of(workspace) == id_of(paths[3])
    done = job.round()
    assert (done.events, done.told, compacting.told) == (0, 0, [])


def test_the_cursor_stays_behind_what_is_young(
    workspace: Workspace, compacting: Compacting, clock: VirtualClock
) -> None:
    """C18: an append that is under way may still put an event below those that are there: it is found."""
    old = tell(workspace, "old")
    clock.advance(SETTLE_S + 1)
    ledger = ledger_layout("lineage")
    slow, fast = tell(workspace, "slow", "fast")
    held = workspace.store.get(slow).data
    workspace.store.delete([slow])  # its place is taken, its event not there yet
    job = job_on(workspace, compacting)
    job.round()
    compacting.work()
    assert cursor_of(workspace) == id_of(old[0])
    workspace.store.put_new(slow, held)
    assert job.round().told == 1
    compacting.work()
    assert targets(workspace) == {"old", "slow", "fast"}
    clock.advance(SETTLE_S)
    job.round()
    compacting.work()
    assert cursor_of(workspace) == id_of(fast)
    assert ledger.event_key(id_of(fast)) == fast


def test_a_ledger_is_looked_through_in_bounded_pages(
    workspace: Workspace, compacting: Compacting, clock: VirtualClock, root: CountingStore
) -> None:
    """C18: however long it is; a round has a limit too, and the next one goes on from the cursor."""
    paths = tell(workspace, *(f"t{number}" for number in range(23)))
    clock.advance(SETTLE_S)
    job = job_on(workspace, compacting, page_size=5, pages_max=2)
    rounds = []
    for _ in range(4):
        root.reset()
        rounds.append(job.round())
        assert root.counts["list"] == rounds[-1].pages <= 2
        assert all(len(told) <= 5 for told, _ in compacting.told)
        compacting.work()
    assert [one.is_complete for one in rounds] == [False, False, True, True]
    assert [one.events for one in rounds] == [10, 10, 8, 3], "a page that was told without a cursor is looked at again"
    assert targets(workspace) == {f"t{number}" for number in range(23)}
    assert cursor_of(workspace) == id_of(paths[-1])


def test_no_cursor_is_sent_past_what_is_not_known_to_be_folded(
    workspace: Workspace, compacting: Compacting, clock: VirtualClock
) -> None:
    """C18: the first page's notification may be lost with the compactor; the second's cursor would pass it."""
    paths = tell(workspace, *(f"t{number}" for number in range(6)))
    clock.advance(SETTLE_S)
    job = job_on(workspace, compacting, page_size=2)
    job.round()
    assert compacting.told == [(paths[:2], id_of(paths[1])), (paths[2:4], None), (paths[4:], None)]
    del compacting.told[0]
    compacting.work()  # the compactor died with the first, and folded the others
    assert cursor_of(workspace) is None
    job.round()
    assert compacting.told[0] == (paths[:2], id_of(paths[1]))
    compacting.work()
    assert targets(workspace) == {f"t{number}" for number in range(6)}


def test_a_compactor_that_folds_at_once_lets_the_cursor_go_on(workspace: Workspace, clock: VirtualClock) -> None:
    """C18: the cursor is looked at before the next one is sent, so one round is enough where nothing is lost."""
    paths = tell(workspace, *(f"t{number}" for number in range(7)))
    clock.advance(SETTLE_S)
    job = AntiEntropy(
        "lineage",
        rights=grant(workspace.store, "compactor-antientropy"),
        notify=fold_here(workspace),
        clock=clock,
        page_size=2,
    )
    done = job.round()
    assert (done.told, done.pages, done.cursor) == (7, 4, id_of(paths[-1]))
    assert cursor_of(workspace) == id_of(paths[-1])
    assert targets(workspace) == {f"t{number}" for number in range(7)}


def test_the_job_writes_nothing_and_reads_no_event(
    workspace: Workspace, compacting: Compacting, root: CountingStore
) -> None:
    """C18, C9: it lists the ledger, reads state and manifests, and has no way to do anything else."""
    paths = tell(workspace, "a", "b", "c")
    Compactor(workspace, "lineage").compact(paths[:1])
    root.reset()
    job_on(workspace, compacting).round()
    assert set(root.counts) == {"get", "list"}
    read = {one.key.removeprefix("acme/prod/").split("/")[0] for one in root.log if one.kind == "get"}
    assert read <= {"state", "l0", "manifests"}
    rights = grant(workspace.store, "compactor-antientropy")
    with pytest.raises(ScopeEscape):
        rights.read.get(paths[0])
    assert not hasattr(rights, "state")


def test_a_round_that_finds_nothing_new_costs_a_few_requests(
    workspace: Workspace, compacting: Compacting, root: CountingStore, clock: VirtualClock
) -> None:
    """C18: cursor and one page; the state is not read while nothing is behind the cursor, and its files only once."""
    paths = tell(workspace, "a", "b")
    Compactor(workspace, "lineage").compact(paths)
    job = job_on(workspace, compacting)
    job.round()
    root.reset()
    job.round()
    assert [one.kind for one in root.log] == ["get", "list", "get", "get"], "cursor, page, pointer, manifest"
    clock.advance(SETTLE_S)
    job.round()
    compacting.work()
    root.reset()
    assert job.round().events == 0
    assert [one.kind for one in root.log] == ["get", "list"]


def test_what_appeared_below_the_cursor_is_found_by_looking_through_all(
    workspace: Workspace, compacting: Compacting, clock: VirtualClock
) -> None:
    """C18: an append that was finished days later, by somebody who then told nobody."""
    slow, fast = tell(workspace, "slow", "fast")
    held = workspace.store.get(slow).data
    workspace.store.delete([slow])
    clock.advance(SETTLE_S)
    job = job_on(workspace, compacting)
    job.round()
    compacting.work()
    workspace.store.put_new(slow, held)
    assert job.round().events == 0
    Compactor(workspace, "lineage").compact(tell(workspace, "young"))
    assert (job.round().events, compacting.told) == (1, [])
    done = job.round(from_start=True)
    assert [told for told, _ in compacting.told] == [[slow]], "what is remembered of the state begins at the cursor"
    assert done.events == 3
    compacting.work()
    assert targets(workspace) == {"slow", "fast", "young"}
    assert cursor_of(workspace) == id_of(fast), "and the cursor has not gone back"


def test_events_that_cannot_be_understood_are_applied_once_they_are_quarantined(
    workspace: Workspace, compacting: Compacting
) -> None:
    """C18, C16: an unknown event is a row like any other; a file that is no event is counted and left alone."""
    (path,) = tell(workspace, "a")
    strange = ledger_layout("lineage").event_key("01JTC000000000000000000009")
    workspace.store.put_new(strange, b"not JSON")
    workspace.store.put_new("ledger/lineage/README", b"hello")
    job = job_on(workspace, compacting)
    done = job.round()
    assert (done.told, done.foreign) == (2, 1)
    compacting.work()
    assert targets(workspace) == {"a"}
    again = job.round()
    assert (again.told, again.foreign) == (0, 1)
    assert path not in [one for told, _ in compacting.told for one in told]


@pytest.mark.parametrize("publishing", ["legacy", "pointer"])
def test_the_state_is_read_where_it_counts(workspace: Workspace, compacting: Compacting, publishing: str) -> None:
    """C18, S45: in legacy-only mode from the legacy path."""
    paths = tell(workspace, "a", "b", "c")
    Compactor(workspace, "lineage").compact(paths[:1])
    workspace.domain("lineage").switch_publishing("legacy")
    Compactor(workspace, "lineage").compact(paths[1:2])
    workspace.domain("lineage").switch_publishing(publishing)
    job_on(workspace, compacting).round()
    assert compacting.told == [([paths[2]], None)]


def test_a_compactor_that_cannot_now_ends_the_round_and_loses_nothing(workspace: Workspace) -> None:
    """C18: somebody publishes: a conflict, which the next round comes back from."""
    paths = tell(workspace, "a", "b")
    job = AntiEntropy(
        "lineage", rights=grant(workspace.store, "compactor-antientropy"), notify=fold_here(workspace),
        clock=workspace.clock, settle_s=0,
    )  # fmt: skip
    with workspace.domain("lineage").lock(), pytest.raises(Conflict):
        job.round()
    assert cursor_of(workspace) is None
    job.round()
    assert targets(workspace) == {"a", "b"}
    assert cursor_of(workspace) == id_of(paths[1])


def test_bad_settings_are_refused(workspace: Workspace, compacting: Compacting) -> None:
    """C18: before anything is listed."""
    for options in ({"settle_s": -1.0}, {"pages_max": 0}):
        with pytest.raises(BadInput, match="at least 1 page"):
            job_on(workspace, compacting, **options)
    with pytest.raises(BadInput, match="1 to 1000 events"):
        job_on(workspace, compacting, page_size=0).round()


def test_a_cursor_is_kept_by_who_may_write_it(workspace: Workspace) -> None:
    """C18, C9: below `manifests/`, which the compactor swaps and anti-entropy only reads."""
    (path,) = tell(workspace, "a")
    fast = grant(workspace.store, "compactor-fastpath")
    CursorKeeper(ManifestSwap(workspace.store), fast.read).advance("lineage", id_of(path))
    rights = grant(workspace.store, "compactor-antientropy")
    found = read_cursor(rights.read, "lineage")
    assert found is not None
    assert found.event_id == id_of(path)
    assert audit(workspace.store) == []
