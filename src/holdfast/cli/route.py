"""`holdfast route`."""

from __future__ import annotations

import click

from holdfast.cli.kv import KvCommand, Look, one_key, where_options
from holdfast.cli.output import Facts, View
from holdfast.cli.values import key_text
from holdfast.cli.words import count, size_text
from holdfast.errors import UnknownShard

__all__ = ["command"]


@click.command(name="route", cls=KvCommand)
@click.argument("words", nargs=-1, metavar="[URL] KEY")
@where_options
def command(words: tuple[str, ...], ref: str | None, offset: int | None, layout: str | None, as_json: bool) -> None:
    """Say which shard a key belongs to.

    Whether or not the key is there: nothing is downloaded but the manifest. A shard without rows has no file.

    JSON: ref, key, shard, shard_count, routing, empty, path, row_count, byte_size.

    \b
    Examples:
      holdfast route ./users 42
      holdfast route s3://bucket/team/datasets/prices de,2026-11-15 --json
    """
    url, typed = one_key(words)
    look = Look(url, ref=ref, offset=offset, layout=layout, as_json=as_json)
    name, dataset = look.snapshot()
    key = dataset.key.parse(typed)
    number = dataset.routing.shard_of(key, dataset.key.hash_of(key))
    if not 0 <= number < len(dataset.shards):
        raise UnknownShard(f"key {key_text(key)} is routed to shard {number}, and there are {len(dataset.shards)}")
    shard = dataset.shards[number]
    data = {
        "command": "route",
        "chain": look.call.identity,
        "ref": name,
        "key": dataset.key.to_json_key(key),
        "shard": number,
        "shard_count": len(dataset.shards),
        "routing": dataset.routing.describe(),
        "empty": shard is None,
        "path": None if shard is None else shard.path,
        "row_count": 0 if shard is None else shard.row_count,
        "byte_size": 0 if shard is None else shard.byte_size,
    }
    facts = [
        ("key", key_text(key)),
        ("shard", f"{number} (of {len(dataset.shards)}, numbered from 0), by {dataset.routing.describe()}"),
    ]
    if shard is None:
        facts.append(("file", "none: the shard is empty, so the key is not there"))
    else:
        facts += [("file", shard.path), ("holds", f"{count(shard.row_count, 'row')}, {size_text(shard.byte_size)}")]
    look.output.show(View(data=data, parts=[Facts(facts)]))
