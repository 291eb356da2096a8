"""Where a rollback looks for what was built from the snapshots it takes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import BadInput, NotAChain

if TYPE_CHECKING:
    from holdfast.chain.chain import Chain
    from holdfast.chain.handle import ChainHandle
    from holdfast.storage.objects import ObjectStore

__all__ = ["DownstreamSearch"]

_DATA_SETS = "datasets"


@dataclass(frozen=True, slots=True)
class DownstreamSearch:
    """The chains to look into."""

    chains: tuple[Chain, ...]

    @classmethod
    def around(cls, chain: Chain, urls: Sequence[str]) -> DownstreamSearch:
        """The chains at `urls` (chains, or folders of chains); without any, the data sets beside `chain`."""
        found: list[Chain] = []
        for url in urls:
            found += _chains_at(url)
        if not urls:
            found = _siblings(chain)
        own = chain.handle.identity
        known = {one.handle.identity: one for one in found if one.handle.identity != own}
        return cls(tuple(known.values()))

    @property
    def handles(self) -> list[ChainHandle]:
        return [chain.handle for chain in self.chains]

    @property
    def searched(self) -> list[str]:
        return [chain.handle.identity for chain in self.chains]


def _chains_at(url: str) -> list[Chain]:
    from holdfast.chain.opening import open_chain
    from holdfast.storage.url import open_store

    try:
        return [open_chain(url)]
    except NotAChain as error:
        if "#" in url:
            raise
        found = _chains_in(open_store(url))
        if not found:
            raise BadInput(f"--downstream-in {url}: {error}, and no chain lies in a folder directly below it") from None
        return found


def _siblings(chain: Chain) -> list[Chain]:
    """The other data sets of a workspace, where `chain` is one."""
    from holdfast.storage.url import open_store

    parent, _, _ = chain.store.url.rpartition("/")
    return _chains_in(open_store(parent)) if parent.rpartition("/")[2] == _DATA_SETS else []


def _chains_in(store: ObjectStore) -> list[Chain]:
    from holdfast.chain.opening import chain_on, detect_layout
    from holdfast.storage.scope import scope

    found = []
    for name in store.list_folders(""):
        place = scope(store, name)
        try:
            found.append(chain_on(place, detect_layout(place)))
        except NotAChain:
            continue
    return found
