"""Opening a chain by URL, and telling what kind of chain is there."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import replace

from holdfast.chain.chain import Chain
from holdfast.chain.handle import ChainHandle
from holdfast.chain.layout import (
    DOMAINS,
    Layout,
    domain_layout,
    graph_layout,
    kv_layout,
    layout_named,
    orchestration_layout,
)
from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.errors import NotAChain
from holdfast.storage.objects import ObjectStore
from holdfast.storage.url import open_store

__all__ = ["chain_on", "detect_layout", "open_chain", "whoami"]


def whoami() -> str:
    """What moves and locks say about who did it, unless told otherwise."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def open_chain(
    url: str,
    *,
    layout: str | None = None,
    by: str | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> Chain:
    """Open the chain at `url`. The layout is given, or is the URL's fragment (`…#domain:catalog`), or is found by looking."""
    place, _, fragment = url.partition("#")
    store = open_store(place)
    name = layout or fragment or None
    found = layout_named(name) if name is not None else detect_layout(store)
    return chain_on(store, found, by=by, clock=clock, randomness=randomness)


def chain_on(
    store: ObjectStore,
    layout: Layout,
    *,
    by: str | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> Chain:
    """The chain that `layout` describes in `store`."""
    handle = ChainHandle(
        layout=layout,
        store=store,
        records=store,
        clock=clock or SystemClock(),
        randomness=randomness or SystemRandomness(),
    )
    return Chain(handle, by=by or whoami())


def detect_layout(store: ObjectStore) -> Layout:
    """The one layout whose pointer (or legacy manifest) is there; NotAChain if there is none, or more than one."""
    candidates = [kv_layout(), graph_layout(), orchestration_layout(), *(domain_layout(domain) for domain in DOMAINS)]
    keys = [
        (layout, key) for layout in candidates for key in (layout.pointer_key, layout.mirror_key) if key is not None
    ]
    present = [
        layout for (layout, _), info in zip(keys, store.head_many([key for _, key in keys]), strict=True) if info
    ]
    found = {layout.name: layout for layout in present}
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise NotAChain(
            f"no chain at {store.url!r}: expected one of {', '.join(layout.pointer_key for layout in candidates[:3])}, …"
        )
    raise NotAChain(f"more than one chain at {store.url!r}: name one as {store.url}#{' or #'.join(sorted(found))}")


def with_records(chain: Chain, **changes: object) -> Chain:
    """The same chain with other surroundings."""
    return Chain(replace(chain.handle, **changes), by=chain.by)  # type: ignore[arg-type]
