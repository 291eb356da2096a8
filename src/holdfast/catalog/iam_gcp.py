"""Policies for Google Cloud: custom roles, one for each verb, bound to the bucket under conditions on object names.

What Cloud Storage makes of the verbs:

- `storage.objects.create` cannot overwrite: what is created once stays, by the cloud's own rule.
- Replacing an object needs `storage.objects.delete` too. Who may swap a pointer could also delete it.
- `storage.objects.list` is checked on the bucket, where no condition on object names can hold. It is given on a managed
  folder instead, whose objects it then covers. (Both need uniform bucket-level access.)
- An object that is not there is 404 only to who may list the bucket, and 403 to all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from holdfast.catalog.iam import Place, Rights, describe, rights_of
from holdfast.catalog.iam_hcl import Block, Expression, Value
from holdfast.catalog.iam_witness import Verb
from holdfast.errors import BadInput

__all__ = ["check_gcp_bucket", "check_gcp_project", "gcp_policy", "gcp_terraform"]

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ROLE = "projects/{project}/roles/{role}"
_IS_OBJECT = 'resource.type == "storage.googleapis.com/Object"'
_IS_BELOW = 'resource.name.startsWith("projects/_/buckets/{bucket}/objects/{prefix}")'

_ROLES: Mapping[Verb, tuple[str, str, tuple[str, ...]]] = {
    Verb.READ: ("holdfastRead", "Holdfast: read objects", ("storage.objects.get",)),
    Verb.CREATE: ("holdfastCreate", "Holdfast: create objects", ("storage.objects.create",)),
    Verb.REPLACE: (
        "holdfastReplace",
        "Holdfast: create and replace objects",
        ("storage.objects.create", "storage.objects.delete"),
    ),
    Verb.UPLOAD: (
        "holdfastUpload",
        "Holdfast: create objects in parts",
        ("storage.multipartUploads.abort", "storage.multipartUploads.create", "storage.objects.create"),
    ),
    Verb.LIST: ("holdfastList", "Holdfast: list objects", ("storage.objects.list",)),
    Verb.DELETE: ("holdfastDelete", "Holdfast: delete objects", ("storage.objects.delete",)),
}


def check_gcp_bucket(bucket: str) -> None:
    """BadInput unless Cloud Storage would take the name."""
    if not _BUCKET.fullmatch(bucket):
        raise BadInput(f"{bucket!r} is no name of a Cloud Storage bucket: use lower-case letters, digits, - _ and .")


def check_gcp_project(project: str) -> None:
    """BadInput unless it can be a project's id."""
    if not _PROJECT.fullmatch(project):
        raise BadInput(f"{project!r} is no id of a Google Cloud project: use 6 to 30 lower-case letters, digits and -")


def gcp_policy(principal: str, place: Place, *, project: str, see_missing: bool = False) -> dict[str, object]:
    """The roles, the bindings of the bucket's policy and those of managed folders that the principal needs."""
    rights = rights_of(principal, place)
    members = [f"serviceAccount:holdfast-{principal}@{project}.iam.gserviceaccount.com"]
    used = {verb for verb, _ in _on_bucket(rights)} | ({Verb.LIST} if see_missing or Verb.LIST in rights else set())
    bindings: list[dict[str, object]] = [
        {"role": _role(verb, project), "members": members, "condition": _condition(principal, verb, place, prefixes)}
        for verb, prefixes in _on_bucket(rights)
    ]
    if see_missing:
        bindings.append({"role": _role(Verb.LIST, project), "members": members})
    folders: list[dict[str, object]] = [
        {"name": folder, "policy": {"bindings": [{"role": _role(Verb.LIST, project), "members": members}]}}
        for folder in ([] if see_missing else rights.get(Verb.LIST, ()))
    ]
    return {
        "roles": [
            {
                "name": _role(verb, project),
                "title": _ROLES[verb][1],
                "stage": "GA",
                "includedPermissions": list(_ROLES[verb][2]),
            }
            for verb in Verb
            if verb in used
        ],
        "bucketPolicy": {"version": 3, "bindings": bindings},
        "managedFolders": folders,
    }


def gcp_terraform(
    principals: Sequence[str], place: Place, *, project: str | None, see_missing: bool = False
) -> list[Block]:
    """Roles, managed folders and bindings. Who the principals are is a variable."""
    rights = {principal: rights_of(principal, place) for principal in principals}
    used = {verb for one in rights.values() for verb, _ in _on_bucket(one)}
    if see_missing or any(Verb.LIST in one for one in rights.values()):
        used.add(Verb.LIST)
    blocks = [*_variables(principals, project), *(_role_block(verb) for verb in Verb if verb in used)]
    folders = {folder for one in rights.values() for folder in one.get(Verb.LIST, ())} if not see_missing else set()
    for folder in sorted(folders):
        attributes: dict[str, Value] = {"bucket": place.bucket, "name": folder}
        blocks.append(Block("resource", ("google_storage_managed_folder", _label(place, folder)), attributes))
    for principal in principals:
        blocks += _bindings(principal, place, rights[principal], see_missing)
    return blocks


def _on_bucket(rights: Rights) -> Iterator[tuple[Verb, tuple[str, ...]]]:
    """What is bound to the bucket. Who may replace or upload somewhere may create there already."""
    for verb, prefixes in rights.items():
        if verb is Verb.LIST:
            continue
        covered = (*rights.get(Verb.REPLACE, ()), *rights.get(Verb.UPLOAD, ())) if verb is Verb.CREATE else ()
        remaining = tuple(prefix for prefix in prefixes if prefix not in covered)
        if remaining:
            yield verb, remaining


def _condition(principal: str, verb: Verb, place: Place, prefixes: Sequence[str]) -> dict[str, str]:
    below = [_IS_BELOW.format(bucket=place.bucket, prefix=prefix) for prefix in prefixes]
    places = below[0] if len(below) == 1 else f"({' || '.join(below)})"
    return {
        "title": f"holdfast {place.name} {principal} {verb.value}"[:100],
        "description": describe(principal),
        "expression": f"{_IS_OBJECT} && {places}",
    }


def _role(verb: Verb, project: str) -> str:
    return _ROLE.format(project=project, role=_ROLES[verb][0])


def _role_reference(verb: Verb) -> Expression:
    """By name, because the role may belong to another workspace's file; see the variable `create_roles`."""
    return Expression(f'"{_role(verb, "${var.project}")}"')


def _variables(principals: Sequence[str], project: str | None) -> list[Block]:
    named: dict[str, Value] = {} if project is None else {"default": project}
    members = ", ".join(principals)
    return [
        Block("variable", ("project",), {"type": Expression("string"), **named}),
        Block(
            "variable",
            ("members",),
            {"type": Expression("map(string)")},
            comment=f'Who the principals are, as in "serviceAccount:NAME@...", by their names: {members}.',
        ),
        Block(
            "variable",
            ("create_roles",),
            {"type": Expression("bool"), "default": True},
            comment="The roles are the project's. For its second workspace say false.",
        ),
    ]


def _role_block(verb: Verb) -> Block:
    role_id, title, permissions = _ROLES[verb]
    attributes: dict[str, Value] = {
        "count": Expression("var.create_roles ? 1 : 0"),
        "project": Expression("var.project"),
        "role_id": role_id,
        "title": title,
        "permissions": permissions,
    }
    return Block("resource", ("google_project_iam_custom_role", _role_label(verb)), attributes)


def _bindings(principal: str, place: Place, rights: Rights, see_missing: bool) -> Iterator[Block]:
    label = "holdfast_" + principal.replace("-", "_")
    member = Expression(f'var.members["{principal}"]')

    def attributes(verb: Verb, bucket: Value) -> dict[str, Value]:
        after: list[Value] = [Expression(f"google_project_iam_custom_role.{_role_label(verb)}")]
        return {"bucket": bucket, "role": _role_reference(verb), "member": member, "depends_on": after}

    for number, (verb, prefixes) in enumerate(_on_bucket(rights)):
        condition = Block("condition", (), dict(_condition(principal, verb, place, prefixes)))
        yield Block(
            "resource",
            ("google_storage_bucket_iam_member", f"{label}_{verb.value}"),
            attributes(verb, place.bucket),
            (condition,),
            comment="" if number else describe(principal),
        )
    if see_missing:
        name = f"{label}_list"
        yield Block("resource", ("google_storage_bucket_iam_member", name), attributes(Verb.LIST, place.bucket))
        return
    for folder in rights.get(Verb.LIST, ()):
        managed = f"google_storage_managed_folder.{_label(place, folder)}"
        listing: dict[str, Value] = {
            "bucket": Expression(f"{managed}.bucket"),
            "managed_folder": Expression(f"{managed}.name"),
            **{name: value for name, value in attributes(Verb.LIST, "").items() if name != "bucket"},
        }
        yield Block("resource", ("google_storage_managed_folder_iam_member", f"{label}_list"), listing)


def _role_label(verb: Verb) -> str:
    return f"holdfast_{verb.value}"


def _label(place: Place, folder: str) -> str:
    return "holdfast_" + folder.removeprefix(place.prefix).rstrip("/")
