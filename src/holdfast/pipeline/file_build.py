"""From what a TOML file says to a `Pipeline`, and back to the same words.

Building forgives: what has the wrong shape was reported before, and is left out here, so that the rest of the file can
still be looked at and everything that is wrong be said at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from holdfast.pipeline.plan_problem import Problem, Where
from holdfast.pipeline.spec import (
    Check,
    DataSet,
    DatasetSource,
    FileSource,
    GraphDataset,
    KvDataset,
    NotNull,
    Pipeline,
    Range,
    RowChange,
    RowCount,
    Source,
    Step,
    TableDataset,
    Unique,
)

__all__ = ["argument_text", "build_pipeline", "document_of", "without_wrong"]

_Table = dict[str, Any]
_NO_CHECK: _Table = {"rows": {}}
"""Instead of a check that has the wrong shape."""
_NAMED: tuple[Where, ...] = (("sources",), ("steps",), ("datasets",))


def without_wrong(document: _Table, problems: Iterable[Problem]) -> _Table:
    """The document without the values that have a problem. Sources, steps and data sets stay, if only by name."""
    wrong = {one.where for one in problems}

    def kept(value: object, where: Where) -> object:
        if isinstance(value, dict):
            inner = {key: kept(one, (*where, key)) for key, one in value.items() if (*where, key) not in wrong}
            return {**{key: {} for key in value if where in _NAMED and (*where, key) in wrong}, **inner}
        if isinstance(value, list):
            items = enumerate(value)
            return [dict(_NO_CHECK) if _touched(where, at, wrong) else kept(one, (*where, at)) for at, one in items]
        return value

    whole = kept(document, ())
    assert isinstance(whole, dict)
    return whole


def _touched(where: Where, index: int, wrong: set[Where]) -> bool:
    """A check with any problem is left out whole; the others keep their numbers."""
    path = (*where, index)
    return any(one[: len(path)] == path for one in wrong)


def build_pipeline(document: _Table, *, folder: Path) -> Pipeline:
    """From a document without wrong values; texts that are missing are empty."""
    return Pipeline(
        name=document.get("name", ""),
        sources=tuple(_source(name, one) for name, one in document.get("sources", {}).items()),
        steps=tuple(
            Step(name=name, sql=one.get("sql", ""), description=one.get("description", ""))
            for name, one in document.get("steps", {}).items()
        ),
        datasets=tuple(_dataset(name, one) for name, one in document.get("datasets", {}).items()),
        description=document.get("description", ""),
        owner=document.get("owner", ""),
        namespace=document.get("namespace", ""),
        workspace=document.get("workspace", ""),
        parameters=dict(document.get("parameters", {})),
        spark=_settings(document.get("spark", {})),
        folder=folder,
    )


def argument_text(value: object) -> str:
    """A value as the text that stands for it in a path, an option or a tag."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _settings(value: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """`a.b = 1` is a table in a table to TOML, and one setting to Spark."""
    flat: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat.update(_settings(inner, f"{before}{key}."))
        else:
            flat[f"{before}{key}"] = argument_text(inner)
    return flat


def _source(name: str, said: _Table) -> Source:
    if "dataset" in said and "path" not in said:
        return DatasetSource(
            name=name,
            dataset=said["dataset"],
            ref=said.get("ref", ""),
            version=said.get("version"),
            tag=said.get("tag", ""),
            part=said.get("part", ""),
        )
    return FileSource(
        name=name,
        path=said.get("path", ""),
        format=said.get("format", "parquet"),
        options=_settings(said.get("options", {})),
        schema=said.get("schema", ""),
    )


def _dataset(name: str, said: _Table) -> DataSet:
    common: _Table = {
        "name": name,
        "description": said.get("description", ""),
        "owner": said.get("owner", ""),
        "tags": _settings(said.get("tags", {})),
        "checks": _checks(said.get("checks", [])),
    }
    if said.get("kind") == "graph":
        return GraphDataset(
            **common,
            nodes=said.get("nodes", ""),
            edges=said.get("edges", ""),
            dangling=said.get("dangling", "refuse"),
            edge_checks=_checks(said.get("edge_checks", [])),
        )
    if said.get("kind") == "kv":
        return KvDataset(
            **common,
            rows=said.get("from", ""),
            key=_names(said.get("key", [])),
            shards=said.get("shards"),
            rows_per_shard=said.get("rows_per_shard"),
            on_duplicate=said.get("on_duplicate", "error"),
        )
    return TableDataset(**common, rows=said.get("from", ""), files=said.get("files"))


def _checks(said: list[_Table]) -> tuple[Check, ...]:
    return tuple(_check(*next(iter(one.items()))) for one in said)


def _check(kind: str, said: Any) -> Check:
    if kind == "not_null":
        return NotNull(columns=_names(said))
    if kind == "unique":
        return Unique(columns=_names(said))
    if kind == "range":
        return Range(column=said["column"], least=_end(said.get("min")), most=_end(said.get("max")))
    if kind == "rows":
        return RowCount(least=said.get("min"), most=said.get("max"))
    return RowChange(fewer=said.get("fewer"), more=said.get("more"))


def _names(said: str | list[str]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


def _end(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


# -- and back ----------------------------------------------------------------------------------------------------------


def document_of(pipeline: Pipeline) -> _Table:
    """What a file would say: a pipeline that was made in Python is checked as one in a file is."""
    return _said(
        name=pipeline.name,
        description=pipeline.description,
        owner=pipeline.owner,
        namespace=pipeline.namespace,
        workspace=pipeline.workspace,
        parameters=dict(pipeline.parameters),
        spark=dict(pipeline.spark),
        sources={one.name: _source_said(one) for one in pipeline.sources},
        steps={one.name: {"sql": one.sql, **_said(description=one.description)} for one in pipeline.steps},
    ) | {"datasets": {one.name: _dataset_said(one) for one in pipeline.datasets}}


def _said(**values: object) -> _Table:
    """Without what is left out: nothing, and empty texts, lists and tables."""
    return {name: value for name, value in values.items() if value is not None and value not in ("", [], {})}


def _source_said(one: Source) -> _Table:
    if isinstance(one, DatasetSource):
        rest = _said(version=one.version, ref=one.ref, tag=one.tag, part=one.part)
        return {"dataset": one.dataset, **rest}
    return {"path": one.path, **_said(format=one.format, options=dict(one.options), schema=one.schema)}


def _dataset_said(one: DataSet) -> _Table:
    checks = [_check_said(check) for check in one.checks]
    common = _said(description=one.description, owner=one.owner, tags=dict(one.tags), checks=checks)
    if isinstance(one, GraphDataset):
        edge_checks = [_check_said(check) for check in one.edge_checks]
        own = {"kind": "graph", "nodes": one.nodes, "edges": one.edges}
        return {**own, **_said(dangling=one.dangling, edge_checks=edge_checks), **common}
    if isinstance(one, KvDataset):
        own = {"kind": "kv", "from": one.rows, "key": _list(one.key), "on_duplicate": one.on_duplicate}
        return {**own, **_said(shards=one.shards, rows_per_shard=one.rows_per_shard), **common}
    return {"kind": "table", "from": one.rows, **_said(files=one.files), **common}


def _check_said(one: Check) -> _Table:
    match one:
        case NotNull():
            return {"not_null": _list(one.columns)}
        case Unique():
            return {"unique": _list(one.columns)}
        case Range():
            return {"range": {"column": one.column, **_said(min=one.least, max=one.most)}}
        case RowCount():
            return {"rows": _said(min=one.least, max=one.most)}
        case RowChange():
            return {"change": _said(fewer=one.fewer, more=one.more)}


def _list(value: Any) -> Any:
    """Lists and tuples are lists to a file; anything else is what it is, and will be found wrong."""
    return list(value) if isinstance(value, list | tuple) else value
