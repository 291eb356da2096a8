"""`holdfast show`."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, common_options, snapshot_options, url_argument
from holdfast.cli.output import Column, Facts, Line, Part, Table, View
from holdfast.cli.shapes import EXAMPLES_MAX, artifact_json
from holdfast.cli.words import count, size_text, tags_text, time_text
from holdfast.clock import format_time

__all__ = ["command"]

_COLUMNS = (
    Column(title="kind"),
    Column(title="rows", right=True),
    Column(title="size", right=True),
    Column(title="path", keep="middle", least=20),
)


@click.command(name="show")
@url_argument
@snapshot_options
@common_options
def command(
    url: str | None, ref: str | None, run_id: str | None, offset: int | None, layout: str | None, as_json: bool
) -> None:
    """Show one snapshot: the visible one, or the one that is named.

    JSON: ref, manifest_id, run_id, published_at, commit_ulid, epoch, parent_hash, previous_manifest_path, tags (at
    birth), counters, inputs, row_count, byte_size, artifacts.

    \b
    Examples:
      holdfast show ./users
      holdfast show ./users --offset 1 --json
    """
    call = Call(url, layout=layout, as_json=as_json)
    move = call.chain.find(ref=ref, run_id=run_id, offset=offset)
    manifest = call.chain.load_manifest(move.manifest_path)
    name = call.chain.layout.ref_of(move.manifest_path)
    artifacts = sorted(manifest.artifacts, key=lambda one: -one.byte_size)
    total = f"{count(len(artifacts), 'artifact')}, {count(manifest.row_count, 'row')}, {size_text(manifest.byte_size)}"
    facts = [
        ("chain", call.identity),
        ("ref", name),
        ("published", f"{time_text(manifest.published_at)} UTC by run {manifest.run_id}"),
        ("commit", manifest.commit_ulid),
        ("epoch", str(manifest.epoch)),
        ("holds", total),
        *((("tags at birth", tags_text(dict(manifest.tags))),) if manifest.tags else ()),
        *(("built from", f"{pin.chain} {pin.ref}") for pin in manifest.inputs),
    ]
    rows = [(one.kind, f"{one.row_count:,}", size_text(one.byte_size), one.path) for one in artifacts[:EXAMPLES_MAX]]
    parts: list[Part] = [Facts(facts)]
    if rows:
        parts += [Line(""), Table(_COLUMNS, rows, more=max(0, len(artifacts) - EXAMPLES_MAX))]
    data = {
        "command": "show",
        "chain": call.identity,
        "ref": name,
        "manifest_id": manifest.manifest_id,
        "run_id": manifest.run_id,
        "published_at": format_time(manifest.published_at),
        "commit_ulid": manifest.commit_ulid,
        "epoch": manifest.epoch,
        "parent_hash": manifest.parent_hash,
        "previous_manifest_path": manifest.previous_manifest_path,
        "tags": dict(manifest.tags),
        "counters": dict(manifest.counters),
        "inputs": [pin.to_json() for pin in manifest.inputs],
        "row_count": manifest.row_count,
        "byte_size": manifest.byte_size,
        "artifacts": [artifact_json(one) for one in manifest.artifacts],
    }
    call.output.show(View(data=data, parts=parts))
