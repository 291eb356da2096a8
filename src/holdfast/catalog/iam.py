"""What each principal may do, in the terms that clouds know: verbs on prefixes.

There is one table, the bundles of `holdfast.storage.principals`, and it is not written down a second time here. A
bundle is made over a store that takes notes, each of its methods is tried on every folder of a workspace, and what
got through is a right. So a policy says what the code says, in the keys that the code makes, and follows it by itself.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from holdfast.catalog.iam_witness import Verb, Witness
from holdfast.catalog.layout import workspace_prefix
from holdfast.errors import BadInput, ScopeEscape
from holdfast.storage.objects import ObjectStore, Version
from holdfast.storage.principals import Capabilities, grant
from holdfast.storage.scope import scope

__all__ = ["FOLDERS", "PRINCIPALS", "PRINCIPALS_ALL", "Place", "Rights", "describe", "rights_of"]

FOLDERS = ("ledger", "state", "l0", "manifests", "locks", "datasets")
"""What is tried. A test sees that no capability names a folder that is missing here."""

_BUNDLES: Mapping[str, Callable[[ObjectStore], Capabilities]] = {
    "api": lambda store: grant(store, "api"),
    "pipeline": lambda store: grant(store, "pipeline"),
    "compactor-fastpath": lambda store: grant(store, "compactor-fastpath"),
    "compactor-antientropy": lambda store: grant(store, "compactor-antientropy"),
    "reader": lambda store: grant(store, "reader"),
    "collector": lambda store: grant(store, "collector"),
}

PRINCIPALS_ALL = tuple(_BUNDLES)
PRINCIPALS = tuple(name for name in PRINCIPALS_ALL if name != "collector")
"""The principals of a running workspace. Who deletes is given that right beside another, and only when asked for."""

_ROOT_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_=.-]{0,99}")
_ELSEWHERE = "elsewhere"
_LEAF = "sample"

Rights = Mapping[Verb, tuple[str, ...]]
"""Each verb with the prefixes it is allowed below. A prefix ends with `/`, so that `ledger/` is not `ledger-old/`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A workspace in a bucket.

    Its names become part of patterns and expressions in three languages, in each of which other characters mean
    something: `*` in one, a quote in another. So they are plain, and nothing has to be escaped.
    """

    bucket: str
    tenant: str
    workspace: str
    root: str = ""

    def __post_init__(self) -> None:
        workspace_prefix(self.tenant, self.workspace)
        for part in self.root.split("/") if self.root else ():
            if not _ROOT_PART.fullmatch(part):
                raise BadInput(
                    f"root {self.root!r}: use folders of up to 100 letters, digits, or . _ = -, starting with a letter "
                    "or digit, so that no policy language reads more into them"
                )

    @property
    def prefix(self) -> str:
        """What every key of the workspace begins with."""
        witness = Witness()
        self.scoped(witness).get(_LEAF)
        return _folder_of(*witness.notes[0])

    @property
    def name(self) -> str:
        """The workspace in names that know no slashes. No tenant has a `+`, so no two workspaces are called alike."""
        return f"{self.tenant}+{self.workspace}"

    def scoped(self, store: ObjectStore) -> ObjectStore:
        """The workspace in a store of the whole bucket, as every part of the program reaches it."""
        return scope(scope(store, self.root), workspace_prefix(self.tenant, self.workspace))


def rights_of(principal: str, place: Place) -> Rights:
    """What the principal may do in the workspace.

    Two things come with others, because the requests need them: who replaces an object reads its version first, and
    who uploads in parts looks at what arrived.
    """
    bundle_on = _BUNDLES.get(principal)
    if bundle_on is None:
        raise BadInput(f"{principal!r} is no principal; use {', '.join(PRINCIPALS_ALL)}")
    found: dict[Verb, tuple[str, ...]] = {}
    for folder in FOLDERS:
        _note(found, _tried(bundle_on, place, folder))
    everywhere = _tried(bundle_on, place, _ELSEWHERE)
    for verb in {verb for verb, _ in everywhere}:
        found[verb] = (place.prefix,)
    for verb in (Verb.REPLACE, Verb.UPLOAD):
        if place.prefix not in found.get(Verb.READ, ()):
            _note(found, [(Verb.READ, prefix) for prefix in found.get(verb, ())])
    return {verb: found[verb] for verb in Verb if verb in found}


def describe(principal: str) -> str:
    """What the principal is, on one line: what its bundle says of itself."""
    return " ".join((inspect.getdoc(type(_BUNDLES[principal](Witness()))) or "").split())


def _tried(bundle_on: Callable[[ObjectStore], Capabilities], place: Place, folder: str) -> list[tuple[Verb, str]]:
    """What a bundle could do in one folder: each verb that reached the store, with the prefix it reached it at."""
    witness = Witness()
    bundle = bundle_on(place.scoped(witness))
    arguments = _arguments(folder)
    for field in dataclasses.fields(bundle):
        capability = getattr(bundle, field.name)
        for name in (one for one in dir(capability) if not one.startswith("_")):
            method = getattr(capability, name)
            needed = [one for one in inspect.signature(method).parameters.values() if one.default is one.empty]
            try:
                method(**{one.name: arguments[one.name] for one in needed})
            except ScopeEscape:
                continue
    return [(verb, _folder_of(verb, key)) for verb, key in witness.notes]


def _arguments(folder: str) -> dict[str, object]:
    """What to call a method with, by the names of its parameters. A name that is new fails, which a test would see."""
    key = PurePosixPath(folder, _LEAF).as_posix()
    version = Version('"noted"')
    return {
        "key": key,
        "keys": [key],
        "prefix": folder,
        "data": b"",
        "chunks": [b""],
        "expected": version,
        "known": version,
        "start": 0,
        "length": 1,
    }


def _folder_of(verb: Verb, key: str) -> str:
    """`a/b/` for the key `a/b/sample`, and for the listed folder `a/b`."""
    whole = PurePosixPath(key, _LEAF).as_posix() if verb is Verb.LIST else key
    return whole.removesuffix(_LEAF)


def _note(found: dict[Verb, tuple[str, ...]], rights: list[tuple[Verb, str]]) -> None:
    for verb, prefix in rights:
        if prefix not in found.get(verb, ()):
            found[verb] = (*found.get(verb, ()), prefix)
