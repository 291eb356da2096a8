"""From files to the next version of a graph, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.graph_call import parse_tag
from holdfast.errors import BadInput, Conflict

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.graph.store import CommitResult, GraphStore

__all__ = ["check_alone", "parse_tags", "put_everything", "tags_option"]

_ATTEMPTS_MAX = 5

tags_option = click.option(
    "--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Tag the new version; may be given several times."
)


def parse_tags(texts: tuple[str, ...]) -> dict[str, str]:
    return dict(map(parse_tag, texts))


def check_alone(nodes: pa.Table, edges: pa.Table, *, dangling: str) -> None:
    """Refuse what could not be the whole of a graph, before there is one."""
    from holdfast.graph.changes import plan_changes
    from holdfast.graph.store import GraphStore
    from holdfast.graph.view import SnapshotView

    nothing = SnapshotView(GraphStore.ephemeral().snapshot().arrays)
    plan_changes(nothing, nodes=nodes, edges=edges, dangling=dangling)


def put_everything(
    store: GraphStore, nodes: pa.Table, edges: pa.Table, *, dangling: str, tags: Mapping[str, str], why: str
) -> CommitResult:
    """Make these the whole graph. Only what differs is written, and without any difference there is no new version.

    The commit replaces all files that the visible version has. If another writer adds a file meanwhile, that is seen
    afterwards, and everything is put once more.
    """
    for _ in range(_ATTEMPTS_MAX):
        base = store.current()
        files = _files(store, base, nodes, edges)
        if not files:
            raise BadInput("no nodes and no edges; give --nodes PATH, and --edges PATH if there are any")
        result = store.replace_files(files, nodes=nodes, edges=edges, dangling=dangling, tags=tags, why=why)
        if _parent(store, result) == base:
            return result
    raise Conflict(f"other writers kept committing to {store.chain.store.url}: build again when they are done")


def _files(store: GraphStore, version: int, nodes: pa.Table, edges: pa.Table) -> list[str]:
    """All files there are and will be. Records of no file have the empty one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    graph = store.snapshot(version)
    tables = (graph.nodes().table, graph.edges().table, nodes, edges)
    columns = [pc.unique(table.column("file")).cast(pa.string()) for table in tables]
    return [str(text) for text in pc.unique(pa.concat_arrays(columns)).to_pylist()]


def _parent(store: GraphStore, result: CommitResult) -> int | None:
    """The version that a commit was made on; of no commit, the one that it found."""
    if not result.committed:
        return result.version
    path = store.load_manifest(result.version).previous_manifest_path
    return None if path is None else int(store.chain.layout.ref_of(path))
