"""What older releases left of a domain's state, read as if this one had written it, and published anew (C4).

An old domain lies under an old name (`manifests/core.manifest.json`), or under its own with fields in camelCase. It may
have a pointer or only the one manifest. All of them are read; none is written, changed or deleted.

Moving forward copies the files into a run of the domain's own chain, each checked against its checksum, and publishes a
manifest of today that names them. Until that is visible everybody reads the old one, and a crash leaves no more than
files which no manifest names. From then on the old name is not looked at any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.catalog.domain_state import DomainState, StateFile, read_table
from holdfast.catalog.layout import LEDGER_DOMAINS
from holdfast.chain import Chain, Committed, Manifest, ManifestDraft
from holdfast.chain.layout import FORMER_NAMES, Layout, domain_layout
from holdfast.chain.legacy import decode_any_manifest
from holdfast.chain.pointer import Pointer
from holdfast.chain.root import read_root
from holdfast.codec import content_hash
from holdfast.errors import (
    Conflict,
    CorruptRecord,
    CorruptShard,
    HoldfastError,
    ObjectNotFound,
    StoreDenied,
    StoreUnavailable,
)
from holdfast.fencing import LockGuard
from holdfast.storage.capabilities import Reader

__all__ = ["Former", "canonical_name", "find_former", "former_layouts", "load_visible", "move_forward", "to_move"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """A manifest of an older release, and where it lies."""

    path: str
    manifest: Manifest

    def state(self, domain: str) -> DomainState:
        return DomainState.of_manifest(domain, self.manifest)


def canonical_name(domain: str) -> str:
    """What a domain is called today."""
    return FORMER_NAMES.get(domain, domain)


def former_layouts(domain: str) -> tuple[Layout, ...]:
    """Where older releases kept a domain, under the names that it had then."""
    return tuple(domain_layout(old) for old, name in FORMER_NAMES.items() if name == domain)


def load_visible(chain: Chain) -> Manifest | None:
    """The visible manifest of a domain: its chain's, or where it has none yet, the one under an old name."""
    found = chain.load_current()
    if found is not None:
        return found
    former = _find_in_workspace(chain)
    return None if former is None else former.manifest


def _find_in_workspace(chain: Chain) -> Former | None:
    """What the chain's own workspace has under old names. The root saves looking: what it names is not under those."""
    root = read_root(chain.handle)
    named = None if root is None else root[0].paths.get(chain.layout.root_field or "")
    if chain.layout.root_field is None or named == chain.layout.pointer_key:
        return None
    _, _, domain = chain.layout.name.partition(":")
    return find_former(Reader(chain.store), domain)


def find_former(read: Reader, domain: str, *, layouts: tuple[Layout, ...] | None = None) -> Former | None:
    """What lies under the old names of a domain; the newest, if there are several. None if nothing does."""
    found = [
        former
        for layout in (former_layouts(domain) if layouts is None else layouts)
        if (former := _former_at(read, layout)) is not None
    ]
    return max(found, key=_age, default=None)


def _age(former: Former) -> tuple[int, int, float]:
    version = former.manifest.payload.get("snapshot_version")
    return (
        version if isinstance(version, int) else 0,
        former.manifest.manifest_id,
        former.manifest.published_at.timestamp(),
    )


def _former_at(read: Reader, layout: Layout) -> Former | None:
    """By the pointer, if there is one that counts; else the one manifest that there was before pointers."""
    data = _get(read, layout.pointer_key)
    if data is not None:
        pointer = Pointer.decode(data, key=layout.pointer_key, id_field=layout.id_field)
        if pointer.publishing != "legacy":
            path = pointer.manifest_path
            named = _get(read, path)
            if named is None:
                raise CorruptRecord(path, "the manifest is missing")
            if pointer.manifest_hash not in {"", content_hash(named)}:
                raise CorruptRecord(path, f"its bytes hash to {content_hash(named)}, not to {pointer.manifest_hash}")
            return Former(path=path, manifest=decode_any_manifest(named, key=path, names=layout.names))
    if layout.mirror_key is None or (data := _get(read, layout.mirror_key)) is None:
        return None
    return Former(path=layout.mirror_key, manifest=decode_any_manifest(data, key=layout.mirror_key, names=layout.names))


def _get(read: Reader, key: str) -> bytes | None:
    try:
        return read.get(key).data
    except (ObjectNotFound, StoreDenied):  # so some stores answer where nothing is, to who may not list
        return None


def move_forward(
    chain: Chain,
    domain: str,
    visible: Manifest | None,
    lock: Callable[[], LockGuard],
    *,
    source: tuple[Reader, Former] | None = None,
) -> Manifest | None:
    """Publish what an older release left as a state of today; None if there is nothing to move.

    `visible` is the manifest that the next permit of the chain is for. `source` is what to take where nothing is
    visible; without one, what lies under the domain's old names.
    """
    found = to_move(chain, domain, visible, source=source)
    return None if found is None else _publish(chain, domain, lock(), *found)


def to_move(
    chain: Chain, domain: str, visible: Manifest | None, *, source: tuple[Reader, Former] | None = None
) -> tuple[Reader, Former] | None:
    """What `move_forward` would move, and with whose rights it is read."""
    if domain not in LEDGER_DOMAINS:
        return None  # the search index is built anew from what the catalog says
    if visible is None:
        former = _find_in_workspace(chain) if source is None else None
        return source if former is None else (Reader(chain.store), former)
    if not visible.legacy:
        return None
    seen = chain.seen or chain.handle.read_pointer()
    if seen is not None and seen.pointer.publishing == "legacy":
        return None  # it is kept there on purpose; the switch back brings it along
    path = chain.layout.mirror_key if seen is None else seen.pointer.manifest_path
    return Reader(chain.store), Former(path=path or "", manifest=visible)


def _publish(chain: Chain, domain: str, guard: LockGuard, read: Reader, former: Former) -> Manifest:
    state = former.state(domain)
    run = chain.begin_run()
    try:
        files = []
        for number, file in enumerate(state.files):
            rows, data = read_table(read, file), _checked(read, file)
            path = run.artifact_key(f"{file.table}-{number}.parquet")
            chain.store.upload(path, [data])
            files.append(replace(file, path=path, byte_size=len(data), row_count=len(rows)))
        state = replace(state, files=tuple(files))
        draft = ManifestDraft(artifacts=tuple(file.to_artifact() for file in files), payload=state.payload())
        why = f"moved forward from {former.path}"
        outcome = chain.publish(draft, run=run, permit=chain.permit(guard), why=why)
    except (HoldfastError, OSError) as error:
        if not isinstance(error, StoreUnavailable):  # an outcome that nobody knows is left to the lease
            run.give_up(error)
        raise
    if not isinstance(outcome, Committed):
        raise Conflict(f"{domain} was not moved forward ({outcome}); nothing was lost: do it again")
    return outcome.manifest


def _checked(read: Reader, file: StateFile) -> bytes:
    data = read.get(file.path).data
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != file.checksum:
        raise CorruptShard(file.path, "it was changed while it was copied")
    return data
