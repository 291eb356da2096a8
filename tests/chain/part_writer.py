"""A graph chain whose manifests have parts, written by hand: the kernel does not care who decides what goes where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.chain import Artifact, Chain, Committed, Manifest, ManifestDraft
from holdfast.chain.manifest import PARTS_KIND
from holdfast.chain.parts import describe_part, encode_part, expand, read_part
from holdfast.errors import CorruptRecord
from holdfast.fencing import LockGuard
from holdfast.storage import ObjectStore
from tests.chain.publishing import keys_below, sha256


@dataclass
class Writer:
    """Publishes segments, listed by the manifest or in parts."""

    chain: Chain
    guard: LockGuard
    number: int = 0

    def segment(self, name: str, *, kind: str = "nodes") -> Artifact:
        """A file that the next run claims."""
        data = f"rows of {name}".encode()
        path = f"segments/{name}"
        if path not in keys_below(self.chain.store, "segments"):
            self.chain.store.upload(path, [data])
        return Artifact(path=path, byte_size=len(data), row_count=2, checksum=sha256(data), kind=kind)

    def part(self, *held: Artifact) -> Artifact:
        """A part that the next run claims."""
        self.number += 1
        path, data = f"segments/parts/part_{self.number:06d}.json", encode_part(held, self.chain.layout.names)
        self.chain.store.upload(path, [data])
        return describe_part(path, data, held, detail={"level": 0})

    def publish(
        self, *artifacts: Artifact, base: Manifest | None = None, claims: Sequence[str] | None = None
    ) -> Committed:
        known = {artifact.path for artifact in (() if base is None else expand(self.chain.handle, base))}
        fresh = [artifact for artifact in artifacts if artifact.kind == PARTS_KIND or artifact.path not in known]
        inside = [held.path for part in fresh if part.kind == PARTS_KIND for held in self._held(part)]
        mine = [artifact.path for artifact in fresh] + [path for path in inside if path not in known]
        run = self.chain.begin_run(base=base, claims=tuple(mine if claims is None else claims) or ("segments/none",))
        draft = ManifestDraft(artifacts=artifacts)
        done = self.chain.publish(draft, run=run, permit=self.chain.permit(self.guard), base=base)
        assert isinstance(done, Committed), done
        return done

    def _held(self, part: Artifact) -> tuple[Artifact, ...]:
        try:
            return read_part(self.chain.handle, part)
        except CorruptRecord:
            return ()


def names_of(artifacts: Sequence[Artifact]) -> list[str]:
    return [artifact.path.rpartition("/")[2] for artifact in artifacts]


def delete(store: ObjectStore, *artifacts: Artifact) -> None:
    """Damage: a disk loses files."""
    store.delete([artifact.path for artifact in artifacts])


def current(chain: Chain) -> Manifest:
    manifest = chain.load_current()
    assert manifest is not None
    return manifest
