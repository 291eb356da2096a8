"""Wrong calls: each is refused with an error of its own, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.chain import Artifact, Chain, Committed, Manifest, ManifestDraft, open_chain
from holdfast.errors import (
    BadInput,
    HoldfastError,
    InvalidKey,
    InvariantViolation,
    NotAChain,
    RunIdInUse,
    RunSwept,
    SnapshotNotFound,
)
from tests.chain.publishing import (
    ChainFactory,
    contents,
    draft_of,
    everything,
    keys_below,
    publish_one,
    sha256,
    write_artifact,
)


def test_a_run_id_is_used_once(chain_factory: ChainFactory) -> None:
    """S42: a second run with the id is refused, whatever became of the first, and the first is not disturbed."""
    chain = chain_factory()
    publish_one(chain, b"one", run_id="nightly")
    with pytest.raises(RunIdInUse, match=r"'nightly' was used before .*now writing"):
        chain_factory(by="other").begin_run("nightly")
    live = chain.begin_run("live")
    with pytest.raises(RunIdInUse, match="writing"):
        chain_factory(by="other").begin_run("live")
    live.require_writing()


def test_a_run_publishes_once(chain_factory: ChainFactory) -> None:
    """S42: a run that is committed, failed or swept cannot be published."""
    chain = chain_factory()
    with chain.lock() as guard:
        run = chain.begin_run("once")
        draft = draft_of(chain, run, b"one")
        assert isinstance(chain.publish(draft, run=run, permit=chain.permit(guard)), Committed)
        with pytest.raises(RunIdInUse, match="published already"):
            chain.publish(draft, run=run, permit=chain.permit(guard))
        failed = chain.begin_run("failed")
        draft = draft_of(chain, failed, b"two")
        failed.fail("cancelled")
        with pytest.raises(RunIdInUse, match="already failed"):
            chain.publish(draft, run=failed, permit=chain.permit(guard))
        swept = chain.begin_run("swept", lease_s=1)
        draft = draft_of(chain, swept, b"three")
        chain_factory.clock.advance(2)
        chain_factory(by="collector").collect(retention=1)
        with pytest.raises(RunSwept):
            chain.publish(draft, run=swept, permit=chain.permit(guard))
    assert contents(chain_factory()) == {"part-0": b"one"}


@pytest.mark.parametrize("field", ["format", "manifest_id", "epoch", "parent_hash", "tags", "inputs", "run_id"])
def test_a_payload_may_not_use_the_manifests_own_fields(field: str) -> None:
    """S7: what the kernel writes cannot be overwritten by a model."""
    with pytest.raises(BadInput, match=field):
        ManifestDraft(payload={field: "mine"})


def test_a_payload_may_not_take_the_place_of_the_artifact_list(chain: Chain, chain_factory: ChainFactory) -> None:
    """S7: nor can the list of artifacts, by whatever name the layout has for it; nothing is written."""
    field = next(iter(chain.layout.names.lists.values()))
    with pytest.raises(BadInput, match=field):
        publish_one(chain, payload={field: []})
    assert not any(chain.layout.parse_manifest_key(key) for key in keys_below(chain_factory.store))


def test_an_artifact_of_an_unknown_kind_is_refused(chain: Chain) -> None:
    """S7: an artifact for which the manifest has no list would be lost, so there is no such publish."""
    with chain.lock() as guard:
        run = chain.begin_run()
        odd = replace(write_artifact(chain, run), kind="odd")
        with pytest.raises(BadInput, match="'odd'"):
            chain.publish(ManifestDraft(artifacts=(odd,)), run=run, permit=chain.permit(guard))
    assert chain.load_current() is None


def test_an_artifacts_detail_may_not_change_what_is_checked(chain: Chain) -> None:
    """S7: the size and checksum that readers see are those that were checked."""
    with chain.lock() as guard:
        run = chain.begin_run()
        lying = replace(write_artifact(chain, run), detail={"checksum": "sha256:0"})
        with pytest.raises(BadInput, match="checksum"):
            chain.publish(ManifestDraft(artifacts=(lying,)), run=run, permit=chain.permit(guard))
    assert chain.load_current() is None


def test_artifacts_that_the_run_never_claimed_are_refused(chain: Chain, chain_factory: ChainFactory) -> None:
    """S16, S42: a file of another run or of nobody could be collected under the snapshot's feet."""
    publish_one(chain, b"one")
    before = chain.load_current()
    assert before is not None
    nobodys = f"{chain.layout.artifact_prefixes[0]}/nobody/part-0"
    chain_factory.store.upload(nobodys, [b"x"])
    kind = next(iter(chain.layout.names.lists))
    stray = Artifact(path=nobodys, byte_size=1, row_count=1, checksum=sha256(b"x"), kind=kind)
    for artifact in (stray, before.artifacts[0]):
        with chain.lock() as guard:
            run = chain.begin_run()
            with pytest.raises(InvariantViolation, match="belongs neither to run"):
                chain.publish(ManifestDraft(artifacts=(artifact,)), run=run, permit=chain.permit(guard))
    assert chain_factory().load_current() == before


def test_a_base_that_is_neither_visible_nor_pinned_is_refused(chain: Chain, chain_factory: ChainFactory) -> None:
    """S42: sharing files with an old snapshot needs a pin, or the collector could take them meanwhile."""
    old: Manifest = publish_one(chain, b"one").manifest
    publish_one(chain, b"two")
    with chain.lock() as guard:
        run = chain.begin_run()
        draft = draft_of(chain, run, {"more": b"x"}, base=old)
        with pytest.raises(InvariantViolation, match="neither visible nor pinned"):
            chain.publish(draft, run=run, permit=chain.permit(guard), base=old)
        pinned = chain.begin_run(base=old)
        draft = draft_of(chain, pinned, {"more": b"x"}, base=old)
        assert isinstance(chain.publish(draft, run=pinned, permit=chain.permit(guard), base=old), Committed)
    assert contents(chain_factory()) == {"part-0": b"one", "more": b"x"}


def test_claims_stay_where_the_chain_keeps_artifacts(chain: Chain) -> None:
    """S42: a run may not claim the pointer, another chain's files or a place outside the store."""
    places = [
        chain.layout.pointer_key,
        chain.layout.lock_key,
        "elsewhere/x",
        f"{chain.layout.artifact_prefixes[0]}-not/x",
    ]
    for claim in places:
        with pytest.raises(BadInput, match="outside of where this chain keeps artifacts"):
            chain.begin_run(claims=(claim,))
    with pytest.raises(InvalidKey):
        chain.begin_run(claims=(f"{chain.layout.artifact_prefixes[0]}/../x",))
    assert keys_below(chain.store, chain.layout.run_prefix) == []


def test_the_same_artifact_twice_is_refused(chain: Chain) -> None:
    """S7: a manifest names each file once."""
    artifact = write_artifact(chain, chain.begin_run())
    with pytest.raises(BadInput, match="twice"):
        ManifestDraft(artifacts=(artifact, artifact))


@pytest.mark.parametrize(
    "changes",
    [{"path": "../x"}, {"path": ""}, {"byte_size": -1}, {"row_count": -1}, {"checksum": "abc"}],
    ids=lambda changes: next(iter(changes)),
)
def test_an_artifact_that_cannot_be_is_refused_when_it_is_made(changes: dict[str, object]) -> None:
    """S7: records validate when they are made."""
    fields: dict[str, object] = {"path": "a", "byte_size": 1, "row_count": 1, "checksum": "sha256:0"} | changes
    with pytest.raises(BadInput):
        Artifact(**fields)  # type: ignore[arg-type]


def test_a_path_that_is_no_chain_is_refused(chain: Chain, chain_factory: ChainFactory) -> None:
    """S26: asked of an empty place, every operation that needs a chain says that there is none, and creates nothing."""
    acts: list[Callable[[], object]] = [chain.rollback, chain.forward, chain.find]
    acts += [lambda: chain.collect(retention=1), chain.reconcile, lambda: chain.status("0" * 26)]
    for act in acts:
        with pytest.raises(NotAChain):
            act()
    assert chain.load_current() is None
    assert chain.list_manifests() == []
    assert everything(chain_factory.store) == {}


def test_an_url_without_a_chain_says_what_was_expected() -> None:
    """S26: nothing there, and two chains there, are two different errors, both with advice."""
    with pytest.raises(NotAChain, match="no chain at"):
        open_chain("memory://bad-input-empty")
    for name in ("kv", "graph"):
        publish_one(open_chain("memory://bad-input-two", layout=name))
    with pytest.raises(NotAChain, match="more than one chain"):
        open_chain("memory://bad-input-two")


def test_what_was_never_published_cannot_be_named(chain: Chain) -> None:
    """S11: offsets, run ids and refs outside the history are SnapshotNotFound, not an IndexError."""
    publish_one(chain)
    asks: list[Callable[[], object]] = [
        chain.rollback,
        lambda: chain.rollback(offset=1),
        lambda: chain.find(run_id="none"),
        lambda: chain.find(tag=("a", "b")),
        chain.forward,
    ]
    for ask in asks:
        with pytest.raises(SnapshotNotFound):
            ask()
    with pytest.raises(BadInput):
        chain.find(offset=-1)
    with pytest.raises(HoldfastError):
        chain.find(ref="nonsense")
