"""Nodes and edges from files: Parquet, CSV with a header, and JSON lines, by the end of their names.

Columns are text and are taken as they are: a CSV's `007` stays `007`, and only an empty cell is nothing. In JSON lines,
metadata may be an object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import orjson

from holdfast.cli.output import Progress
from holdfast.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "files_of", "format_of", "input_options", "read_edges", "read_nodes"]

_F = TypeVar("_F", bound=Callable[..., object])
FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".jsonl.gz": "json",
    ".ndjson.gz": "json",
}


def input_options(function: _F) -> _F:
    """Where nodes and edges come from."""
    function = click.option(
        "--dangling",
        type=click.Choice(["refuse", "keep"]),
        default="refuse",
        show_default=True,
        help="What to do with edges whose end is not there.",
    )(function)
    function = click.option(
        "--edges",
        "edge_paths",
        multiple=True,
        metavar="PATH",
        help="Edges: source, target, type, and file, metadata if any. May be given several times.",
    )(function)
    return click.option(
        "--nodes",
        "node_paths",
        multiple=True,
        metavar="PATH",
        help="A file of nodes, or a folder of such files: semantic_id, type, and name, file, content_hash, metadata if "
        "any. May be given several times.",
    )(function)


def files_of(paths: Sequence[str], option: str) -> list[Path]:
    """The files that were named, and those in the folders that were, in order."""
    found: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.is_file() and not _is_hidden(one, path))
            if not inside:
                raise BadInput(f"{option} {text}: the folder is empty")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise BadInput(f"{option} {text}: there is no such file")
    for path in found:
        format_of(path)
    return found


def format_of(path: Path) -> str:
    """`parquet`, `csv` or `json`."""
    name = path.name.lower()
    kind = next((kind for ending, kind in FORMATS.items() if name.endswith(ending)), None)
    if kind is None:
        raise BadInput(f"{path}: what is in it? Files are told by their ends: {', '.join(FORMATS)}")
    return kind


def read_nodes(files: Sequence[Path], told: Progress) -> pa.Table:
    """The nodes in some files, checked, in the columns that are stored."""
    from holdfast.graph.records import canonical_nodes, node_schema

    return _read(files, node_schema(), canonical_nodes, told)


def read_edges(files: Sequence[Path], told: Progress) -> pa.Table:
    from holdfast.graph.records import canonical_edges, edge_schema

    return _read(files, edge_schema(), canonical_edges, told)


def _read(
    files: Sequence[Path], schema: pa.Schema, canonical: Callable[[pa.Table], pa.Table], told: Progress
) -> pa.Table:
    import pyarrow as pa

    tables = [schema.empty_table()]
    for done, path in enumerate(files):
        told(done, len(files))
        try:
            tables.append(canonical(_READERS[format_of(path)](path, schema)))
        except BadInput as error:
            raise type(error)(f"{path}: {error}") from None
        except (OSError, pa.ArrowException) as error:
            raise BadInput(f"{path} cannot be read: {_first_line(error)}") from None
    told(len(files), len(files))
    return pa.concat_tables(tables)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_hidden(path: Path, folder: Path) -> bool:
    """What other programs leave beside their data: `_SUCCESS`, `.crc` files."""
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _read_parquet(path: Path, schema: pa.Schema) -> pa.Table:
    import pyarrow.parquet as pq

    del schema
    return pq.read_table(path)


def _read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(schema.names, pa.string()),
            null_values=[""],  # a function may be called NA
            strings_can_be_null=True,
        ),
    )


def _read_json(path: Path, schema: pa.Schema) -> pa.Table:
    """By Arrow where every value is text; else line by line, which also finds the line that is wrong."""
    import pyarrow as pa
    from pyarrow import json

    options = json.ParseOptions(explicit_schema=schema.remove_metadata(), unexpected_field_behavior="infer")
    try:
        return json.read_json(path, parse_options=options)
    except pa.ArrowInvalid:
        with pa.input_stream(path, compression="detect") as stream:
            return _json_lines(stream.read().splitlines(), schema)


def _json_lines(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, list[str | None]] = {name: [] for name in schema.names}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BadInput(f"line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise BadInput(f'line {number} is no object: a line has one record, such as {{"{schema.names[0]}": …}}')
        unknown = [name for name in row if name not in columns]
        if unknown:
            raise BadInput(f"line {number} has a field {unknown[0]!r}; the fields are {', '.join(columns)}")
        for name, values in columns.items():
            values.append(_text(row.get(name), name, number))
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _text(value: object, name: str, line: int) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if name == "metadata":
        return orjson.dumps(value).decode()  # in the order of the file, as Spark reads it
    raise BadInput(f"line {line}: {name!r} should be text, not {value!r}")


_READERS: dict[str, Callable[[Path, pa.Schema], pa.Table]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "json": _read_json,
}
