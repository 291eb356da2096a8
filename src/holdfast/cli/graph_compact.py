"""`holdfast graph compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import by_option, url_argument, why_option
from holdfast.cli.graph_call import GraphCall, json_option
from holdfast.cli.output import Line, Part, View
from holdfast.cli.words import count, size_text
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.graph.state import GraphState

__all__ = ["command"]


@click.command(name="compact")
@url_argument
@click.option("--all", "everything", is_flag=True, help="Merge everything, not only the small segments.")
@click.option("--spark", is_flag=True, help="Merge everything on Spark: for graphs larger than this machine's memory.")
@why_option
@by_option
@json_option
def command(url: str | None, everything: bool, spark: bool, why: str, by: str | None, as_json: bool) -> None:
    """Merge small segments into larger ones. Every answer stays the same.

    Each commit adds a segment or two, and each query may have to look into all of them. Older versions keep their
    segments until `holdfast gc` takes them. Where nothing is to be merged, there is no new version.

    JSON: version, committed, before, after (segments: how many of nodes and edges; bytes).

    \b
    Examples:
      holdfast graph compact ./code
      holdfast graph compact ./code --all --why "before the weekend"
      holdfast graph compact s3://bucket/team/graphs/code --spark
    """
    if everything and spark:
        raise BadInput("--spark merges everything by itself; leave --all out")
    call = GraphCall(url, as_json=as_json, by=by)
    before = call.store.state()
    if spark:
        _compact_on_spark(call, why)
    else:
        from holdfast.graph.compaction import compact

        with call.working("merging segments"):
            compact(call.store, all=everything, why=why)
    after = call.store.state()
    committed = after.version != before.version
    data = {
        "command": "graph compact",
        "chain": call.identity,
        "version": after.version,
        "committed": committed,
        "before": _segments_json(before),
        "after": _segments_json(after),
    }
    parts: list[Part] = [Line(f"There is nothing to merge: {_segments_text(before)} in version {before.version}.")]
    if committed:
        parts = [
            Line(f"Version {after.version} is visible, with the same contents.", style="bold"),
            Line(f"From {_segments_text(before)} to {_segments_text(after)}."),
        ]
    call.output.show(View(data=data, parts=parts))


def _compact_on_spark(call: GraphCall, why: str) -> None:
    from holdfast.cli.graph_spark import spark_session

    with spark_session() as session:
        from holdfast.spark.graph import compact_graph

        compact_graph(session, call.store, why=why)


def _segments_json(state: GraphState) -> dict[str, int]:
    return {"nodes": len(state.nodes), "edges": len(state.edges), "bytes": _size(state)}


def _segments_text(state: GraphState) -> str:
    return f"{count(len(state.segments), 'segment')} ({size_text(_size(state))})"


def _size(state: GraphState) -> int:
    return sum(segment.byte_size for segment in state.segments)
