"""`holdfast shards`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import url_argument
from holdfast.cli.kv import KvCommand, Look, where_options
from holdfast.cli.output import Column, Line, Part, Table, View
from holdfast.cli.values import key_text
from holdfast.cli.words import count, size_text

if TYPE_CHECKING:
    from holdfast.kv import DataSet, Shard

__all__ = ["command"]

_COLUMNS = (
    Column(title="shard", right=True),
    Column(title="rows", right=True),
    Column(title="size", right=True),
    Column(title="min key", keep="middle", least=7),
    Column(title="max key", keep="middle", least=7),
    Column(title="writer", keep="end", least=8),
    Column(title="path", keep="end", least=14),
)


@click.command(name="shards", cls=KvCommand)
@url_argument
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="How many shards to show.")
@where_options
def command(
    url: str | None, limit: int, ref: str | None, offset: int | None, layout: str | None, as_json: bool
) -> None:
    """List the shards of a key-value data set.

    With rows, size, smallest and largest key, who wrote it and where it is. A shard without rows has no file. Nothing
    is downloaded but the manifest.

    JSON: ref, shards (shard, empty, row_count, byte_size, min_key, max_key, writer, path, checksum), always all.

    \b
    Examples:
      holdfast shards ./users
      holdfast shards s3://bucket/team/datasets/users --offset 1 --json
    """
    look = Look(url, ref=ref, offset=offset, layout=layout, as_json=as_json)
    name, dataset = look.snapshot()
    data = {
        "command": "shards",
        "chain": look.call.identity,
        "ref": name,
        "shards": [_shard_json(dataset, number, shard) for number, shard in enumerate(dataset.shards)],
    }
    rows = [_cells(number, shard) for number, shard in enumerate(dataset.shards[:limit])]
    used = [shard for shard in dataset.shards if shard is not None]
    total = f"{count(dataset.row_count, 'row')}, {size_text(sum(shard.byte_size for shard in used))}"
    empty = len(dataset.shards) - len(used)
    parts: list[Part] = [
        Table(_COLUMNS, rows, more=max(0, len(dataset.shards) - limit), how="--limit N shows more"),
        Line(f"{count(len(dataset.shards), 'shard')}{f', {empty:,} of them empty' if empty else ''}: {total}"),
    ]
    look.output.show(View(data=data, parts=parts))


def _cells(number: int, shard: Shard | None) -> tuple[str, ...]:
    if shard is None:
        return str(number), "0", "", "", "", "", "(empty)"
    return (
        str(number),
        f"{shard.row_count:,}",
        size_text(shard.byte_size),
        key_text(shard.min_key),
        key_text(shard.max_key),
        shard.writer,
        shard.path,
    )


def _shard_json(dataset: DataSet, number: int, shard: Shard | None) -> dict[str, object]:
    if shard is None:
        nothing = dict.fromkeys(("min_key", "max_key", "writer", "path", "checksum"))
        return {"shard": number, "empty": True, "row_count": 0, "byte_size": 0, **nothing}
    return {
        "shard": number,
        "empty": False,
        "row_count": shard.row_count,
        "byte_size": shard.byte_size,
        "min_key": dataset.key.to_json_key(shard.min_key),
        "max_key": dataset.key.to_json_key(shard.max_key),
        "writer": shard.writer,
        "path": shard.path,
        "checksum": shard.checksum,
    }
