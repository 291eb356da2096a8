"""Ready policies as files: JSON for each principal, or one Terraform file for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.catalog.iam import PRINCIPALS, Place, rights_of
from holdfast.catalog.iam_aws import aws_policy, aws_terraform, check_aws_bucket
from holdfast.catalog.iam_azure import azure_policy, azure_terraform, check_azure_account, check_azure_container
from holdfast.catalog.iam_gcp import check_gcp_bucket, check_gcp_project, gcp_policy, gcp_terraform
from holdfast.catalog.iam_hcl import Block, write
from holdfast.errors import BadInput

__all__ = ["FORMATS", "PROVIDERS", "Format", "PolicyFile", "Provider", "render_policies"]

Provider = Literal["aws", "gcp", "azure"]
Format = Literal["json", "terraform"]
PROVIDERS: tuple[Provider, ...] = ("aws", "gcp", "azure")
FORMATS: tuple[Format, ...] = ("json", "terraform")

_HEAD = """\
# Written by `holdfast iam render --provider {provider} --format terraform`.
# Change what principals may do in Holdfast, not here.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """One rendered file."""

    name: str
    principals: tuple[str, ...]
    text: str


def render_policies(
    provider: Provider,
    place: Place,
    *,
    principals: Sequence[str] = PRINCIPALS,
    form: Format = "json",
    project: str | None = None,
    storage_account: str | None = None,
    see_missing: bool = False,
    write_once: bool = False,
) -> list[PolicyFile]:
    """The policies of the principals, or BadInput before anything is rendered.

    `project` is Google Cloud's and `storage_account` Azure's; Terraform takes both as variables where they are not
    given. `see_missing` and `write_once` are explained in docs/iam.md.
    """
    chosen = tuple(dict.fromkeys(principals))
    if not chosen:
        raise BadInput(f"no principal was chosen; use {', '.join(PRINCIPALS)}")
    for principal in chosen:
        rights_of(principal, place)
    _check(provider, place, form, project, storage_account, see_missing, write_once)
    if form == "terraform":
        blocks = _terraform(provider, chosen, place, project, storage_account, see_missing, write_once)
        text = _HEAD.format(provider=provider) + write(blocks)
        return [PolicyFile(name="holdfast_iam.tf", principals=chosen, text=text)]
    return [
        PolicyFile(
            name=f"{principal}.json",
            principals=(principal,),
            text=json.dumps(
                _policy(provider, principal, place, project, storage_account, see_missing, write_once), indent=2
            )
            + "\n",
        )
        for principal in chosen
    ]


def _policy(
    provider: Provider,
    principal: str,
    place: Place,
    project: str | None,
    account: str | None,
    see_missing: bool,
    write_once: bool,
) -> dict[str, object]:
    match provider:
        case "aws":
            return aws_policy(principal, place, see_missing=see_missing, write_once=write_once)
        case "gcp":
            return gcp_policy(principal, place, project=project or "", see_missing=see_missing)
        case "azure":
            return azure_policy(principal, place, account=account or "")


def _terraform(
    provider: Provider,
    principals: Sequence[str],
    place: Place,
    project: str | None,
    account: str | None,
    see_missing: bool,
    write_once: bool,
) -> list[Block]:
    match provider:
        case "aws":
            return aws_terraform(principals, place, see_missing=see_missing, write_once=write_once)
        case "gcp":
            return gcp_terraform(principals, place, project=project, see_missing=see_missing)
        case "azure":
            return azure_terraform(principals, place, account=account)


def _check(
    provider: Provider,
    place: Place,
    form: Format,
    project: str | None,
    account: str | None,
    see_missing: bool,
    write_once: bool,
) -> None:
    if provider == "aws":
        check_aws_bucket(place.bucket)
    elif provider == "gcp":
        check_gcp_bucket(place.bucket)
    else:
        check_azure_container(place.bucket)
    if project is not None:
        _only_for("gcp", provider, "--project")
        check_gcp_project(project)
    elif provider == "gcp" and form == "json":
        raise BadInput("the roles of Google Cloud belong to a project; give --project, or --format terraform")
    if account is not None:
        _only_for("azure", provider, "--storage-account")
        check_azure_account(account)
    elif provider == "azure" and form == "json":
        raise BadInput(
            "an assignment on Azure names its storage account; give --storage-account, or --format terraform"
        )
    if write_once:
        _only_for("aws", provider, "--write-once")
    if see_missing and provider == "azure":
        raise BadInput("--see-missing is not for azure, which tells missing blobs from forbidden ones by itself")


def _only_for(wanted: Provider, provider: Provider, option: str) -> None:
    if provider != wanted:
        raise BadInput(f"{option} is for {wanted} only, not for {provider}")
