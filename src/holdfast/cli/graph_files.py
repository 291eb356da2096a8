"""`holdfast graph dependents` and `holdfast graph dependencies`: the same question, asked both ways."""

from __future__ import annotations

from collections.abc import Callable

import click

from holdfast.cli.graph_call import GraphLook, limit_option, shown_count, type_option, version_options
from holdfast.cli.graph_shapes import answer_parts, text
from holdfast.cli.kv import several_keys
from holdfast.cli.output import Column, View

__all__ = ["dependencies", "dependents"]

_COLUMNS = (Column(title="file", keep="end", least=20),)
_DEPENDENTS = """Show the files that depend on some.

    Those that have an edge into one of them. Where a chain is configured, the first word is a URL only if it has a
    scheme, such as s3://, or begins with /, ./, ../ or ~.

    JSON: version, asked, transitive, total, files.

    \b
    Examples:
      holdfast graph dependents ./code json/decoder.py
      holdfast graph dependents ./code json/decoder.py --type IMPORTS_FROM --transitive --json
    """
_DEPENDENCIES = """Show the files that some depend on.

    Those that an edge from one of them leads into. Where a chain is configured, the first word is a URL only if it
    has a scheme, such as s3://, or begins with /, ./, ../ or ~.

    JSON: version, asked, transitive, total, files.

    \b
    Examples:
      holdfast graph dependencies ./code json/decoder.py
      holdfast graph dependencies ./code json/decoder.py --transitive --version 3
    """


def _command(name: str, words_of_help: str) -> click.Command:
    @click.command(name=name, help=words_of_help)
    @click.argument("words", nargs=-1, metavar="[URL] FILE...")
    @type_option("edges")
    @click.option("--transitive", is_flag=True, help="And those of those, as far as it goes.")
    @limit_option
    @version_options
    def command(
        words: tuple[str, ...],
        types: tuple[str, ...],
        transitive: bool,
        limit: int | None,
        version: int | None,
        tag: str | None,
        at: str | None,
        as_json: bool,
    ) -> None:
        url, files = several_keys(words)
        if not files:
            raise click.UsageError("expected [URL] FILE..., got no FILE", ctx=click.get_current_context())
        look = GraphLook(url, version=version, tag=tag, at=at, as_json=as_json)
        ask: Callable[..., list[str]] = getattr(look.graph, name)
        found = ask(files, types=types, transitive=transitive)
        shown = found[: shown_count(limit, as_json=as_json, total=len(found))]
        data = look.document(name, asked=files, transitive=transitive, total=len(found), files=shown)
        rows = [{"file": one} for one in shown]
        parts = answer_parts(_COLUMNS, rows, lambda row: (text(row["file"]),), total=len(found), noun="file")
        look.output.show(View(data=data, parts=parts))

    return command


dependents = _command("dependents", _DEPENDENTS)
dependencies = _command("dependencies", _DEPENDENCIES)
