"""`holdfast info`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.call import url_argument
from holdfast.cli.kv import KvCommand, Look, where_options
from holdfast.cli.output import Column, Facts, Line, Part, Table, View
from holdfast.cli.values import json_value, value_text
from holdfast.cli.words import age_text, count, size_text, tags_text, time_text
from holdfast.clock import format_time

if TYPE_CHECKING:
    from holdfast.kv import SnapshotInfo

__all__ = ["command"]

_COLUMNS = (
    Column(title="column", keep="middle", least=8),
    Column(title="type", keep="middle", least=12),
    Column(title="nullable"),
    Column(title="part of"),
)
_COLUMNS_MAX = 40


@click.command(name="info", cls=KvCommand)
@url_argument
@where_options
def command(url: str | None, ref: str | None, offset: int | None, layout: str | None, as_json: bool) -> None:
    """Describe a key-value data set: age, size, shards, columns.

    Nothing is downloaded but the manifest.

    JSON: ref, current, manifest_id, run_id, published_at, age_s, row_count, byte_size, shard_count, empty_shards,
    statistics (skew and more), key (name, type), value (row, binary or json), columns (name, type, nullable), routing,
    shard_format, inputs, tags, custom.

    \b
    Examples:
      holdfast info ./users
      holdfast info s3://bucket/team/datasets/users --offset 1 --json
    """
    look = Look(url, ref=ref, offset=offset, layout=layout, as_json=as_json)
    info = look.info()
    chain = look.call.chain
    age_s = (chain.handle.clock.now() - info.published_at).total_seconds()
    head = chain.current()
    tags = look.tags(info)
    data = {
        "command": "info",
        "chain": look.call.identity,
        "ref": info.ref,
        "current": head is not None and head.ref == info.ref,
        "manifest_id": info.manifest_id,
        "run_id": info.run_id,
        "published_at": format_time(info.published_at),
        "age_s": round(age_s, 3),
        "row_count": info.row_count,
        "byte_size": info.byte_size,
        "shard_count": info.shard_count,
        "empty_shards": info.empty_shards,
        "statistics": json_value(info.statistics),
        "key": [{"name": column.name, "type": column.kind.value} for column in info.key],
        "value": info.value.value,
        "columns": [{"name": one.name, "type": one.type, "nullable": one.nullable} for one in info.columns],
        "routing": info.routing,
        "shard_format": info.shard_format,
        "inputs": [pin.to_json() for pin in info.inputs],
        "tags": tags,
        "custom": json_value(info.custom),
    }
    facts = [
        ("chain", look.call.identity),
        ("ref", info.ref),
        ("visible", "yes" if data["current"] else f"no, readers see {head.ref if head is not None else 'nothing'}"),
        ("published", f"{time_text(info.published_at)} UTC by run {info.run_id}, {age_text(age_s)} ago"),
        ("holds", f"{count(info.row_count, 'row')}, {size_text(info.byte_size)}"),
        ("shards", _shards_text(info)),
        ("routing", info.routing),
        ("format", f"shard format {info.shard_format}"),
        ("values", {"row": "rows", "binary": "bytes", "json": "JSON"}[info.value.value]),
        *(("built from", f"{pin.chain} {pin.ref}") for pin in info.inputs),
        *((("tags", tags_text(tags)),) if tags else ()),
        *((("custom", value_text(info.custom)),) if info.custom else ()),
    ]
    parts: list[Part] = [Facts(facts), Line(""), _columns_table(info)]
    look.output.show(View(data=data, parts=parts))


def _shards_text(info: SnapshotInfo) -> str:
    """`4, rows from 716 to 778 each, skew 1.036`."""
    text = f"{info.shard_count:,}"
    if info.empty_shards:
        text += f" ({info.empty_shards:,} empty)"
    least, most, skew = (info.statistics.get(name) for name in ("rows_min", "rows_max", "skew"))
    if isinstance(least, int) and isinstance(most, int):
        text += f", {least:,} to {most:,} rows each"
    return text if skew is None else f"{text}, skew {skew} (largest to mean)"


def _columns_table(info: SnapshotInfo) -> Table:
    kinds = {column.name: column.kind.value for column in info.key}
    rows = [
        (value_text(one.name), kinds.get(one.name, one.type), "yes" if one.nullable else "", _role(one.name, kinds))
        for one in info.columns[:_COLUMNS_MAX]
    ]
    return Table(_COLUMNS, rows, more=max(0, len(info.columns) - _COLUMNS_MAX))


def _role(name: str, kinds: Mapping[str, str]) -> str:
    return "key" if name in kinds else "value"
