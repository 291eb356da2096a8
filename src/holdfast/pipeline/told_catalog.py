"""What the catalog is told of a data set that a pipeline made: its table, and where its columns come from (C28, C30).

That it was published, with the snapshots it pins, the data set announces itself. Steps are not tables of the catalog:
lineage goes through them, from the columns of sources to the columns of data sets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.catalog import EventDraft, Workspace
from holdfast.catalog.column_lineage import column_lineage
from holdfast.catalog.payloads import Column, Edge, LineageEdgesAdded, NamespaceCreated, TableUpdated
from holdfast.catalog.reading import read_tables
from holdfast.errors import BadInput
from holdfast.pipeline.spec import DataSet, Pipeline

__all__ = ["SourceNamed", "lineage_drafts", "namespace_of", "table_drafts"]

_log = logging.getLogger("holdfast.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNamed:
    """What a source is called outside of the pipeline."""

    name: str
    """A data set's name, or a path."""
    snapshot: str | None = None
    columns: tuple[str, ...] = ()


def namespace_of(pipeline: Pipeline) -> str:
    return pipeline.namespace or pipeline.name


def table_drafts(
    workspace: Workspace,
    pipeline: Pipeline,
    dataset: DataSet,
    *,
    kind: str,
    location: str,
    columns: Sequence[Column],
    key: str,
) -> list[EventDraft]:
    """The data set as a table, and its namespace where there is none yet: what a person wrote about one stays."""
    namespace = namespace_of(pipeline)
    known = read_tables(workspace, "catalog", ["namespaces"])["namespaces"].column("namespace").to_pylist()
    drafts = []
    if namespace not in known:
        said = NamespaceCreated(namespace=namespace, description=pipeline.description, owner=pipeline.owner)
        drafts.append(EventDraft(payload=said, idempotency_key=f"{key}/namespace"))
    table = TableUpdated(
        namespace=namespace,
        table=dataset.name,
        kind=kind,
        location=location,
        description=dataset.description,
        owner=dataset.owner or pipeline.owner,
        tags=dataset.tags,
        columns=tuple(columns),
        properties={"pipeline": pipeline.name},
    )
    return [*drafts, EventDraft(payload=table, idempotency_key=f"{key}/table")]


def lineage_drafts(
    frame: str,
    dataset: str,
    *,
    steps: Mapping[str, str],
    sources: Mapping[str, SourceNamed],
    snapshot: str,
    run: str,
    key: str,
) -> list[EventDraft]:
    """Edges from sources to a data set made of the rows of `frame`. `steps` are the ones it needs, in order, by name.

    What SQL does not tell is left out, with a warning: a run does not fail because its lineage is hard to read.
    """
    sql = f"SELECT * FROM {_quoted(frame)}"
    if steps:
        inner = ",\n".join(f"{_quoted(name)} AS (\n{text.rstrip().rstrip(';')}\n)" for name, text in steps.items())
        sql = f"WITH {inner}\n{sql}"
    try:
        told = column_lineage(sql, {name: list(source.columns) for name, source in sources.items()}, dataset)
    except BadInput as error:
        _log.warning("the lineage of %s is not told: %s", dataset, error)
        return []
    for remark in told.remarks:
        _log.warning("of the lineage of %s: %s", dataset, remark)
    edges = tuple(_outside(edge, sources, snapshot) for edge in told.edges)
    if not edges:
        return []
    return [EventDraft(payload=LineageEdgesAdded(edges=edges, run_id=run), idempotency_key=f"{key}/lineage/{frame}")]


def _outside(edge: Edge, sources: Mapping[str, SourceNamed], snapshot: str) -> Edge:
    named = sources.get(edge.source, SourceNamed(name=edge.source))
    return replace(edge, source=named.name, source_snapshot=named.snapshot, target_snapshot=snapshot)


def _quoted(name: str) -> str:
    return f"`{name}`"
