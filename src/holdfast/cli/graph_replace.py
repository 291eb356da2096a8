"""`holdfast graph replace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import by_option, url_argument, why_option
from holdfast.cli.graph_call import GraphCall, json_option
from holdfast.cli.graph_input import files_of, input_options, read_edges, read_nodes
from holdfast.cli.graph_shapes import changes_json, changes_parts
from holdfast.cli.graph_write import parse_tags, tags_option
from holdfast.cli.output import Command, Line, Part, View
from holdfast.cli.words import count
from holdfast.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["command"]


@click.command(name="replace")
@url_argument
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    help="A file to replace beside those that the nodes and edges name: one without any becomes empty. May be given "
    "several times.",
)
@input_options
@tags_option
@why_option
@by_option
@json_option
def command(
    url: str | None,
    files: tuple[str, ...],
    node_paths: tuple[str, ...],
    edge_paths: tuple[str, ...],
    dangling: str,
    tags: tuple[str, ...],
    why: str,
    by: str | None,
    as_json: bool,
) -> None:
    """Replace the contents of whole files, in one commit.

    Nodes and edges become all there is of the files that they name. What those files had and no longer have,
    leaves; all other files stay as they are. Inputs are read as by `graph build`. Where nothing changes, there is
    no new version.

    JSON: version, committed, files, changes (kind, file, type, added, removed, changed), undo.

    \b
    Examples:
      holdfast graph replace ./code --nodes changed_nodes.csv --edges changed_edges.csv
      holdfast graph replace ./code --file src/gone.py --why "the file was deleted"
    """
    if not files and not node_paths and not edge_paths:
        raise BadInput("which files? Give --nodes PATH or --edges PATH, or --file FILE to empty one")
    node_files, edge_files = files_of(node_paths, "--nodes"), files_of(edge_paths, "--edges")
    noted = parse_tags(tags)
    call = GraphCall(url, as_json=as_json, by=by)
    with call.output.progress("reading nodes") as told:
        nodes = read_nodes(node_files, told)
    with call.output.progress("reading edges") as told:
        edges = read_edges(edge_files, told)
    replaced = sorted({*files, *_named(nodes), *_named(edges)})
    with call.working("committing"):
        result = call.store.replace_files(
            replaced, nodes=nodes, edges=edges, dangling=dangling, tags=noted, why=why or "replaced files"
        )
    undo = call.again("rollback") if result.committed else None
    data = {
        "command": "graph replace",
        "chain": call.identity,
        "version": result.version,
        "committed": result.committed,
        "files": replaced,
        "changes": changes_json(result.changes.report),
        "undo": undo,
    }
    parts: list[Part] = [Line(f"Nothing differs from version {result.version}, so there is no new one.")]
    if undo is not None:
        head = Line(f"Version {result.version} is visible: {count(len(replaced), 'file')} replaced.", style="bold")
        parts = [head, *changes_parts(result.changes.report), Command("undo it", undo)]
    call.output.show(View(data=data, parts=parts))


def _named(records: pa.Table) -> set[str]:
    """The files that records say they belong to. Edges that say none belong to their source's."""
    import pyarrow.compute as pc

    return {text for text in pc.unique(records.column("file")).to_pylist() if text}
