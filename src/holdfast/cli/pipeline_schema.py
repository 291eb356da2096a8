"""`holdfast pipeline schema`."""

from __future__ import annotations

import json

import click

from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Verbatim, View, make_output

__all__ = ["command"]


@click.command(name="schema")
@json_option
def command(as_json: bool) -> None:
    """Print the JSON schema of a pipeline's file, which editors use to complete keys and to mark mistakes.

    Save it beside the file, and write `#:schema ./pipeline.schema.json` into the file's first line. With --json the
    schema is in a document, as with every command; without, it is printed as it is.

    JSON: schema.

    \b
    Examples:
      holdfast pipeline schema > pipeline.schema.json
    """
    from holdfast.pipeline.schema import pipeline_schema

    schema = pipeline_schema()
    parts = [Verbatim(json.dumps(schema, indent=2, ensure_ascii=False))]
    make_output(as_json=as_json).show(View(data={"command": "pipeline schema", "schema": schema}, parts=parts))
