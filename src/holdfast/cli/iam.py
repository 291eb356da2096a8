"""`holdfast iam`: render."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import Facts, Line, Part, Verbatim, View, make_output
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.catalog.iam_render import Format, PolicyFile, Provider

__all__ = ["command"]


@click.group(name="iam", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Policies for the clouds: who may do what in a workspace.

    \b
    Examples:
      holdfast iam render --provider aws --bucket lake --tenant acme --workspace prod
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command(name="render")
@click.option("--provider", required=True, type=click.Choice(["aws", "gcp", "azure"]), help="Whose policies.")
@click.option("--bucket", required=True, metavar="NAME", help="The bucket, or on Azure the container.")
@click.option("--tenant", required=True, metavar="NAME", help="The tenant.")
@click.option("--workspace", required=True, metavar="NAME", help="The workspace.")
@click.option("--root", "--prefix", "root", default="", metavar="PATH", help="The folder that tenants are in, if any.")
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="NAME",
    help="api, pipeline, compactor-fastpath, compactor-antientropy or reader; may be given several times, all if not. "
    "Also collector: the right to delete, for who has others already.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "terraform"]),
    default="json",
    show_default=True,
    help="What the cloud's own tools take, or Terraform.",
)
@click.option("--project", metavar="ID", help="gcp: the project of roles and service accounts.")
@click.option("--storage-account", metavar="ID", help="azure: the storage account's resource id.")
@click.option(
    "--see-missing",
    is_flag=True,
    help="aws, gcp: let principals tell a missing object from a forbidden one. They may then list the bucket.",
)
@click.option(
    "--write-once",
    is_flag=True,
    help="aws: allow only writes that carry a condition, where no upload in parts goes. S3 itself knows this; few "
    "other servers do.",
)
@click.option("--out", metavar="DIR", help="Write files into this folder instead of printing; replaces old ones.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def render(
    provider: Provider,
    bucket: str,
    tenant: str,
    workspace: str,
    root: str,
    principals: tuple[str, ...],
    form: Format,
    project: str | None,
    storage_account: str | None,
    see_missing: bool,
    write_once: bool,
    out: str | None,
    as_json: bool,
) -> None:
    """Print ready policies for the principals of a workspace, as the code itself divides their rights.

    Nothing is read from a store or a cloud, and nothing is changed there. As JSON, one principal's policy is printed
    as it is, ready to be passed on; those of several as one object, by principal. What each cloud cannot express is
    said in docs/iam.md.

    JSON: provider, format, bucket, prefix, principals, files (name, principals, text, path if written).

    \b
    Examples:
      holdfast iam render --provider aws --bucket lake --tenant acme --workspace prod --out policies
      holdfast iam render --provider aws --bucket lake --tenant acme --workspace prod --principal api
      holdfast iam render --provider gcp --bucket lake --tenant acme --workspace prod --format terraform
    """
    from holdfast.catalog.iam import PRINCIPALS, Place
    from holdfast.catalog.iam_render import render_policies

    place = Place(bucket=bucket, tenant=tenant, workspace=workspace, root=root.strip("/"))
    chosen = principals or PRINCIPALS
    files = render_policies(
        provider,
        place,
        principals=chosen,
        form=form,
        project=project,
        storage_account=storage_account,
        see_missing=see_missing,
        write_once=write_once,
    )
    written = None if out is None else _write(Path(out), files)
    data = {
        "command": "iam render",
        "provider": provider,
        "format": form,
        "bucket": bucket,
        "prefix": place.prefix,
        "principals": list(dict.fromkeys(chosen)),
        "files": [_file_json(one, written) for one in files],
    }
    make_output(as_json=as_json).show(View(data=data, parts=_parts(files, form, written)))


def _file_json(file: PolicyFile, folder: Path | None) -> dict[str, object]:
    path = {} if folder is None else {"path": str(folder / file.name)}
    return {"name": file.name, "principals": list(file.principals), "text": file.text, **path}


def _parts(files: Sequence[PolicyFile], form: Format, folder: Path | None) -> list[Part]:
    if folder is not None:
        facts = [(", ".join(one.principals), str(folder / one.name)) for one in files]
        return [Line(f"Written to {folder}.", style="bold"), Facts(facts, whole=True)]
    if form == "terraform" or len(files) == 1:
        return [Verbatim(one.text.rstrip("\n")) for one in files]
    together = {one.principals[0]: json.loads(one.text) for one in files}
    return [Verbatim(json.dumps(together, indent=2))]


def _write(folder: Path, files: Sequence[PolicyFile]) -> Path:
    """Each file whole or not at all: it is written beside its place and moved there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in files:
            beside = folder / f".{one.name}.{os.getpid()}"
            try:
                beside.write_text(one.text, encoding="utf-8")
                beside.replace(folder / one.name)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{str(folder)!r} cannot be written to: {error.strerror}; give another --out") from error
    return folder
