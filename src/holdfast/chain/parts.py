"""Parts: what a large manifest names outside of itself, so that a commit writes what changes and not the whole (G19).

1. A part is an immutable file that lists artifacts, in a manifest's own words. It is itself an artifact of the manifest
   that names it, with a size and a checksum, and is written, claimed, shared and collected like any other.
2. Parts do not nest, and nothing is named twice: a snapshot is what its manifest lists and what its parts list.
3. The order is that of age: first what the parts list, part by part, then what the manifest lists itself; within each,
   kind by kind.
4. Whoever needs everything that a snapshot names asks here. A manifest without parts costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from holdfast.chain.handle import ChainHandle
from holdfast.chain.listed import Listed
from holdfast.chain.manifest import PARTS_KIND, Artifact, ArtifactNames, Manifest, spell_artifacts, take_artifacts
from holdfast.codec import Fields, content_hash, encode_record, format_stamp
from holdfast.errors import BadInput, CorruptRecord, ObjectNotFound

__all__ = ["PartReader", "decode_part", "describe_part", "encode_part", "expand", "parts_of", "read_part"]

READS_IN_FLIGHT_MAX = 16
READ_TOGETHER_FROM = 8
"""So many parts are worth a few threads; fewer are read one after the other."""

_NOTHING: Mapping[str, int] = MappingProxyType({})


def parts_of(names: ArtifactNames, artifacts: Iterable[Artifact]) -> tuple[Artifact, ...]:
    """Those artifacts that are parts, in their order."""
    if names.parts_list is None:
        return ()
    return tuple(artifact for artifact in artifacts if artifact.kind == PARTS_KIND)


def encode_part(artifacts: Sequence[Artifact], names: ArtifactNames) -> bytes:
    """The file of a part."""
    if any(artifact.kind == PARTS_KIND for artifact in artifacts):
        raise BadInput("a part lists artifacts, not other parts")
    if not artifacts or len({artifact.path for artifact in artifacts}) < len(artifacts):
        raise BadInput("a part lists at least one artifact, and each of them once")
    return encode_record({"format": format_stamp("part"), **spell_artifacts(artifacts, names)})


def describe_part(
    path: str, data: bytes, artifacts: Sequence[Artifact], *, detail: Mapping[str, object] | None = None
) -> Artifact:
    """How a manifest names the part at `path`, which holds `data`. Its row count is that of what it lists."""
    return Artifact(
        path=path,
        byte_size=len(data),
        row_count=sum(artifact.row_count for artifact in artifacts),
        checksum=content_hash(data),
        kind=PARTS_KIND,
        detail=detail or {},
    )


def decode_part(data: bytes, *, key: str, names: ArtifactNames) -> tuple[Artifact, ...]:
    """What a part lists; CorruptRecord says what is wrong with it."""
    artifacts = take_artifacts(Fields.decode(data, key=key, kind="part"), names)
    if any(artifact.kind == PARTS_KIND for artifact in artifacts):
        raise CorruptRecord(key, "it names another part")
    if not artifacts or len({artifact.path for artifact in artifacts}) < len(artifacts):
        raise CorruptRecord(key, "it lists nothing, or something twice")
    return artifacts


def read_part(handle: ChainHandle, part: Artifact) -> tuple[Artifact, ...]:
    """What the stored part lists, once its bytes are those that `part` describes. CorruptRecord otherwise."""
    artifacts = decode_part(_part_bytes(handle, part), key=part.path, names=handle.layout.names)
    if sum(artifact.row_count for artifact in artifacts) != part.row_count:
        raise CorruptRecord(part.path, f"what it lists has not the {part.row_count} rows that its manifest says")
    return artifacts


def _part_bytes(handle: ChainHandle, part: Artifact) -> bytes:
    try:
        data = handle.store.get(part.path).data
    except ObjectNotFound:
        raise CorruptRecord(part.path, "the part is missing") from None
    if (found := content_hash(data)) != part.checksum:
        raise CorruptRecord(part.path, f"its bytes hash to {found}, not to {part.checksum}")
    return data


class PartReader:
    """Reads each part once, however many snapshots share it. For one operation; not for keeping."""

    def __init__(self, handle: ChainHandle) -> None:
        self._handle = handle
        self._artifacts: dict[tuple[str, str], tuple[Artifact, ...]] = {}
        self._sizes: dict[tuple[str, str], Mapping[str, int]] = {}

    def load(self, part: Artifact) -> tuple[Artifact, ...]:
        """What a part lists."""
        return self.load_all((part,))[0]

    def load_all(self, parts: Sequence[Artifact]) -> list[tuple[Artifact, ...]]:
        """What each of them lists; many are read at once."""
        missing = list({_identity(part): part for part in parts if _identity(part) not in self._artifacts}.values())
        if len(missing) < READ_TOGETHER_FROM:
            found = [read_part(self._handle, part) for part in missing]
        else:
            with ThreadPoolExecutor(READS_IN_FLIGHT_MAX, "holdfast-parts") as pool:
                found = list(pool.map(lambda part: read_part(self._handle, part), missing))
        self._artifacts |= {_identity(part): held for part, held in zip(missing, found, strict=True)}
        return [self._artifacts[_identity(part)] for part in parts]

    def sizes(self, part: Artifact) -> Mapping[str, int]:
        """Path and size of everything that a part lists. Only this is remembered: a collector looks at very many."""
        found = self._sizes.get(_identity(part))
        if found is None:
            data = _part_bytes(self._handle, part)
            found = Listed.of_part(data, key=part.path, names=self._handle.layout.names).sizes
            self._sizes[_identity(part)] = found
        return found

    def named_by(self, listed: Listed) -> dict[str, Mapping[str, int]]:
        """The path of everything that a manifest lists, and, of those that are parts, of everything they list in turn.

        Not flat, because thousands of snapshots share their parts: whoever asks for many looks into each but once.
        """
        found: dict[str, Mapping[str, int]] = dict.fromkeys(listed.sizes, _NOTHING)
        return found | {part.path: self.sizes(part) for part in listed.parts}

    def expand(self, manifest: Manifest) -> tuple[Artifact, ...]:
        """Every artifact of a snapshot but the parts themselves, in the order of age. CorruptRecord if one of them is
        named twice."""
        parts = parts_of(self._handle.layout.names, manifest.artifacts)
        if not parts:
            return manifest.artifacts
        found = [artifact for held in self.load_all(parts) for artifact in held]
        found += [artifact for artifact in manifest.artifacts if artifact.kind != PARTS_KIND]
        if len({artifact.path for artifact in found}) < len(found):
            raise CorruptRecord(
                parts[0].path, f"it, or another part of manifest {manifest.manifest_id}, repeats others"
            )
        return tuple(found)


def expand(handle: ChainHandle, manifest: Manifest) -> tuple[Artifact, ...]:
    """Every artifact of one snapshot but its parts, those inside the parts included; see `PartReader.expand`."""
    return PartReader(handle).expand(manifest)


def _identity(part: Artifact) -> tuple[str, str]:
    return part.path, part.checksum
