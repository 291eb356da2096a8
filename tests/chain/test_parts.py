"""Parts: the file, looking into it, and publishing manifests that have some."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace

import orjson
import pytest

from holdfast.chain import Artifact, Chain, Committed, Manifest, ManifestDraft, kv_layout
from holdfast.chain.commit import publish as commit_publish
from holdfast.chain.listed import Listed
from holdfast.chain.manifest import PARTS_KIND
from holdfast.chain.parts import PartReader, decode_part, encode_part, expand, parts_of
from holdfast.errors import BadInput, CorruptRecord, InvariantViolation, UnsupportedFormat
from holdfast.testing.faulty import CountingStore
from tests.chain.part_writer import Writer, current, delete, names_of
from tests.chain.publishing import ChainFactory, overwrite, sha256, write_artifact

pytestmark = pytest.mark.parametrize("layout_name", ["graph"])


@pytest.fixture
def writer(chain: Chain) -> Iterator[Writer]:
    with chain.lock(ttl_s=1e9) as guard:
        yield Writer(chain, guard)


def artifact_at(path: str, *, kind: str = "nodes") -> Artifact:
    return Artifact(path=path, byte_size=1, row_count=1, checksum="sha256:00", kind=kind, detail={"segment_id": 7})


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_part_is_spelled_like_a_manifest_and_read_back(chain: Chain) -> None:
    """G19: the same lists with the same fields, under a format of its own; nothing gets lost."""
    held = (artifact_at("segments/a"), artifact_at("segments/b"), artifact_at("segments/c", kind="edges"))
    data = encode_part(held, chain.layout.names)
    stored = orjson.loads(data)
    assert stored["format"] == "holdfast.part/1.0"
    assert [each["file_path"] for each in stored["node_segments"]] == ["segments/a", "segments/b"]
    assert [each["segment_id"] for each in stored["edge_segments"]] == [7]
    assert decode_part(data, key="part", names=chain.layout.names) == held


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "format"),
        ('{"format": "holdfast.manifest/1.0"}', "format"),
        ('{"format": "holdfast.part/1.0"}', "lists nothing"),
        ('{"format": "holdfast.part/1.0", "node_segments": {}}', "node_segments"),
        ('{"format": "holdfast.part/1.0", "node_segments": [{}]}', "file_path"),
        ('{"format": "holdfast.part/1.0", "node_segments": [ONE, ONE]}', "twice"),
        ('{"format": "holdfast.part/1.0", "node_segments": [ONE], "edge_segments": [ONE]}', "twice"),
        ('{"format": "holdfast.part/1.0", "node_segments": [ONE], "segment_parts": [TWO]}', "another part"),
    ],
)
def test_what_is_no_part_is_damage(chain: Chain, text: str, why: str) -> None:
    """G19: whatever is wrong with it, the error names the key and says what."""
    for name, path in (("ONE", "segments/a"), ("TWO", "segments/b")):
        text = text.replace(
            name, f'{{"file_path": "{path}", "byte_size": 1, "record_count": 1, "checksum": "sha256:00"}}'
        )
    with pytest.raises(CorruptRecord, match=why):
        decode_part(text.encode(), key="segments/parts/part_000001.json", names=chain.layout.names)


def test_a_newer_part_is_refused(chain: Chain) -> None:
    """S9: a higher major needs a newer release."""
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        decode_part(b'{"format": "holdfast.part/2.0"}', key="part", names=chain.layout.names)


def test_a_part_that_cannot_be_right_is_not_written(chain: Chain) -> None:
    """G19: no part in a part, nothing twice, and none without anything."""
    names, one = chain.layout.names, artifact_at("segments/a")
    for wrong in ((), (one, one), (one, artifact_at("segments/b", kind=PARTS_KIND))):
        with pytest.raises(BadInput, match="a part lists"):
            encode_part(wrong, names)


def test_a_manifest_names_its_parts_in_a_list_of_their_own(writer: Writer) -> None:
    """G19: and one without parts does not have the list at all."""
    plain = writer.publish(writer.segment("a"))
    assert "segment_parts" not in orjson.loads(writer.chain.store.get(plain.manifest_path).data)
    part = writer.part(writer.segment("b"), writer.segment("c"))
    done = writer.publish(part, writer.segment("d"))
    stored = orjson.loads(writer.chain.store.get(done.manifest_path).data)
    [told] = stored["segment_parts"]
    assert (told["file_path"], told["record_count"], told["checksum"], told["level"]) == (
        part.path,
        4,
        sha256(writer.chain.store.get(part.path).data),
        0,
    )
    loaded = writer.chain.load_current()
    assert loaded is not None
    assert names_of(loaded.artifacts) == ["d", "part_000001.json"]
    assert parts_of(writer.chain.layout.names, loaded.artifacts) == (part,)
    assert loaded.row_count == 6


def test_no_other_layout_has_parts(writer: Writer) -> None:
    """G19: elsewhere an artifact of that kind is one that the manifest has no list for."""
    other = ChainFactory(layout=kv_layout())()
    with other.lock() as guard:
        run = other.begin_run()
        odd = replace(write_artifact(other, run), kind=PARTS_KIND)
        with pytest.raises(BadInput, match="'parts'"):
            other.publish(ManifestDraft(artifacts=(odd,)), run=run, permit=other.permit(guard))
    assert writer.chain.load_current() is None


# -- looking into them -------------------------------------------------------------------------------------------------


def test_what_a_snapshot_names_is_in_the_order_of_age(writer: Writer) -> None:
    """G19: part by part, then what the manifest lists itself, kind by kind in each."""
    first = writer.part(writer.segment("a"), writer.segment("b", kind="edges"), writer.segment("c"))
    second = writer.part(writer.segment("d"))
    done = writer.publish(writer.segment("e", kind="edges"), second, writer.segment("f"), first)
    loaded = writer.chain.load_current()
    assert loaded is not None
    assert names_of(expand(writer.chain.handle, done.manifest)) == ["d", "a", "c", "b", "e", "f"]
    assert names_of(expand(writer.chain.handle, loaded)) == ["d", "a", "c", "b", "f", "e"]


def test_a_manifest_without_parts_costs_no_request(writer: Writer, chain_factory: ChainFactory) -> None:
    """G19: and each part costs one, however often it is asked for."""
    plain = writer.publish(writer.segment("a")).manifest
    part = writer.part(writer.segment("b"))
    done = writer.publish(part).manifest
    names = writer.chain.layout.names
    listed = Listed.of_manifest(done.encode(names), key="manifest", names=names)
    counting = CountingStore(chain_factory.store)
    reader = PartReader(chain_factory(store=counting).handle)
    assert reader.expand(plain) == plain.artifacts
    assert counting.counts == {}
    for _ in range(3):
        assert names_of(reader.expand(done)) == ["b"]
        assert reader.load(part) == reader.expand(done)
        assert reader.named_by(listed) == {part.path: {"segments/b": len("rows of b")}}
    assert counting.counts == {"get": 2}  # the paths are kept apart from the rest, which is large


def test_many_parts_are_read_together(writer: Writer) -> None:
    """G19: in threads, and in their order all the same."""
    parts = [writer.part(writer.segment(f"s{number:02d}")) for number in range(20)]
    done = writer.publish(*parts)
    assert names_of(expand(writer.chain.handle, done.manifest)) == [f"s{number:02d}" for number in range(20)]


def test_a_damaged_part_is_found_before_it_is_believed(writer: Writer, chain_factory: ChainFactory) -> None:
    """G19: missing, changed, or other than its manifest says: CorruptRecord, with its key."""
    part = writer.part(writer.segment("a"), writer.segment("b"))
    done = writer.publish(part).manifest
    handle = writer.chain.handle
    wrong = replace(done, artifacts=(replace(part, row_count=5),))
    with pytest.raises(CorruptRecord, match="5 rows"):
        expand(handle, wrong)
    other = encode_part([writer.segment("a")], writer.chain.layout.names)
    overwrite(chain_factory.store, part.path, other)
    with pytest.raises(CorruptRecord, match="hash"):
        expand(handle, done)
    delete(chain_factory.store, part)
    with pytest.raises(CorruptRecord, match="missing"):
        expand(handle, done)
    chain_factory.expect_damage()


def test_a_snapshot_that_names_something_twice_is_damaged(writer: Writer) -> None:
    """G19: in two parts, or in a part and in the manifest."""
    one, both = writer.part(writer.segment("a")), writer.part(writer.segment("a"), writer.segment("b"))
    done = writer.publish(one).manifest
    for artifacts in ((one, both), (one, writer.segment("a"))):
        with pytest.raises(CorruptRecord, match="repeats"):
            expand(writer.chain.handle, replace(done, artifacts=artifacts))


# -- publishing --------------------------------------------------------------------------------------------------------


def test_what_a_new_part_lists_must_be_there(writer: Writer, chain_factory: ChainFactory) -> None:
    """S16, G19: a segment that is missing or of another size inside a part stops the commit like any other."""
    here, gone = writer.segment("a"), writer.segment("b")
    part = writer.part(here, gone)
    delete(chain_factory.store, gone)
    with pytest.raises(InvariantViolation, match="'segments/b' is missing"):
        writer.publish(part)
    with pytest.raises(InvariantViolation, match="bytes instead of"):
        writer.publish(writer.part(replace(here, byte_size=99)))
    lost = writer.part(here)
    delete(chain_factory.store, lost)
    with pytest.raises(InvariantViolation, match=r"the part is missing.*nothing was published"):
        writer.publish(lost, claims=["segments"])
    assert chain_factory().load_current() is None


def test_a_part_may_not_smuggle_in_what_nobody_keeps(writer: Writer) -> None:
    """S42, G19: what a new part lists is the run's or the base's; a file of another run could be collected."""
    base = writer.publish(writer.part(writer.segment("a")), writer.segment("b")).manifest
    part = writer.part(writer.segment("a"), writer.segment("b"), writer.segment("nobodys"))
    with pytest.raises(InvariantViolation, match="'segments/nobodys' belongs neither"):
        writer.publish(part, base=base, claims=[part.path])
    with pytest.raises(InvariantViolation, match="'segments/a' belongs neither"):
        writer.publish(part, claims=[part.path, "segments/nobodys"])
    with pytest.raises(InvariantViolation, match=r"part_000001.json' belongs neither"):
        writer.publish(*base.artifacts, claims=["segments/b"])
    assert current(writer.chain).manifest_id == base.manifest_id


def test_what_the_base_has_may_move_between_parts_and_the_manifest(writer: Writer, chain_factory: ChainFactory) -> None:
    """G19: into a part, from several parts into one, and back: it belongs to the base, wherever that names it."""
    segments = [writer.segment(name) for name in "abcd"]
    one = writer.publish(*segments).manifest
    parts = [writer.part(*segments[:2]), writer.part(segments[2])]
    two = writer.publish(*parts, segments[3], base=one).manifest
    merged = writer.part(*segments)
    three = writer.publish(merged, base=two).manifest
    four = writer.publish(*segments[1:], base=three).manifest
    found = [names_of(expand(writer.chain.handle, each)) for each in (one, two, three, four)]
    assert found == [["a", "b", "c", "d"]] * 3 + [["b", "c", "d"]]
    assert chain_factory.breaks() == []


def test_a_part_that_contradicts_the_base_is_refused(writer: Writer) -> None:
    """I3, G19: the same file cannot have two checksums, nor be named twice in one draft."""
    segment = writer.segment("a")
    base = writer.publish(segment).manifest
    with pytest.raises(InvariantViolation, match="not described as in the base"):
        writer.publish(writer.part(replace(segment, checksum="sha256:00")), base=base)
    with pytest.raises(InvariantViolation, match="named twice"):
        writer.publish(writer.part(segment), segment, base=base)
    with pytest.raises(InvariantViolation, match="named twice"):
        writer.publish(writer.part(segment), writer.part(segment), base=base)
    assert writer.chain.load_current() == base


def test_a_commit_on_top_of_parts_costs_what_it_lists(writer: Writer, chain_factory: ChainFactory) -> None:
    """S16, G19: one head for each artifact that the manifest lists, none for what shared parts list, and no read of
    them; a new part is read once, and only what the base does not have is asked for."""
    parts = [writer.part(*(writer.segment(f"s{place}-{number}") for number in range(5))) for place in range(3)]
    base = writer.publish(*parts, writer.segment("a"), writer.segment("b")).manifest
    counting = CountingStore(chain_factory.store)
    chain = chain_factory(store=counting)

    def cost(*artifacts: Artifact, base: Manifest, claims: Sequence[str]) -> dict[str, int]:
        run = chain.begin_run(base=base, claims=tuple(claims))
        permit = chain.permit(writer.guard)
        seen = chain.handle.read_pointer()
        counting.reset()
        done = commit_publish(
            chain.handle, ManifestDraft(artifacts=artifacts), run=run, permit=permit, seen=seen, by="w", base=base
        )
        assert isinstance(done, Committed)
        return {kind: counting.counts.get(kind, 0) for kind in ("get", "head")}

    new = writer.segment("c")
    assert cost(*base.artifacts, new, base=base, claims=[new.path]) == {"get": 1, "head": 6}  # its own run record
    base = current(chain)
    inline = [artifact for artifact in base.artifacts if artifact.kind != PARTS_KIND]
    newest = writer.segment("d")
    part = writer.part(*inline, newest)
    assert cost(*parts, part, base=base, claims=[part.path, newest.path]) == {"get": 2, "head": 5}


def test_a_layout_with_parts_pickles(chain: Chain) -> None:
    """G19: executors are given handles; the layout's own functions go with them."""
    assert pickle.loads(pickle.dumps(chain.layout)) == chain.layout
