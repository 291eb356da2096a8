"""`holdfast get`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.failures import EXIT_NOT_FOUND
from holdfast.cli.kv import KvCommand, Look, one_key, reading_options, where_options
from holdfast.cli.output import Facts, Line, Part, Verbatim, View
from holdfast.cli.values import json_text, json_value, key_text, value_text
from holdfast.errors import BadInput, NotFound

if TYPE_CHECKING:
    from holdfast.kv import Key, ShardedReader

__all__ = ["command"]

_NOTHING = object()


@click.command(name="get", cls=KvCommand)
@click.argument("words", nargs=-1, metavar="[URL] KEY")
@click.option("--raw", is_flag=True, help="Write the value's bytes as they are, and nothing else.")
@where_options
@reading_options
@click.pass_context
def command(
    context: click.Context,
    words: tuple[str, ...],
    raw: bool,
    ref: str | None,
    offset: int | None,
    direct: bool | None,
    cache: str | None,
    layout: str | None,
    as_json: bool,
) -> None:
    """Look up one key of a key-value data set.

    The parts of a composite key are separated by commas. Bytes are typed as text or as 0x and hex, dates as 2026-11-15.
    Text that begins with - goes behind --. The exit code is 3 if the key is not there, and 6 if its shard is damaged.

    JSON: ref, key, shard, found, value (bytes as {"base64": ...}; dates, UUIDs and decimals as text).

    \b
    Examples:
      holdfast get ./users 42
      holdfast get s3://bucket/team/datasets/prices de,2026-11-15 --offset 1
      holdfast get ./images logo.png --raw > logo.png
    """
    url, typed = one_key(words)
    if raw and as_json:
        raise BadInput("--raw and --json are two ways to print; give one of them")
    look = Look(url, ref=ref, offset=offset, layout=layout, as_json=as_json, direct=direct, cache=cache)
    with look.reader() as reader:
        key = reader.dataset.key.parse(typed)
        if raw:
            _write_raw(reader, key)
            return
        value = reader.get(key, _NOTHING)
        found = value is not _NOTHING
        if not found and not look.as_json:
            raise _not_there(reader, key)
        data = {
            "command": "get",
            "chain": look.call.identity,
            "ref": reader.snapshot_info().ref,
            "key": reader.dataset.key.to_json_key(key),
            "shard": reader.route_key(key),
            "found": found,
            "value": json_value(value) if found else None,
        }
        look.output.show(View(data=data, parts=_parts(reader, value)))
    if not found:
        context.exit(EXIT_NOT_FOUND)


def _parts(reader: ShardedReader, value: object) -> list[Part]:
    """Rows as names with values, JSON over several lines, bytes as they read."""
    match reader.dataset.value.value, value:
        case "row", Mapping() if not value:
            return [Line("It is there; the data set has no columns beside the key.")]
        case "row", Mapping():
            return [Facts([(value_text(name), value_text(one)) for name, one in value.items()], whole=True)]
        case "json", _:
            return [Verbatim(json_text(value))]
        case _:
            return [Verbatim(value_text(value))]


def _not_there(reader: ShardedReader, key: Key) -> NotFound:
    return NotFound(
        f"there is no key {key_text(key)} in snapshot {reader.snapshot_info().ref}; "
        "`history` lists others, for --offset or --ref"
    )


def _write_raw(reader: ShardedReader, key: Key) -> None:
    """Nothing is decoded and nothing added: what comes out is what was stored."""
    kind = reader.dataset.value.value
    if kind == "row":
        raise BadInput("--raw is for values that are bytes or JSON, and these are rows; use --json")
    table = reader.get_arrow([key], missing="drop")
    if not table.num_rows:
        raise _not_there(reader, key)
    stored = table.column(len(reader.dataset.key.columns))[0].as_py()
    sys.stdout.buffer.write(stored.encode() if isinstance(stored, str) else stored)
    sys.stdout.buffer.flush()
