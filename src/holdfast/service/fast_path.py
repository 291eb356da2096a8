"""A root in which nothing can be done but what the compactor's fast path is granted (C9).

The service is often run with more rights than it needs. Here every request of it goes through the capabilities of its
principal, in the one workspace that it serves: it cannot list, it cannot delete, it cannot write a lock or an event,
and it cannot name another tenant, whatever a request asks for and whatever the credentials would allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

from holdfast.catalog.layout import workspace_prefix
from holdfast.catalog.workspace import Workspace
from holdfast.errors import ScopeEscape, StoreDenied
from holdfast.storage.capabilities import Reader
from holdfast.storage.objects import (
    PAGE_SIZE_DEFAULT,
    AsyncObjectReader,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    Version,
)
from holdfast.storage.principals import FastPathCapabilities, grant
from holdfast.storage.scope import scope

__all__ = ["FastPathRoot", "confined"]

_PUBLISHED = ("manifests/",)


def confined(workspace: Workspace) -> tuple[Workspace, FastPathCapabilities]:
    """The same workspace with the rights of the fast path and no others, and those rights."""
    root = FastPathRoot(workspace.root, workspace_prefix(workspace.tenant, workspace.name))
    return replace(workspace, root=root), root.rights


class FastPathRoot:
    """An ObjectStore over the capabilities of the fast path. Keys are those of the whole root."""

    def __init__(self, root: ObjectStore, folder: str) -> None:
        inside = scope(root, folder)
        self.rights = grant(inside, "compactor-fastpath")
        self._folder = folder
        self._url = root.url
        self.conditional_writes_trusted = bool(getattr(inside, "conditional_writes_trusted", False))

    @property
    def url(self) -> str:
        return self._url

    def _inside(self, key: str) -> str:
        if not key.startswith(f"{self._folder}/"):
            raise ScopeEscape(f"{key!r} is outside of {self._folder!r}, the workspace that is served")
        return key[len(self._folder) + 1 :]

    def _outside(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, key=f"{self._folder}/{info.key}")

    # -- writing ------------------------------------------------------------------------------------------------------

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        del durable
        inside = self._inside(key)
        if inside.startswith(_PUBLISHED):
            return self.rights.manifest.put_manifest(inside, data)
        return self.rights.state.put_state(inside, data)

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        del durable
        return self.rights.manifest.swap_pointer(self._inside(key), data, expected=expected)

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        return self._outside(self.rights.state.upload_state(self._inside(key), chunks))

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def _read(self) -> Reader:
        return self.rights.read

    def get(self, key: str) -> StoredObject:
        return replace(self._read.get(self._inside(key)), key=key)

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        found = self._read.get_if_changed(self._inside(key), known)
        return None if found is None else replace(found, key=key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read.get_range(self._inside(key), start, length)

    def head(self, key: str) -> ObjectInfo:
        return self._outside(self.rights.head.head(self._inside(key)))

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        found = self.rights.head.head_many([self._inside(key) for key in keys])
        return [None if info is None else self._outside(info) for info in found]

    # -- what it may not ----------------------------------------------------------------------------------------------

    def list_folders(self, prefix: str) -> list[str]:
        _refuse("list")

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        _refuse("list")

    def delete(self, keys: Iterable[str]) -> None:
        _refuse("delete")

    def as_async(self) -> AsyncObjectReader:
        _refuse("be read from asyncio: use a reader's rights")


def _refuse(what: str) -> NoReturn:
    raise StoreDenied(f"the compactor's fast path may not {what}; check who was meant to")
