"""Policies for Azure: a role definition for each principal, assigned to the container under a condition on blob paths.

What Blob Storage makes of the verbs:

- Reading, looking at metadata and listing are one data action, `blobs/read`. A condition tells listing apart by its
  suboperation `Blob.List`; it is refused unless it asks for a prefix that is allowed.
- Creating, replacing and uploading in parts are one data action, `blobs/write`. There is one that only creates
  (`blobs/add/action`), but who has no more may be told "forbidden" where "already exists" is the answer needed.
- An object that is not there is 404 to everybody who may read where it would be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.catalog.iam import Place, Rights, describe, rights_of
from holdfast.catalog.iam_hcl import Block, Expression, Value
from holdfast.catalog.iam_witness import Verb
from holdfast.errors import BadInput

__all__ = ["azure_policy", "azure_terraform", "check_azure_account", "check_azure_container"]

_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(?:-[a-z0-9]+)*")
_ACCOUNT = re.compile(
    r"(?P<group>/subscriptions/[0-9A-Fa-f-]{36}/resourceGroups/[\w.()-]{1,90})"
    r"/providers/Microsoft\.Storage/storageAccounts/[a-z0-9]{3,24}"
)
_CONTAINER_SCOPE = "{account}/blobServices/default/containers/{container}"

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_ACTIONS: Mapping[Verb, str] = {
    Verb.READ: "{}/{}".format(_BLOBS, "read"),
    Verb.LIST: "{}/{}".format(_BLOBS, "read"),
    Verb.CREATE: "{}/{}".format(_BLOBS, "write"),
    Verb.REPLACE: "{}/{}".format(_BLOBS, "write"),
    Verb.UPLOAD: "{}/{}".format(_BLOBS, "write"),
    Verb.DELETE: "{}/{}".format(_BLOBS, "delete"),
}
_PATH = f"@Resource[{_BLOBS}:path]"
_PREFIX = f"@Request[{_BLOBS}:prefix]"


def check_azure_container(container: str) -> None:
    """BadInput unless Blob Storage would take the name."""
    if not _CONTAINER.fullmatch(container):
        raise BadInput(f"{container!r} is no name of a container: use 3 to 63 lower-case letters, digits and single -")


def check_azure_account(account: str) -> None:
    """BadInput unless it is the resource id of a storage account."""
    if not _ACCOUNT.fullmatch(account):
        raise BadInput(
            f"{account!r} is no storage account; give its resource id: `az storage account show --query id` prints it"
        )


def azure_policy(principal: str, place: Place, *, account: str) -> dict[str, object]:
    """A role definition, and what to assign it by. Who it is assigned to is known at the assignment."""
    rights = rights_of(principal, place)
    group = _ACCOUNT.fullmatch(account)
    assert group is not None
    return {
        "roleDefinition": {
            "Name": _role_name(principal, place),
            "IsCustom": True,
            "Description": describe(principal),
            "Actions": [],
            "NotActions": [],
            "DataActions": _data_actions(rights),
            "NotDataActions": [],
            "AssignableScopes": [group["group"]],
        },
        "roleAssignment": {
            "roleDefinitionName": _role_name(principal, place),
            "scope": _CONTAINER_SCOPE.format(account=account, container=place.bucket),
            "condition": _condition(rights),
            "conditionVersion": "2.0",
        },
    }


def azure_terraform(principals: Sequence[str], place: Place, *, account: str | None) -> list[Block]:
    """Role definitions and assignments. The account and who the principals are come in as variables."""
    named: dict[str, Value] = {} if account is None else {"default": account}
    scope = _CONTAINER_SCOPE.format(account="${var.storage_account_id}", container=place.bucket)
    blocks = [
        Block("variable", ("storage_account_id",), {"type": Expression("string"), **named}),
        Block(
            "variable",
            ("principal_ids",),
            {"type": Expression("map(string)")},
            comment=f"The object ids of the identities, by principal: {', '.join(principals)}.",
        ),
        Block(
            "locals",
            (),
            {
                "holdfast_resource_group": Expression('split("/providers/", var.storage_account_id)[0]'),
                "holdfast_container": Expression(f'"{scope}"'),
            },
        ),
    ]
    for principal in principals:
        blocks += _blocks_of(principal, place)
    return blocks


def _blocks_of(principal: str, place: Place) -> list[Block]:
    rights = rights_of(principal, place)
    label = "holdfast_" + principal.replace("-", "_")
    definition: dict[str, Value] = {
        "name": _role_name(principal, place),
        "description": describe(principal),
        "scope": Expression("local.holdfast_resource_group"),
        "assignable_scopes": [Expression("local.holdfast_resource_group")],
    }
    permissions = Block("permissions", (), {"actions": [], "data_actions": _data_actions(rights)})
    assignment: dict[str, Value] = {
        "scope": Expression("local.holdfast_container"),
        "role_definition_id": Expression(f"azurerm_role_definition.{label}.role_definition_resource_id"),
        "principal_id": Expression(f'var.principal_ids["{principal}"]'),
        "condition_version": "2.0",
        "condition": _condition(rights),
    }
    return [
        Block("resource", ("azurerm_role_definition", label), definition, (permissions,), comment=describe(principal)),
        Block("resource", ("azurerm_role_assignment", label), assignment),
    ]


def _role_name(principal: str, place: Place) -> str:
    return f"holdfast-{place.bucket}-{place.name}-{principal}"


def _data_actions(rights: Rights) -> list[str]:
    return list(dict.fromkeys(_ACTIONS[verb] for verb in rights))


def _condition(rights: Rights) -> str:
    """For each data action of the role: it is another one, or it stays below its prefixes.

    Listing is spoken of wherever the role may read, because there it comes along unless it is refused.
    """
    clauses = []
    if Verb.READ in rights or Verb.LIST in rights:
        read = f"ActionMatches{{'{_ACTIONS[Verb.READ]}'}}"
        listing = f"{read} AND SubOperationMatches{{'Blob.List'}}"
        reading = f"{read} AND NOT SubOperationMatches{{'Blob.List'}}"
        clauses.append(_unless(reading, _PATH, rights.get(Verb.READ, ())))
        clauses.append(_unless(listing, _PREFIX, rights.get(Verb.LIST, ())))
    written = [prefix for verb in (Verb.CREATE, Verb.REPLACE, Verb.UPLOAD) for prefix in rights.get(verb, ())]
    if written:
        clauses.append(_unless(f"ActionMatches{{'{_ACTIONS[Verb.CREATE]}'}}", _PATH, tuple(dict.fromkeys(written))))
    if Verb.DELETE in rights:
        clauses.append(_unless(f"ActionMatches{{'{_ACTIONS[Verb.DELETE]}'}}", _PATH, rights[Verb.DELETE]))
    return " AND ".join(f"({clause})" for clause in clauses)


def _unless(action: str, attribute: str, prefixes: Sequence[str]) -> str:
    below = [f"{attribute} StringStartsWith '{prefix}'" for prefix in prefixes]
    return " OR ".join([f"!({action})", *below])
