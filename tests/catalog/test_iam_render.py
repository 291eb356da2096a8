"""Rendered policies: as they were agreed to, valid for who reads them, and the same in JSON and in Terraform."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hcl2
import pytest

from holdfast.catalog.iam import PRINCIPALS, PRINCIPALS_ALL, Place, describe, rights_of
from holdfast.catalog.iam_hcl import Block, Expression, write
from holdfast.catalog.iam_render import PROVIDERS, Provider, render_policies
from holdfast.catalog.iam_witness import Verb
from holdfast.errors import BadInput
from tests.catalog.iam_clouds import ACCOUNT, PROJECT
from tests.catalog.iam_golden import GOLDEN, PLACE, rendered
from tests.house.source import ROOT

RENDERED = list(rendered())


def policies(provider: Provider, *, see_missing: bool = False, write_once: bool = False) -> dict[str, Any]:
    """The JSON documents by principal."""
    project = PROJECT if provider == "gcp" else None
    account = ACCOUNT if provider == "azure" else None
    files = render_policies(
        provider, PLACE, principals=PRINCIPALS_ALL, project=project, storage_account=account,
        see_missing=see_missing, write_once=write_once,
    )  # fmt: skip
    return {file.principals[0]: json.loads(file.text) for file in files}


def terraform(provider: Provider, *, see_missing: bool = False, write_once: bool = False) -> dict[str, Any]:
    """The Terraform file as a real parser reads it: kind, labels, body."""
    project = PROJECT if provider == "gcp" else None
    account = ACCOUNT if provider == "azure" else None
    (file,) = render_policies(
        provider, PLACE, principals=PRINCIPALS_ALL, form="terraform", project=project, storage_account=account,
        see_missing=see_missing, write_once=write_once,
    )  # fmt: skip
    return parsed(file.text)


def parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, blocks in hcl2.loads(text).items():
        for block in blocks:
            below = found.setdefault(kind, {})
            node = plain(block)
            while isinstance(node, dict) and len(node) == 1 and isinstance(next(iter(node.values())), dict):
                (label, node) = next(iter(node.items()))
                if "__is_block__" in node:
                    assert label not in below, f"{kind} {label} twice"
                    below[label] = node
                    break
                below = below.setdefault(label, {})
            else:
                below.update(node)
    return {kind: without_marks(below) for kind, below in found.items()}


def plain(value: Any) -> Any:
    """Strings without their quotes. What is evaluated stays as the parser marks it: `${...}`."""
    if isinstance(value, dict):
        return {plain(name): plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str) and value.startswith('"'):
        return json.loads(value).replace("$${", "${").replace("%%{", "%{")
    return value


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_marks(one) for name, one in value.items() if name != "__is_block__"}
    return [without_marks(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path, text", RENDERED, ids=[path.relative_to(GOLDEN).as_posix() for path, _ in RENDERED])
def test_the_policies_are_the_ones_that_were_agreed_to(path: Path, text: str) -> None:
    """C10: nobody's rights change unseen; `python -m tests.catalog.iam_golden` writes what is to be agreed to."""
    assert path.read_text(encoding="utf-8") == text


def test_no_golden_policy_is_left_that_nobody_renders() -> None:
    assert {path for path in GOLDEN.rglob("*") if path.is_file()} == {path for path, _ in RENDERED}


@pytest.mark.parametrize("options", [{}, {"see_missing": True}, {"write_once": True}], ids="".join)
def test_terraform_for_aws_makes_the_documents_that_are_printed_as_json(options: dict[str, bool]) -> None:
    """C10: statement by statement, as a parser of Terraform's language reads them."""
    found = terraform("aws", **options)
    for principal, policy in policies("aws", **options).items():
        label = "holdfast_" + principal.replace("-", "_")
        statements = found["data"]["aws_iam_policy_document"][label].get("statement", [])
        assert [_as_json(one) for one in statements] == policy["Statement"]
        resource = found["resource"]["aws_iam_policy"][label]
        assert resource["policy"] == f"${{data.aws_iam_policy_document.{label}.json}}"
        assert re.fullmatch(r"[\w+=,.@-]{1,128}", resource["name"])


def _as_json(statement: dict[str, Any]) -> dict[str, Any]:
    conditions: dict[str, Any] = {}
    for one in statement.get("condition", []):
        conditions.setdefault(one["test"], {})[one["variable"]] = one["values"]
    body = {
        "Sid": statement["sid"],
        "Effect": statement["effect"],
        "Action": statement["actions"],
        "Resource": statement["resources"],
    }
    return {**body, "Condition": conditions} if conditions else body


@pytest.mark.parametrize("options", [{}, {"see_missing": True}], ids="".join)
def test_terraform_for_gcp_makes_the_roles_and_bindings_that_are_printed_as_json(options: dict[str, bool]) -> None:
    """C10: the same permissions, the same conditions, the same managed folders."""
    resources = terraform("gcp", **options)["resource"]
    roles = {one["role_id"]: one["permissions"] for one in resources["google_project_iam_custom_role"].values()}
    given = policies("gcp", **options)
    assert roles == {
        role["name"].rpartition("/")[2]: role["includedPermissions"] for one in given.values() for role in one["roles"]
    }
    members = [*resources["google_storage_bucket_iam_member"].values()]
    listing = [*resources.get("google_storage_managed_folder_iam_member", {}).values()]
    for principal, policy in given.items():
        mine = [one for one in members if one["member"] == f'${{var.members["{principal}"]}}']
        assert [(_role(one["role"]), one.get("condition", [None])[0]) for one in mine] == [
            (_role(one["role"]), one.get("condition")) for one in policy["bucketPolicy"]["bindings"]
        ]
        assert {one["bucket"] for one in mine} <= {PLACE.bucket}
        folders = [one for one in listing if one["member"] == f'${{var.members["{principal}"]}}']
        assert [_role(one["role"]) for one in folders] == [
            _role(one["policy"]["bindings"][0]["role"]) for one in policy["managedFolders"]
        ]
    managed = {one["name"] for one in resources.get("google_storage_managed_folder", {}).values()}
    assert managed == {one["name"] for policy in given.values() for one in policy["managedFolders"]}


def _role(name: str) -> str:
    return name.rpartition("/")[2]


def test_what_google_limits_is_kept_to() -> None:
    """C10: ids, titles and conditions that Google Cloud would refuse are not rendered."""
    for policy in policies("gcp").values():
        for role in policy["roles"]:
            assert re.fullmatch(r"projects/[a-z0-9-]+/roles/[A-Za-z0-9_.]{3,64}", role["name"])
        for binding in policy["bucketPolicy"]["bindings"]:
            account = binding["members"][0].removeprefix("serviceAccount:").partition("@")[0]
            assert 6 <= len(account) <= 30
            condition = binding["condition"]
            assert len(condition["title"]) <= 100
            assert len(condition["description"]) <= 256
            assert len(re.findall(r"&&|\|\||!", condition["expression"])) <= 12


def test_terraform_for_azure_makes_the_roles_and_conditions_that_are_printed_as_json() -> None:
    """C10: the same data actions under the same condition."""
    found = terraform("azure")
    assert found["variable"]["storage_account_id"]["default"] == ACCOUNT
    for principal, policy in policies("azure").items():
        label = "holdfast_" + principal.replace("-", "_")
        role = found["resource"]["azurerm_role_definition"][label]
        assert role["name"] == policy["roleDefinition"]["Name"]
        assert role["permissions"] == [{"actions": [], "data_actions": policy["roleDefinition"]["DataActions"]}]
        assignment = found["resource"]["azurerm_role_assignment"][label]
        assert assignment["condition"] == policy["roleAssignment"]["condition"]
        assert assignment["condition_version"] == policy["roleAssignment"]["conditionVersion"] == "2.0"
        assert assignment["principal_id"] == f'${{var.principal_ids["{principal}"]}}'
        assert len(assignment["condition"]) < 8192
        assert policy["roleAssignment"]["scope"] == f"{ACCOUNT}/blobServices/default/containers/lake"
        assert policy["roleDefinition"]["AssignableScopes"] == [ACCOUNT.partition("/providers/")[0]]


@pytest.mark.parametrize("principal", PRINCIPALS)
def test_a_policy_fits_where_policies_are_attached(principal: str) -> None:
    """C10: an inline policy of an AWS user, the smallest place there is, holds 2,048 characters without spaces."""
    (file,) = render_policies("aws", PLACE, principals=[principal])
    assert len(re.sub(r"\s", "", file.text)) <= 2048


def test_the_table_of_the_page_is_what_the_code_says() -> None:
    """C8, C9, C10: docs/iam.md has the table for people, and it cannot fall behind."""
    page = (ROOT / "docs" / "iam.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", page, re.MULTILINE)
    assert [name for name, _ in rows] == list(PRINCIPALS)
    place = Place(bucket="lake", tenant="acme", workspace="prod")
    verbs = (Verb.CREATE, Verb.REPLACE, Verb.UPLOAD, Verb.READ, Verb.LIST)
    for principal, cells in rows:
        rights = rights_of(principal, place)
        assert Verb.DELETE not in rights
        for verb, cell in zip(verbs, cells.split("|"), strict=True):
            folders = [""] if cell.strip() == "everything" else re.findall(r"`([a-z0-9]+/)`", cell)
            assert {f"acme/prod/{folder}" for folder in folders} == set(rights.get(verb, ())), (principal, verb)


def test_every_principal_is_described() -> None:
    for principal in PRINCIPALS_ALL:
        assert describe(principal).endswith(".")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_without_a_root_the_tenant_is_at_the_top_of_the_bucket(provider: Provider) -> None:
    """C1, C10: `{tenant}/{workspace}/`, with nothing before it."""
    place = Place(bucket="lake", tenant="acme", workspace="prod")
    assert place.prefix == "acme/prod/"
    (file,) = render_policies(provider, place, form="terraform")
    assert "hf/" not in file.text
    assert "/acme/prod/" in file.text or "'acme/prod/" in file.text


@pytest.mark.parametrize(
    "names",
    [
        {"tenant": "a*"}, {"tenant": ""}, {"tenant": ".."}, {"tenant": "a/b"}, {"workspace": "a'b"}, {"workspace": "?"},
        {"workspace": "${aws:username}"}, {"root": "a/../b"}, {"root": "a//b"}, {"root": "/a"}, {"root": 'a"b'},
        {"root": "${var.x}"}, {"root": "a*"}, {"root": "a\nb"}, {"tenant": "%2e%2e"}, {"root": "a/b/"},
    ],
)  # fmt: skip
def test_names_that_a_policy_language_would_read_more_into_are_refused(names: dict[str, str]) -> None:
    """C10, C11: wildcards, quotes, expressions and ways out of the folder become part of no policy."""
    with pytest.raises(BadInput) as refused:
        Place(**{"bucket": "lake", "tenant": "acme", "workspace": "prod", **names})
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("bucket", ["", "x", "Lake", "la*ke", "la/ke", 'la"ke', "la ke", "x" * 300, "lake-"])
def test_a_name_that_the_cloud_gives_no_bucket_is_refused(provider: Provider, bucket: str) -> None:
    """C10: before anything is rendered."""
    with pytest.raises(BadInput):
        render_policies(provider, Place(bucket=bucket, tenant="acme", workspace="prod"), form="terraform")


@pytest.mark.parametrize(
    "text", ["plain", 'a "quote"', "${var.x}", "%{ if x }", "back\\slash", "two\nlines", "tab\t", "größe", ""]
)
def test_text_stays_text_in_terraform(text: str) -> None:
    """C10: what is not an expression is never evaluated, whatever it looks like."""
    written = write([Block("locals", (), {"value": text, "several": [text, text], "by_name": {"a": text}})])
    (block,) = hcl2.loads(written)["locals"]
    raw = str(block["value"])
    assert re.search(r"(?<!\$)\$\{|(?<!%)%\{", raw) is None
    assert plain(raw) == text
    assert plain(block["several"]) == [text, text]


def test_blocks_are_written_as_terraform_formats_them() -> None:
    inner = Block("condition", (), {"test": "Null", "values": ["false"]})
    block = Block(
        "data", ("kind", "name"), {"a": True, "long": Expression("var.x"), "many": ["1", "2"]}, (inner,), "Why."
    )
    assert write([block]) == (
        '# Why.\ndata "kind" "name" {\n  a    = true\n  long = var.x\n  many = [\n    "1",\n    "2",\n  ]\n\n'
        '  condition {\n    test   = "Null"\n    values = ["false"]\n  }\n}\n'
    )
