"""Opening a chain by URL, and telling what kind of chain is there."""

from __future__ import annotations

import getpass
import os
import socket

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
    table_layout,
)
from holdfast.chain.sql.chains import RegisteredChain, find_chain
from holdfast.chain.sql.records import SqlRecords
from holdfast.chain.sql.url import is_sql_url, parse_sql_url
from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.errors import BadInput, NotAChain
from holdfast.storage.objects import ObjectStore, RecordStore
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
    manifests: str | None = None,
    by: str | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> Chain:
    """Open the chain at `url`. The layout is given, or the URL's fragment (`…#domain:catalog`), or found by looking.

    With `manifests`, a database's URL, the records are there and only the artifacts in the store at `url`. A
    database's URL alone is enough for a chain that was published before: the database knows where its artifacts are.
    """
    place, _, fragment = url.partition("#")
    name = layout or fragment or None
    if is_sql_url(place):
        if manifests is not None:
            raise BadInput("the URL already names a database; give the store of the artifacts, or no manifests")
        return _open_known(place, name, by=by, clock=clock, randomness=randomness)
    store = open_store(place)
    if manifests is not None:
        records = _records_of(store, manifests, name, clock)
        return chain_on(store, records.layout, records=records, by=by, clock=clock, randomness=randomness)
    found = layout_named(name) if name is not None else detect_layout(store)
    return chain_on(store, found, by=by, clock=clock, randomness=randomness)


def chain_on(
    store: ObjectStore,
    layout: Layout,
    *,
    records: RecordStore | None = None,
    by: str | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> Chain:
    """The chain that `layout` describes: artifacts in `store`, and its records too unless told otherwise."""
    handle = ChainHandle(
        layout=layout,
        store=store,
        records=store if records is None else records,
        clock=clock or SystemClock(),
        randomness=randomness or SystemRandomness(),
    )
    return Chain(handle, by=by or whoami())


def _open_known(
    url: str, layout: str | None, *, by: str | None, clock: Clock | None, randomness: Randomness | None
) -> Chain:
    """A chain by its database alone."""
    known = find_chain(url, layout=layout)
    store = open_store(known.artifacts)
    records = _sql_records(url, known, clock)
    return chain_on(store, records.layout, records=records, by=by, clock=clock, randomness=randomness)


def _records_of(store: ObjectStore, manifests: str, layout: str | None, clock: Clock | None) -> SqlRecords:
    """The records of a chain whose artifacts are in `store`. Without one in the URL, its name is made from those."""
    chain = parse_sql_url(manifests).chain
    if layout is None:
        return _sql_records(manifests, find_chain(manifests, artifacts=store.url), clock)
    name = chain or f"{store.url}#{layout_named(layout).name}"
    return _sql_records(manifests, RegisteredChain(chain=name, layout=layout, artifacts=store.url), clock)


def _sql_records(url: str, known: RegisteredChain, clock: Clock | None) -> SqlRecords:
    return SqlRecords(url, layout_named(known.layout), chain=known.chain, artifacts=known.artifacts, clock=clock)


def detect_layout(store: ObjectStore) -> Layout:
    """The one layout whose pointer (or legacy manifest) is there; NotAChain if there is none, or more than one."""
    models = [kv_layout(), graph_layout(), table_layout(), orchestration_layout()]
    candidates = [*models, *(domain_layout(domain) for domain in DOMAINS)]
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
        expected = ", ".join(layout.pointer_key for layout in models)
        raise NotAChain(f"no chain at {store.url!r}: expected one of {expected}, …")
    raise NotAChain(f"more than one chain at {store.url!r}: name one as {store.url}#{' or #'.join(sorted(found))}")
