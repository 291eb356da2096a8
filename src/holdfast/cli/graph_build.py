"""`holdfast graph build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.call import by_option, url_argument, why_option
from holdfast.cli.config import load_settings
from holdfast.cli.graph_call import GraphCall, json_option
from holdfast.cli.graph_input import files_of, input_options, read_edges, read_nodes
from holdfast.cli.graph_shapes import changes_json, sums_lines
from holdfast.cli.graph_write import check_alone, parse_tags, put_everything, tags_option
from holdfast.cli.output import Command, Line, Part, View, make_output
from holdfast.cli.words import count
from holdfast.errors import BadInput, NotAChain

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.graph.store import CommitResult, GraphStore

__all__ = ["command"]


@click.command(name="build")
@url_argument
@input_options
@click.option("--add", is_flag=True, help="Keep what else is there; without this, the files are the whole graph.")
@click.option("--spark", is_flag=True, help="Build on Spark: for graphs larger than this machine's memory.")
@tags_option
@why_option
@by_option
@json_option
def command(
    url: str | None,
    node_paths: tuple[str, ...],
    edge_paths: tuple[str, ...],
    dangling: str,
    add: bool,
    spark: bool,
    tags: tuple[str, ...],
    why: str,
    by: str | None,
    as_json: bool,
) -> None:
    """Make a version of files of nodes and edges.

    The first, where there is no graph yet; else the next, which holds exactly what the files do (or with --add,
    also what is there). Files are Parquet (.parquet), CSV with a header (.csv) or JSON lines (.jsonl, .ndjson); the
    latter two also with .gz. All columns are text; metadata is JSON. An edge without a file belongs to its
    source's. A record that is there already, just so, is not written again, and a build that changes nothing makes
    no new version (on Spark it does).

    JSON: version, committed, created, nodes, edges (how many there are now), changes (kind, file, type, added,
    removed, changed; null on Spark), undo.

    \b
    Examples:
      holdfast graph build ./code --nodes nodes.parquet --edges edges.parquet
      holdfast graph build ./code --nodes nodes.csv --edges edges.csv --tag release=stable --why "weekly"
      holdfast graph build ./code --nodes more.jsonl --add
      holdfast graph build s3://bucket/team/graphs/code --nodes nodes/ --edges edges/ --spark
    """
    if add and spark:
        raise BadInput("--add and --spark do not go together: on Spark the files are the whole graph")
    if not node_paths and not edge_paths:
        raise BadInput("no files; give --nodes PATH, and --edges PATH if there are any")
    nodes, edges = files_of(node_paths, "--nodes"), files_of(edge_paths, "--edges")
    noted = {"dangling": dangling, "tags": parse_tags(tags), "why": why or "built from files"}
    place = _Place(url, by=by, as_json=as_json)
    if spark:
        place.build_on_spark(nodes, edges, noted)
    else:
        place.build(nodes, edges, noted, add=add)
    place.say()


class _Place:
    """Where the graph is, or will be."""

    def __init__(self, url: str | None, *, by: str | None, as_json: bool) -> None:
        self._by = by
        self._as_json = as_json
        self._url = url
        self.output = make_output(as_json=as_json)
        self.result: CommitResult | None = None
        try:
            self.call: GraphCall | None = GraphCall(url, as_json=as_json, by=by)
        except NotAChain:
            self.call = None
            if load_settings().manifests is not None:
                raise BadInput(
                    "a graph keeps its records beside its data; unset HOLDFAST_MANIFESTS to make one"
                ) from None
        self.is_new = self.call is None

    def _make(self) -> GraphStore:
        """The graph; an empty one if there is none. What it will hold was checked before."""
        if self.call is None:
            from holdfast.graph.store import GraphStore

            settings = load_settings()
            GraphStore.create(self._url or settings.chain or "", by=self._by or settings.by)  # told with what is built
            self.call = GraphCall(self._url, as_json=self._as_json, by=self._by)
        return self.call.store

    def build(self, node_files: list[Path], edge_files: list[Path], noted: dict[str, Any], *, add: bool) -> None:
        with self.output.progress("reading nodes") as told:
            nodes = read_nodes(node_files, told)
        with self.output.progress("reading edges") as told:
            edges = read_edges(edge_files, told)
        with self.output.progress("committing"):
            self.result = self._commit(nodes, edges, noted, add=add)

    def _commit(self, nodes: pa.Table, edges: pa.Table, noted: dict[str, Any], *, add: bool) -> CommitResult:
        if self.is_new:
            check_alone(nodes, edges, dangling=noted["dangling"])
        store = self._make()
        return store.commit(nodes=nodes, edges=edges, **noted) if add else put_everything(store, nodes, edges, **noted)

    def build_on_spark(self, node_files: list[Path], edge_files: list[Path], noted: dict[str, Any]) -> None:
        from holdfast.cli.graph_spark import frame_of, spark_session
        from holdfast.graph.records import EDGE_COLUMNS, NODE_COLUMNS

        with spark_session() as session:
            from holdfast.spark.graph import publish_graph
            from holdfast.spark.progress import terminal_progress

            nodes = frame_of(session, node_files, NODE_COLUMNS)
            edges = frame_of(session, edge_files, EDGE_COLUMNS)
            with terminal_progress() as told:
                publish_graph(nodes, edges, self._make(), **noted, progress=None if self._as_json else told)

    def say(self) -> None:
        """What there is now, and what changed."""
        call, result = self.call, self.result
        assert call is not None
        version = call.store.current() if result is None else result.version
        stats = call.store.state(version).stats
        committed = result is None or result.committed
        undo = call.again("rollback") if committed else None
        data = {
            "command": "graph build",
            "chain": call.identity,
            "version": version,
            "committed": committed,
            "created": self.is_new,
            "nodes": stats.total_nodes,
            "edges": stats.total_edges,
            "changes": None if result is None else changes_json(result.changes.report),
            "undo": undo,
        }
        holds = f"{count(stats.total_nodes, 'node')}, {count(stats.total_edges, 'edge')}"
        parts: list[Part] = [Line(f"Nothing differs from version {version}, so there is no new one: {holds}.")]
        if committed:
            parts = [Line(f"Version {version} is visible: {holds}.", style="bold")]
            parts += [] if result is None else [Line(line) for line in sums_lines(result.changes.report)]
        parts += [Command("undo it", undo)] if undo else []
        self.output.show(View(data=data, parts=parts))
