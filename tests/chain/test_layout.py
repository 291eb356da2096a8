"""Where things are, in each of the four layouts, and that keys read back as what they were spelled from."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.chain import Chain, Layout, domain_layout, graph_layout, kv_layout, layout_named, orchestration_layout
from holdfast.chain.layout import DOMAINS, ManifestKey, SegmentKey
from holdfast.errors import BadInput
from holdfast.storage.keys import check_key
from tests.chain.publishing import LAYOUTS, ChainFactory, keys_below, publish_one

MOMENT = datetime(2026, 3, 14, 10, 30, tzinfo=UTC)
ULID = "01KKNPWDX0WTXP2A6CG12GYV7F"

moments = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    timezones=st.just(UTC),
)
run_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", fullmatch=True)
layouts = st.sampled_from(list(LAYOUTS.values()))


def key_of(layout: Layout, manifest_id: int) -> str:
    return layout.manifest_key(manifest_id, published_at=MOMENT, run_id="nightly-7")


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_chain_is_where_the_contract_says(domain: str) -> None:
    """S2: pointer, snapshots and legacy mirror of a domain have these very keys."""
    layout = domain_layout(domain)
    assert layout.pointer_key == f"manifests/{domain}.pointer.json"
    assert key_of(layout, 7) == f"manifests/{domain}/00000000000000000007.json"
    assert layout.mirror_key == f"manifests/{domain}.manifest.json"
    assert layout.root_key == "manifests/root.manifest.json"
    assert layout.lock_key == f"locks/{domain}.lock.json"


def test_the_orchestration_chain_is_where_the_contract_says() -> None:
    """S3: pointer, snapshots and legacy mirror of orchestration have these very keys."""
    layout = orchestration_layout()
    assert layout.pointer_key == "state/orchestration/manifest.pointer.json"
    assert key_of(layout, 7) == "state/orchestration/manifests/00000000000000000007.json"
    assert layout.mirror_key == "state/orchestration/manifest.json"
    assert layout.lock_key == "locks/orchestration.lock.json"


def test_a_kv_chain_is_where_the_contract_says() -> None:
    """S4: pointer and snapshots of a key-value data set; the time is UTC with microseconds and a Z."""
    layout = kv_layout()
    assert layout.pointer_key == "_CURRENT"
    assert key_of(layout, 7) == "manifests/2026-03-14T10:30:00.000000Z_run_id=nightly-7/manifest"
    assert layout.mirror_key is None
    assert layout.lock_key == "locks/writer.lock.json"


def test_a_graph_chain_is_where_the_contract_says() -> None:
    """S5: pointer and snapshots of a graph data set, versions of six digits or more."""
    layout = graph_layout()
    assert layout.pointer_key == "current.json"
    assert key_of(layout, 7) == "manifests/000007.json"
    assert key_of(layout, 1234567) == "manifests/1234567.json"
    assert layout.mirror_key is None


@pytest.mark.parametrize(
    "name, beside",
    [("domain", "manifests/catalog."), ("orchestration", "state/orchestration/"), ("kv", ""), ("graph", "")],
)
def test_bookkeeping_is_beside_the_manifests(name: str, beside: str) -> None:
    """S2, S3, S4, S5: runs, moves, tags and collections of each layout have fixed places too: others may read them."""
    layout = LAYOUTS[name]
    assert layout.run_key("nightly-7") == f"{beside}runs/nightly-7.json"
    assert layout.moves_key(3) == f"{beside}moves/00000000000000000003.json"
    assert layout.tags_key == f"{beside}tags.json"
    assert layout.collection_key(ULID) == f"{beside}gc/{ULID}.json"


def test_a_publish_leaves_its_records_at_these_keys(chain: Chain, chain_factory: ChainFactory) -> None:
    """S2, S3, S4, S5: what is in the store after a publish is at the keys of the contract, and nothing else is."""
    done = publish_one(chain, b"one", run_id="nightly-7")
    layout = chain.layout
    own = {layout.pointer_key, layout.lock_key, layout.run_key("nightly-7"), done.manifest.artifacts[0].path}
    own |= {key for key in (layout.mirror_key, layout.root_key) if key is not None}
    stamp = done.manifest.published_at
    own.add(layout.manifest_key(done.manifest.manifest_id, published_at=stamp, run_id="nightly-7"))
    assert set(keys_below(chain_factory.store)) == own


@given(layouts, st.integers(min_value=0, max_value=10**20 - 1), moments, run_ids)
@example(graph_layout(), 10**6, MOMENT, "a")
def test_a_manifest_key_reads_back_as_what_it_was_spelled_from(
    layout: Layout, manifest_id: int, moment: datetime, run_id: str
) -> None:
    """S2, S3, S4, S5: parsing is the inverse of spelling, and so is the short ref."""
    key = check_key(layout.manifest_key(manifest_id, published_at=moment, run_id=run_id))
    parsed = layout.parse_manifest_key(key)
    if layout.timed_manifests:
        assert parsed == ManifestKey(manifest_id=None, published_at=moment, run_id=run_id)
    else:
        assert parsed == ManifestKey(manifest_id=manifest_id, published_at=None, run_id=None)
    assert layout.path_of(layout.ref_of(key)) == key
    assert layout.path_of(key) == key


@given(layouts, st.text(max_size=40))
@example(kv_layout(), "2026-03-14T10:30:00.000000+00:00_run_id=a/manifest")
@example(kv_layout(), "2026-03-14T10:30:00Z_run_id=a/manifest")
@example(kv_layout(), "20260314T103000.000000Z_run_id=a/manifest")
@example(kv_layout(), "2026-03-14T12:30:00.000000+02:00_run_id=a/manifest")
@example(graph_layout(), "0000007.json")
@example(graph_layout(), "²²²²²².json")
@example(graph_layout(), "٠٠٠٠٠٧.json")
@example(orchestration_layout(), "0" * 21 + ".json")
@example(orchestration_layout(), "0" * 20 + ".json.json")
def test_no_other_spelling_is_taken_for_a_manifest(layout: Layout, tail: str) -> None:
    """S1, S4, S5: a key that parses is exactly the key that would be spelled; anything else is no manifest."""
    key = f"{layout.manifest_prefix}/{tail}"
    parsed = layout.parse_manifest_key(key)
    if parsed is None:
        return
    spelled = layout.manifest_key(
        parsed.manifest_id or 0, published_at=parsed.published_at or MOMENT, run_id=parsed.run_id or "x"
    )
    assert spelled == key


@given(moments, moments, run_ids, run_ids)
def test_key_order_of_kv_manifests_is_time_order(one: datetime, other: datetime, first: str, second: str) -> None:
    """S4: whatever the run ids are, an earlier snapshot has a smaller key."""
    layout = kv_layout()
    if one == other:
        return
    keys = (
        layout.manifest_key(0, published_at=one, run_id=first),
        layout.manifest_key(1, published_at=other, run_id=second),
    )
    assert (keys[0] < keys[1]) == (one < other)


@pytest.mark.parametrize("layout_name", ["kv"])
def test_kv_keys_grow_even_while_the_clock_goes_back(chain_factory: ChainFactory) -> None:
    """S4: real publishes under a clock that goes back still have keys in the order of publishing."""
    chain = chain_factory()
    paths = []
    for turn in range(4):
        paths.append(publish_one(chain, run_id=f"{9 - turn}").manifest_path)
        chain_factory.clock.advance(-60)
    assert paths == sorted(paths)


@given(layouts, st.integers(min_value=0, max_value=10**20 - 1))
def test_a_segment_key_reads_back(layout: Layout, segment: int) -> None:
    """S6: the layout parses what it spells, segments of the log included."""
    assert layout.parse_moves_key(layout.moves_key(segment)) == segment


def test_the_segments_of_a_graph_are_where_the_contract_says() -> None:
    """G1: segments, parts and the record of their numbers have these very keys, with more digits where needed."""
    layout = graph_layout()
    assert layout.segment_key(7, "nodes") == "segments/seg_000007_nodes.seg"
    assert layout.segment_key(1234567, "edges") == "segments/seg_1234567_edges.seg"
    assert layout.segment_part_key(7) == "segments/parts/part_000007.json"
    assert layout.segment_ids_key == "segment_ids.json"


@given(st.integers(min_value=0, max_value=10**12), st.sampled_from(["nodes", "edges"]))
def test_a_graph_segments_key_reads_back(segment_id: int, kind: str) -> None:
    """G1, S6: the layout parses what it spells."""
    layout = graph_layout()
    key = check_key(layout.segment_key(segment_id, kind))
    assert layout.parse_segment_key(key) == SegmentKey(segment_id=segment_id, kind=kind)
    assert layout.parse_segment_part_key(key) is None
    part = check_key(layout.segment_part_key(segment_id))
    assert layout.parse_segment_part_key(part) == segment_id
    assert layout.parse_segment_key(part) is None


@given(st.text(max_size=40))
@example("seg_0000007_nodes.seg")
@example("seg_7_nodes.seg")
@example("seg_000007_odd.seg")
@example("seg_000007_nodes")
@example("seg_٠٠٠٠٠٧_nodes.seg")
@example("seg_-00007_nodes.seg")
@example("parts/part_7.json")
@example("parts/part_000007")
def test_no_other_spelling_is_taken_for_a_segment_of_a_graph(tail: str) -> None:
    """G1, S6: a key that parses is exactly the key that would be spelled."""
    layout = graph_layout()
    key = f"segments/{tail}"
    parsed = layout.parse_segment_key(key)
    assert parsed is None or layout.segment_key(parsed.segment_id, parsed.kind) == key
    part = layout.parse_segment_part_key(key)
    assert part is None or layout.segment_part_key(part) == key


def test_a_segment_of_no_kind_or_number_is_refused() -> None:
    """G3: the kind of a segment is stated, and one of those there are."""
    with pytest.raises(BadInput, match="nodes or edges"):
        graph_layout().segment_key(7, "odd")
    with pytest.raises(BadInput, match="not negative"):
        graph_layout().segment_key(-7, "nodes")


@given(st.text(max_size=140))
@example("")
@example(".")
@example("../x")
@example("a/b")
@example("a=b")
@example("a" * 129)
@example("é")
@example("a\n")
def test_a_run_id_that_would_change_the_shape_of_a_key_is_refused(run_id: str) -> None:
    """S4: a run id becomes part of keys, so it has no separators; every one that is accepted reads back."""
    layout = kv_layout()
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", run_id) is None:
        with pytest.raises(BadInput, match="run id"):
            layout.manifest_key(0, published_at=MOMENT, run_id=run_id)
        with pytest.raises(BadInput, match="run id"):
            layout.run_key(run_id)
        return
    key = layout.manifest_key(0, published_at=MOMENT, run_id=run_id)
    parsed = layout.parse_manifest_key(check_key(key))
    assert parsed is not None
    assert parsed.run_id == run_id
    assert check_key(layout.run_key(run_id))


@pytest.mark.parametrize("ref", ["", "x", "-1", "../7", "7.json", "2026-03-14", "00000000000000000007/manifest"])
def test_what_is_no_ref_is_refused_with_advice(layout: Layout, ref: str) -> None:
    """S2, S3, S4, S5: a ref that no layout spells is an error that says where to look."""
    with pytest.raises(BadInput, match="holdfast history"):
        layout.path_of(ref)


@pytest.mark.parametrize("name", ["kv", "graph", "orchestration", "domain:catalog", "domain:my-own_1"])
def test_a_layout_is_found_by_its_name(name: str) -> None:
    """S6: a chain URL's fragment names the layout, and the layout names itself the same."""
    assert layout_named(name).name == name


@pytest.mark.parametrize("name", ["", "sql", "domain", "domain:", "kv:x", "domain:root", "domain:Orch", "domain:a/b"])
def test_what_is_no_layout_is_refused(name: str) -> None:
    """S2: there is no default layout, and a domain cannot take the root's or another chain's place."""
    with pytest.raises(BadInput):
        layout_named(name)
