"""What a manifest or a part lists, by path and size alone: a collector asks no more of thousands of them.

To make an object of every artifact would take most of its time. What is left out was checked when the manifest was
written, and `verify` checks it again. The bytes are those that were published: whoever asks here has compared their
hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from holdfast.chain.manifest import PARTS_KIND, Artifact, ArtifactNames
from holdfast.codec import Fields

__all__ = ["Listed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Everything that a record lists, and the parts among it."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """Path → bytes, of the parts too."""
    parts: tuple[Artifact, ...] = ()
    legacy: bool = False
    """A manifest of an older release: what it names is not known."""

    @classmethod
    def of_manifest(cls, data: bytes, *, key: str, names: ArtifactNames) -> Listed:
        """Of this format, or of an older release: any JSON object without a `format` field."""
        fields = Fields.decode(data, key=key, kind=None)
        if "format" not in fields.rest():
            return cls(legacy=True)
        fields.check_format("manifest")
        return cls._take(fields, names)

    @classmethod
    def of_part(cls, data: bytes, *, key: str, names: ArtifactNames) -> Listed:
        return cls._take(Fields.decode(data, key=key, kind="part"), names)

    @classmethod
    def _take(cls, fields: Fields, names: ArtifactNames) -> Listed:
        def path_and_size(artifact: Fields) -> tuple[str, int]:
            return artifact.text(names.path), artifact.number("byte_size")

        sizes: dict[str, int] = {}
        for list_name in names.lists.values():
            sizes |= fields.records(list_name, path_and_size)
        if names.parts_list is None:
            return cls(sizes=sizes)
        parts = fields.records(names.parts_list, partial(Artifact.from_fields, names=names, kind=PARTS_KIND))
        return cls(sizes=sizes | {part.path: part.byte_size for part in parts}, parts=parts)
