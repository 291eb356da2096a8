"""`holdfast multiget`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.failures import EXIT_NOT_FOUND
from holdfast.cli.kv import KvCommand, Look, reading_options, several_keys, where_options
from holdfast.cli.output import Column, Facts, Line, Part, Table, View
from holdfast.cli.session import current_session
from holdfast.cli.values import json_value, key_text, value_text
from holdfast.cli.words import count
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.kv import DataSet, Key

__all__ = ["command"]

_MISSING_NAMED_MAX = 20
_TABLE_COLUMNS_MAX = 9
"""With more, not even shortened cells fit a terminal of eighty columns."""


@click.command(name="multiget", cls=KvCommand)
@click.argument("words", nargs=-1, metavar="[URL] KEY...")
@click.option("--keys-from", metavar="FILE", help="Also the keys in this file, one a line; - is the standard input.")
@where_options
@reading_options
@click.pass_context
def command(
    context: click.Context,
    words: tuple[str, ...],
    keys_from: str | None,
    ref: str | None,
    offset: int | None,
    direct: bool | None,
    cache: str | None,
    layout: str | None,
    as_json: bool,
) -> None:
    """Look up several keys at once.

    Keys are typed as for `get`, and answered in their order. The exit code is 3 if any of them is not there; what was
    found is printed all the same.

    Where a chain is configured, the first word is a URL only if it has a scheme, such as s3://, or begins with /, ./,
    ../ or ~.

    JSON: ref, rows (key, found, value), found_count, missing_count.

    \b
    Examples:
      holdfast multiget ./users 42 43 44
      holdfast multiget s3://bucket/team/datasets/users --keys-from keys.txt --json
      cut -d, -f1 orders.csv | holdfast multiget ./users --keys-from -
    """
    url, typed = several_keys(words)
    typed += [] if keys_from is None else _lines(keys_from)
    if not typed:
        raise BadInput("no keys; give at least one KEY, or --keys-from FILE")
    look = Look(url, ref=ref, offset=offset, layout=layout, as_json=as_json, direct=direct, cache=cache)
    with look.reader() as reader:
        schema = reader.dataset.key
        keys = [schema.parse(one) for one in typed]
        found = reader.multi_get(keys)
        missing = [key for key in keys if key not in found]
        data = {
            "command": "multiget",
            "chain": look.call.identity,
            "ref": reader.snapshot_info().ref,
            "rows": [
                {"key": schema.to_json_key(key), "found": key in found, "value": json_value(found.get(key))}
                for key in keys
            ],
            "found_count": len(keys) - len(missing),
            "missing_count": len(missing),
        }
        parts = _parts(reader.dataset, [(key, found[key]) for key in keys if key in found], missing)
    look.output.show(View(data=data, parts=parts))
    if missing:
        context.exit(EXIT_NOT_FOUND)


def _lines(name: str) -> list[str]:
    if name == "-" and current_session() is not None:
        raise BadInput("the prompt's own commands come from the standard input; name a file with --keys-from")
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--keys-from {name} cannot be read: {error}") from None
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line]


def _parts(dataset: DataSet, found: list[tuple[Key, object]], missing: list[Key]) -> list[Part]:
    """A table, or a block for each row where a table would be too wide; then what is not there."""
    parts: list[Part] = []
    names = dataset.schema.names
    if len(names) > _TABLE_COLUMNS_MAX:
        for key, value in found:
            pairs = zip(map(value_text, names), _cells(dataset, key, value), strict=True)
            parts += [Facts(list(pairs)), Line("")]
    elif found:
        columns = [Column(title=value_text(name), keep="middle", least=6) for name in names]
        parts.append(Table(columns, [_cells(dataset, key, value) for key, value in found]))
    if missing:
        named = " ".join(map(key_text, missing[:_MISSING_NAMED_MAX]))
        more = "" if len(missing) <= _MISSING_NAMED_MAX else f" and {count(len(missing) - _MISSING_NAMED_MAX, 'other')}"
        parts.append(Line(f"Not there: {named}{more}", style="yellow"))
    return parts


def _cells(dataset: DataSet, key: Key, value: object) -> list[str]:
    parts = key if isinstance(key, tuple) else (key,)
    values: list[object] = [value]
    if dataset.value.value == "row" and isinstance(value, Mapping):
        values = [value[name] for name in dataset.value_schema.names]
    return [value_text(one) for one in (*parts, *values)]
