"""The tables and data sets of a workspace as OpenLineage describes them: by name, schema, version and lineage (C29)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from openlineage.client import event_v2 as ol
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    dataset_type_dataset,
    dataset_version_dataset,
    documentation_dataset,
    output_statistics_output_dataset,
    ownership_dataset,
    schema_dataset,
    tags_dataset,
)

from holdfast.catalog.layout import dataset_prefix
from holdfast.catalog.openlineage_names import PRODUCER, job_namespace, place_name
from holdfast.catalog.workspace import Workspace

__all__ = ["End", "KnownDatasets"]

_SUBTYPES = {
    "identity": ("DIRECT", "IDENTITY"),
    "transformation": ("DIRECT", "TRANSFORMATION"),
    "aggregation": ("DIRECT", "AGGREGATION"),
    "conditional": ("INDIRECT", "CONDITIONAL"),
    "window": ("INDIRECT", "WINDOW"),
    "filter": ("INDIRECT", "FILTER"),
    "join": ("INDIRECT", "JOIN"),
    "group": ("INDIRECT", "GROUP_BY"),
    "sort": ("INDIRECT", "SORT"),
}

End = tuple[str, str]
"""A table or data set, and its snapshot; empty where none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDatasets:
    """What the catalog and the lineage of a workspace say about its tables and data sets."""

    workspace: Workspace
    namespace: str
    tables: Mapping[str, Mapping[str, Any]]
    snapshots: Mapping[End, Mapping[str, Any]]
    visible: Mapping[str, str]
    """Data set → the snapshot that is visible."""
    edges: Mapping[str, list[Mapping[str, Any]]]
    """By target."""
    chains: Mapping[str, str]
    """The chains of the workspace, and the data sets that they are."""

    @classmethod
    def of(
        cls, workspace: Workspace, catalog: Mapping[str, pa.Table], edges: pa.Table, namespace: str | None = None
    ) -> KnownDatasets:
        snapshots = catalog["snapshots"].to_pylist()
        by_target: dict[str, list[Mapping[str, Any]]] = {}
        for edge in edges.to_pylist():
            by_target.setdefault(edge["target"], []).append(edge)
        return cls(
            workspace=workspace,
            namespace=namespace or job_namespace(workspace),
            tables={f"{row['namespace']}.{row['table']}": row for row in catalog["tables"].to_pylist()},
            snapshots={(row["dataset"], str(row["manifest_id"])): row for row in snapshots},
            visible={row["dataset"]: str(row["manifest_id"]) for row in catalog["datasets"].to_pylist()},
            edges=by_target,
            chains={row["chain"]: row["dataset"] for row in snapshots},
        )

    # -- what is made from what ----------------------------------------------------------------------------------------

    def sources(self, end: End) -> list[End]:
        """What it was made from: the snapshots that its manifest pins, and what lineage says."""
        name, snapshot = end
        row = self.snapshots.get(end)
        pins = (row["inputs"] or []) if row is not None else []
        found = [(self.chains.get(pin["chain"], pin["chain"]), str(pin["manifest_id"])) for pin in pins]
        pinned = {source for source, _ in found}
        told = [(edge["source"], edge["source_snapshot"]) for edge in self._told(name, snapshot)]
        return sorted({*found, *(one for one in told if one[1] or one[0] not in pinned)})

    def _told(self, name: str, snapshot: str) -> list[Mapping[str, Any]]:
        return [edge for edge in self.edges.get(name, []) if edge["target_snapshot"] in ("", snapshot)]

    # -- how it is described -------------------------------------------------------------------------------------------

    def input(self, end: End) -> ol.InputDataset:
        namespace, name = self.named(end[0])
        return ol.InputDataset(namespace=namespace, name=name, facets=self._facets(end))

    def output(self, end: End, *, rows: int | None = None, size: int | None = None) -> ol.OutputDataset:
        namespace, name = self.named(end[0])
        row = self.snapshots.get(end, {})
        rows = row.get("row_count") if rows is None else rows
        size = row.get("byte_size") if size is None else size
        counted = rows is not None or size is not None
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows, size=size, producer=PRODUCER
        )
        facets = self._facets(end)
        lineage = self._column_lineage(end)
        if lineage is not None:
            facets["columnLineage"] = lineage
        return ol.OutputDataset(
            namespace=namespace,
            name=name,
            facets=facets,
            outputFacets={"outputStatistics": statistics} if counted else {},
        )

    def named(self, name: str) -> tuple[str, str]:
        """Namespace and name."""
        if name in self.visible:
            found = place_name(f"{self.workspace.url.rstrip('/')}/{dataset_prefix(name)}")
        else:
            location = self.tables.get(name, {}).get("location") or name.partition("#")[0]
            found = place_name(location)
        return found or (self.namespace, name)

    def _facets(self, end: End) -> dict[str, Any]:
        name, snapshot = end
        table = self.tables.get(name)
        row = self.snapshots.get((name, snapshot or self.visible.get(name, "")))
        said: Mapping[str, Any] = table or row or {}
        facets: dict[str, Any] = {}
        if said.get("columns"):
            facets["schema"] = _schema(said["columns"])
        if snapshot:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
                datasetVersion=snapshot, producer=PRODUCER
            )
        if said.get("description"):
            facets["documentation"] = documentation_dataset.DocumentationDatasetFacet(
                description=said["description"], producer=PRODUCER
            )
        if said.get("owner"):
            owner = ownership_dataset.Owner(name=said["owner"])
            facets["ownership"] = ownership_dataset.OwnershipDatasetFacet(owners=[owner], producer=PRODUCER)
        if tags := orjson.loads(said.get("tags") or "{}"):
            facets["tags"] = _tags(tags)
        if said:
            kind = "TABLE" if table is not None else "FILE"
            facets["datasetType"] = dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=kind, producer=PRODUCER)
        return facets

    def _column_lineage(self, end: End) -> Any:
        """Which columns each of its columns is made of, and which decide about its rows; None where nobody said."""
        fields: dict[str, list[Any]] = {}
        rows: list[Any] = []
        for edge in self._told(*end):
            if not edge["source_column"]:
                continue
            namespace, name = self.named(edge["source"])
            used = column_lineage_dataset.InputField(
                namespace=namespace,
                name=name,
                field=edge["source_column"],
                transformations=_transformations(edge["kind"]),
            )
            place = fields.setdefault(edge["target_column"], []) if edge["target_column"] else rows
            place.append(used)
        if not fields and not rows:
            return None
        return column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                column: column_lineage_dataset.Fields(inputFields=_in_order(used))
                for column, used in sorted(fields.items())
            },
            dataset=_in_order(rows),
            producer=PRODUCER,
        )


def _schema(columns: Iterable[Mapping[str, Any]]) -> Any:
    fields = [
        schema_dataset.SchemaDatasetFacetFields(
            name=column["name"],
            type=column["type"],
            description=column["description"] or None,
            ordinal_position=place,
        )
        for place, column in enumerate(columns, 1)
    ]
    return schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)


def _tags(tags: Mapping[str, str]) -> Any:
    fields = [tags_dataset.TagsDatasetFacetFields(key=key, value=value) for key, value in sorted(tags.items())]
    return tags_dataset.TagsDatasetFacet(tags=fields, producer=PRODUCER)


def _transformations(kind: str) -> list[Any]:
    """A kind that somebody else made up is a use of which nothing more is known."""
    found = [_SUBTYPES[one] for one in kind.split(", ") if one in _SUBTYPES]
    return [column_lineage_dataset.Transformation(type=type_, subtype=subtype) for type_, subtype in found]


def _in_order(used: list[Any]) -> list[Any]:
    return sorted(used, key=lambda one: (one.namespace, one.name, one.field))
