"""`holdfast graph info`."""

from __future__ import annotations

import click

from holdfast.cli.call import url_argument
from holdfast.cli.graph_call import GraphLook, version_options
from holdfast.cli.graph_shapes import text
from holdfast.cli.output import Column, Facts, Line, Part, Table, View
from holdfast.cli.words import count, size_text, tags_text, time_text
from holdfast.clock import format_time

__all__ = ["command"]

_COLUMNS = (Column(title=""), Column(title="type", keep="middle", least=8), Column(title="count", right=True))
_TYPES_MAX = 40


@click.command(name="info")
@url_argument
@version_options
def command(url: str | None, version: int | None, tag: str | None, at: str | None, as_json: bool) -> None:
    """Describe a version: how many nodes and edges of which types.

    JSON: version, current, published_at, run_id, nodes, edges (counts), node_types, edge_types (count by type),
    segments (nodes, edges, bytes), tags.

    \b
    Examples:
      holdfast graph info ./code
      holdfast graph info ./code --tag release=stable --json
    """
    look = GraphLook(url, version=version, tag=tag, at=at, as_json=as_json)
    state = look.store.state(look.version)
    types = {kind: look.graph.count_by_type(kind) for kind in ("nodes", "edges")}
    current = look.store.current()
    tags = _tags(look)
    size = sum(segment.byte_size for segment in state.segments)
    data = look.document(
        "info",
        current=look.version == current,
        published_at=format_time(look.move.at),
        run_id=look.move.run_id,
        nodes=state.stats.total_nodes,
        edges=state.stats.total_edges,
        node_types=types["nodes"],
        edge_types=types["edges"],
        segments={"nodes": len(state.nodes), "edges": len(state.edges), "bytes": size},
        tags=tags,
    )
    facts = [
        ("graph", look.call.identity),
        ("version", str(look.version)),
        ("visible", "yes" if look.version == current else f"no, readers see version {current}"),
        ("published", f"{time_text(look.move.at)} UTC by run {look.move.run_id}"),
        ("holds", f"{count(state.stats.total_nodes, 'node')}, {count(state.stats.total_edges, 'edge')}"),
        ("segments", f"{len(state.nodes):,} of nodes, {len(state.edges):,} of edges, {size_text(size)}"),
        *((("tags", tags_text(tags)),) if tags else ()),
    ]
    rows = [
        (kind, text(name), f"{number:,}")
        for kind in ("nodes", "edges")
        for name, number in sorted(types[kind].items(), key=lambda item: (-item[1], item[0]))
    ]
    parts: list[Part] = [Facts(facts)]
    if rows:
        parts += [Line(""), Table(_COLUMNS, rows[:_TYPES_MAX], more=max(0, len(rows) - _TYPES_MAX))]
    look.output.show(View(data=data, parts=parts))


def _tags(look: GraphLook) -> dict[str, str]:
    from holdfast.chain.tags import read_tags, tags_of

    return tags_of(read_tags(look.store.chain.handle)[0], look.move)
