"""How a graph's segments are spread over a manifest and its parts: against a plain list, and counted in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.chain import Artifact, Chain, Committed, Manifest, ManifestDraft, chain_on, graph_layout
from holdfast.chain.manifest import PARTS_KIND
from holdfast.chain.numbering import reserve
from holdfast.chain.parts import decode_part, expand
from holdfast.codec import content_hash
from holdfast.errors import BadInput, CorruptRecord
from holdfast.graph import parts as policy
from holdfast.graph.parts import INLINE_MAX, PART_FANOUT, Arrangement, KindTotals, arrange, totals
from holdfast.storage import MemoryStore
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore

LAYOUT = graph_layout()
KINDS = ("nodes", "edges")
COMMITS = 2 * PART_FANOUT


def segment(number: int, kind: str = "nodes") -> Artifact:
    """A descriptor with a zone map of the size that a real one has."""
    return Artifact(
        path=LAYOUT.segment_key(number, kind),
        byte_size=100_000 + number,
        row_count=number % 7,
        checksum=f"sha256:{number:064x}",
        kind=kind,
        detail={
            "segment_id": number,
            "kind": kind,
            "hidden_count": number % 3,
            "zone_map": {"files": ["src/a.py"] * 4},
        },
    )


def manifest_of(artifacts: Sequence[Artifact]) -> Manifest:
    return Manifest(
        manifest_id=1,
        epoch=1,
        fencing_token=1,
        commit_ulid="01KKNYE980ZAKWM0N5QA6NPWR0",
        pointer_sequence=0,
        parent_hash=None,
        previous_manifest_path=None,
        published_at=datetime(2026, 3, 14, tzinfo=UTC),
        run_id="r",
        artifacts=tuple(artifacts),
    )


@dataclass
class Book:
    """A manifest that grows by commits, with its parts in a store; and what each commit wrote."""

    store: CountingStore = field(default_factory=lambda: CountingStore(MemoryStore()))
    manifest: Manifest | None = None
    part_count: int = 0
    written: list[int] = field(default_factory=list)

    def commit(
        self, added: Sequence[Artifact], removed: Collection[int] = (), *, in_place: bool = False
    ) -> Arrangement:
        handle = chain_on(self.store, LAYOUT, clock=VirtualClock()).handle
        done = arrange(handle, self.manifest, added, removed, new_part=self._new_part, in_place=in_place)
        for path, data in done.files.items():
            self.store.put_new(path, data)
        made = manifest_of(done.artifacts)
        data = made.encode(LAYOUT.names)
        self.manifest = Manifest.decode(data, key="manifests/000001.json", names=LAYOUT.names)
        self.written.append(len(data) + sum(map(len, done.files.values())))
        return done

    def _new_part(self) -> str:
        self.part_count += 1
        return LAYOUT.segment_part_key(self.part_count)

    def ids(self, kind: str) -> list[int]:
        """The segments of a kind as a reader finds them, the oldest first."""
        assert self.manifest is not None
        held = expand(chain_on(self.store, LAYOUT).handle, self.manifest)
        return [int(str(one.detail["segment_id"])) for one in held if one.kind == kind]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of three, so that few segments make many levels."""
    monkeypatch.setattr(policy, "INLINE_MAX", 3)
    monkeypatch.setattr(policy, "PART_FANOUT", 3)


def require_shape(done: Arrangement, *, inline_max: int, fanout: int) -> None:
    """Few in the manifest, few parts a level, in falling levels."""
    assert len(done.inline) <= inline_max
    levels = [one.detail["level"] for one in done.parts]
    assert levels == sorted(levels, reverse=True)  # type: ignore[type-var]
    assert all(count < fanout for count in Counter(levels).values())
    assert {one.kind for one in done.parts} <= {PARTS_KIND}


def test_up_to_64_segments_are_in_the_manifest_itself() -> None:
    """G19: a small graph has no parts, and nothing to read but its manifest."""
    book = Book()
    for number in range(1, INLINE_MAX + 1):
        done = book.commit([segment(number)])
        assert (len(done.inline), done.parts, dict(done.files)) == (number, (), {})
    done = book.commit([segment(INLINE_MAX + 1)])
    assert (len(done.inline), len(done.parts)) == (1, 1)
    assert book.ids("nodes") == list(range(1, INLINE_MAX + 2))


def test_64_parts_of_a_level_become_one_of_the_next() -> None:
    """G19: by commits of one, and by one large commit, which writes nothing in between."""
    total = PART_FANOUT * PART_FANOUT
    segments = [segment(number, KINDS[number % 2]) for number in range(1, total + INLINE_MAX + 1)]
    book = Book()
    done = book.commit(segments[:total])
    assert Counter(one.detail["level"] for one in done.parts) == {0: PART_FANOUT - 1}
    for one in segments[total:]:
        done = book.commit([one])
        require_shape(done, inline_max=INLINE_MAX, fanout=PART_FANOUT)
    assert [one.detail["level"] for one in done.parts] == [1]
    once = Book().commit(segments)
    assert [one.detail["level"] for one in once.parts] == [1]
    [data] = once.files.values()
    assert len(decode_part(data, key="part", names=LAYOUT.names)) == total


commits = st.lists(
    st.tuples(
        st.lists(st.sampled_from(KINDS), max_size=8),
        st.lists(st.integers(0, 200), max_size=4),
        st.booleans(),
    ),
    max_size=25,
)


@pytest.mark.usefixtures("small")
@given(commits)
@settings(max_examples=150)
def test_whatever_comes_and_leaves_the_order_is_that_of_a_plain_list(
    steps: list[tuple[list[str], list[int], bool]],
) -> None:
    """G19, G16: added ones are the newest of their kind, or in the place of what they replace; nothing else moves."""
    book, model, number = Book(), {kind: list[int]() for kind in KINDS}, 0
    for kinds, picks, in_place in steps:
        there = sorted(model["nodes"] + model["edges"])
        removed = {there[pick % len(there)] for pick in picks} if there else set()
        added = [segment(number + place + 1, kind) for place, kind in enumerate(kinds)]
        number += len(kinds)
        done = book.commit(added, removed, in_place=in_place)
        for kind in KINDS:
            coming = [int(str(one.detail["segment_id"])) for one in added if one.kind == kind]
            leaving = [place for place, one in enumerate(model[kind]) if one in removed]
            at = leaving[-1] if in_place and leaving else len(model[kind])
            model[kind][at:at] = coming
            model[kind] = [one for one in model[kind] if one not in removed]
            assert book.ids(kind) == model[kind]
        require_shape(done, inline_max=3, fanout=3)
        assert set(done.files) <= {one.path for one in done.parts}
        assert book.manifest is not None
        whole = expand(chain_on(book.store, LAYOUT).handle, book.manifest)
        assert totals(done.artifacts) == totals(whole)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("place", [0, 1, 2])
def test_taking_segments_away_rewrites_only_the_parts_that_list_them(place: int) -> None:
    """G19: the others stay as they are, and are not even read."""
    book = Book()
    before = book.commit([segment(number) for number in range(1, 24)])
    assert [one.detail["level"] for one in before.parts] == [1, 1, 0]
    target = before.parts[place]
    gone = int(str(target.detail["first_segment_id"]))
    book.store.reset()
    after = book.commit([], [gone])
    assert book.store.counts == {"get": 1, "put_new": 1}
    kept = {one.path for one in before.parts} & {one.path for one in after.parts}
    assert kept == {one.path for one in before.parts} - {target.path}
    assert gone not in book.ids("nodes")


@pytest.mark.usefixtures("small")
def test_a_part_that_could_list_what_leaves_and_does_not_stays_as_it_is() -> None:
    """G19: a compaction puts a new id into an old part; a younger part with ids around it is read, not rewritten."""
    book = Book()
    book.commit([segment(number) for number in range(1, 17)])
    book.commit([segment(17)], [4], in_place=True)
    before = book.commit([segment(number) for number in range(18, 24)])
    around = [one for one in before.parts if int(str(one.detail["first_segment_id"])) in range(5, 17)][-1]
    assert int(str(around.detail["last_segment_id"])) > 17
    after = book.commit([], [17])
    assert around.path in {one.path for one in after.parts}
    assert book.ids("nodes") == [1, 2, 3, *range(5, 17), *range(18, 24)]


@pytest.mark.usefixtures("small")
def test_a_compaction_of_everything_leaves_no_part_behind() -> None:
    """G17, G19: what merged all the others stands alone in the manifest."""
    book = Book()
    for number in range(1, 30):
        book.commit([segment(number)])
    done = book.commit([segment(30)], range(1, 30), in_place=True)
    assert (done.parts, dict(done.files)) == ((), {})
    assert book.ids("nodes") == [30]


@pytest.mark.usefixtures("small")
def test_a_compaction_in_place_stays_older_than_what_was_newer() -> None:
    """G16, G17: what it merged may be deep in a part; the segments that hide some of it still come later."""
    book = Book()
    for number in range(1, 30):
        book.commit([segment(number)])
    book.commit([segment(30)], [4, 5, 6, 7], in_place=True)
    assert book.ids("nodes") == [1, 2, 3, 30, *range(8, 30)]


def test_a_segment_that_is_not_there_cannot_be_taken_away() -> None:
    """G19: nothing is written, and the error names it."""
    book = Book()
    book.commit([segment(number) for number in range(1, 200)])
    with pytest.raises(BadInput, match="segment 777 is not there"):
        book.commit([], [3, 777])
    assert len(book.ids("nodes")) == 199


@pytest.mark.parametrize("detail", [{}, {"level": -1}, {"level": "0"}])
def test_a_part_that_does_not_say_its_level_is_damage(detail: dict[str, object]) -> None:
    """G19: nothing is guessed about what another writer made."""
    book = Book()
    done = book.commit([segment(number) for number in range(1, 200)])
    wrong = replace(done.parts[0], detail=detail)
    book.manifest = manifest_of((*done.inline, wrong, *done.parts[1:]))
    with pytest.raises(CorruptRecord, match="level"):
        book.commit([segment(200)])


def test_parts_out_of_order_are_damage() -> None:
    """G19: a level that rises would put older segments after newer ones at the next merge."""
    book = Book()
    done = book.commit([segment(number) for number in range(1, 200)])
    lifted = replace(done.parts[-1], detail={**done.parts[-1].detail, "level": 1})
    book.manifest = manifest_of((*done.inline, *done.parts[:-1], lifted))
    with pytest.raises(CorruptRecord, match="falling levels"):
        book.commit([segment(200)])


def test_sums_are_known_without_reading_a_part() -> None:
    """G5, G19: a commit can check its stats against the descriptors it writes; each part says what it adds up to."""
    segments = [segment(number, KINDS[number % 2]) for number in range(1, 300)]
    book = Book()
    done = book.commit(segments)
    book.store.reset()
    assert done.parts
    found = totals(done.artifacts)
    assert book.store.counts == {}
    for kind in KINDS:
        mine = [int(str(one.detail["segment_id"])) for one in segments if one.kind == kind]
        assert found[kind] == KindTotals(len(mine), sum(n % 7 for n in mine), sum(n % 3 for n in mine))


def test_a_commit_writes_in_proportion_to_the_change() -> None:
    """G19: at 100,000 segments a commit of one writes at most five times as much as at 1,000, on average over 128
    commits, and a hundredth of the whole."""
    average: dict[int, float] = {}
    whole = 0
    for size in (10, 1_000, 100_000):
        book = Book()
        book.commit([segment(number, KINDS[number % 2]) for number in range(1, size + 1)])
        whole = book.written[-1]
        for number in range(size + 1, size + 1 + COMMITS):
            done = book.commit([segment(number, KINDS[number % 2])])
            require_shape(done, inline_max=INLINE_MAX, fanout=PART_FANOUT)
        average[size] = sum(book.written[1:]) / COMMITS
        assert len(book.ids("nodes")) + len(book.ids("edges")) == size + COMMITS
    assert average[100_000] < 5 * average[1_000]
    assert average[100_000] < whole / 100


@pytest.mark.usefixtures("small")
def test_a_segment_is_written_once_a_level() -> None:
    """G19: added up over 700 commits, and not once a commit."""
    book, count, levels = Book(), 700, 6
    for number in range(1, count + 1):
        book.commit([segment(number, KINDS[number % 2])])
    files = [book.store.get(info.key).data for page in book.store.list("") for info in page]
    listed = sum(len(decode_part(data, key="part", names=LAYOUT.names)) for data in files)
    assert count < listed <= count * levels


# -- with the kernel ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@given(st.lists(st.sampled_from(["add", "add", "add", "compact", "rollback", "collect", "purge"]), max_size=40))
@settings(max_examples=40)
def test_a_life_with_parts_loses_nothing(acts: list[str]) -> None:
    """G19, G12, I6: through commits, compactions, rollbacks, collections and purges every kept version is whole, and
    holds what it held when it was committed."""
    clock = VirtualClock()
    chain = chain_on(MemoryStore(), LAYOUT, clock=clock)
    model: dict[int, list[int]] = {}
    _commit(chain, model, added=1, removed=lambda _: [])
    for act in acts:
        clock.advance(7200)
        match act:
            case "add":
                _commit(chain, model, added=2, removed=lambda _: [])
            case "compact":
                _commit(chain, model, added=1, removed=lambda ids: ids[: len(ids) // 2], in_place=True)
            case "rollback" if len(chain.list_manifests()) > 1:
                chain.rollback(offset=1)
            case "collect":
                chain.collect(retention=2)
            case "purge":
                chain.purge(grace_s=0)
            case _:
                pass
        for kept in chain.list_manifests(100):
            held = expand(chain.handle, chain.load_manifest(kept.ref))
            assert [int(str(one.detail["segment_id"])) for one in held] == model[kept.manifest_id]
        assert chain.verify() == []


def _commit(
    chain: Chain,
    model: dict[int, list[int]],
    *,
    added: int,
    removed: Callable[[list[int]], list[int]],
    in_place: bool = False,
) -> None:
    base = chain.load_current()
    before = [] if base is None else model[base.manifest_id]
    numbers = list(reserve(chain.handle, LAYOUT.segment_ids_key, added))
    data = {number: f"segment {number}".encode() for number in numbers}
    coming = [
        replace(segment(number), byte_size=len(data[number]), checksum=content_hash(data[number])) for number in numbers
    ]
    leaving = removed(before)
    done = arrange(
        chain.handle,
        base,
        coming,
        leaving,
        new_part=lambda: LAYOUT.segment_part_key(reserve(chain.handle, LAYOUT.segment_ids_key)[0]),
        in_place=in_place,
    )
    with chain.lock() as guard:
        run = chain.begin_run(base=base, claims=(*(one.path for one in coming), *done.files))
        for one, number in zip(coming, numbers, strict=True):
            chain.store.put_new(one.path, data[number])
        for path, part in done.files.items():
            chain.store.put_new(path, part)
        draft = ManifestDraft(artifacts=done.artifacts)
        outcome = chain.publish(draft, run=run, permit=chain.permit(guard), base=base)
    assert isinstance(outcome, Committed)
    at = max((before.index(number) for number in leaving), default=len(before) - 1) + 1 if in_place else len(before)
    after = [*before[:at], *numbers, *before[at:]]
    model[outcome.manifest.manifest_id] = [number for number in after if number not in set(leaving)]
