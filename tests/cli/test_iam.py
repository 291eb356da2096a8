"""`holdfast iam render`: what is printed, what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import hcl2
import pytest

from holdfast.catalog.iam import PRINCIPALS, Place
from holdfast.catalog.iam_render import render_policies
from tests.catalog.iam_clouds import ACCOUNT
from tests.cli.support import Program

WHERE = ["--bucket", "lake", "--tenant", "acme", "--workspace", "prod"]
AWS = ["iam", "render", "--provider", "aws", *WHERE]


def test_one_principal_is_printed_as_the_document_to_attach(holdfast: Program) -> None:
    """C10: what is printed can be passed on as it is."""
    (file,) = render_policies("aws", Place(bucket="lake", tenant="acme", workspace="prod"), principals=["api"])
    assert holdfast(*AWS, "--principal", "api").out == file.text


def test_several_principals_are_printed_as_one_object(holdfast: Program) -> None:
    """C10: all of them where none is named, in the order they were named in else."""
    everything = json.loads(holdfast(*AWS).out)
    assert list(everything) == list(PRINCIPALS)
    two = json.loads(holdfast(*AWS, "--principal", "reader", "--principal", "api", "--principal", "reader").out)
    assert list(two) == ["reader", "api"]
    assert two["api"] == everything["api"]


@pytest.mark.parametrize("form", ["json", "terraform"])
def test_a_principal_that_is_named_twice_is_rendered_once(holdfast: Program, form: str) -> None:
    """C10: a policy that is there twice would be refused by who applies it."""
    once = holdfast(*AWS, "--format", form, "--principal", "api")
    assert holdfast(*AWS, "--format", form, "--principal", "api", "--principal", "api").out == once.out


@pytest.mark.parametrize("width", ["40", "80"])
def test_a_narrow_terminal_breaks_no_policy(holdfast: Program, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C10: nothing is shortened or wrapped."""
    whole = holdfast(*AWS, "--format", "terraform").out
    monkeypatch.setenv("COLUMNS", width)
    assert holdfast(*AWS, "--format", "terraform").out == whole


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_terraform_needs_no_more_than_the_workspace(holdfast: Program, provider: str) -> None:
    """C10: projects and accounts are variables of the file."""
    result = holdfast("iam", "render", "--provider", provider, *WHERE, "--format", "terraform")
    assert hcl2.loads(result.out)
    assert result.err == ""


def test_the_root_comes_before_the_tenant_by_either_name(holdfast: Program) -> None:
    """C1, C10: `--root` and `--prefix` are one option; slashes around it do not matter."""
    printed = {holdfast(*AWS, *words).out for words in (["--root", "a/b"], ["--prefix", "a/b/"], ["--root", "/a/b"])}
    assert len(printed) == 1
    assert "arn:aws:s3:::lake/a/b/acme/prod/*" in printed.pop()


def test_files_are_written_where_one_says(holdfast: Program, tmp_path: Path) -> None:
    """C10: one for each principal, replaced when written again, and nothing beside them."""
    folder = tmp_path / "new" / "policies"
    holdfast(*AWS, "--out", folder)
    said = holdfast(*AWS, "--out", folder).out
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{one}.json" for one in PRINCIPALS)
    assert all(str(folder / f"{one}.json") in said for one in PRINCIPALS)
    assert json.loads((folder / "reader.json").read_text())["Version"] == "2012-10-17"
    holdfast(*AWS, "--format", "terraform", "--out", folder)
    assert hcl2.loads((folder / "holdfast_iam.tf").read_text())


def test_json_says_what_was_rendered_and_where(holdfast: Program, tmp_path: Path) -> None:
    """C10: one document, with every file's text."""
    data = holdfast(*AWS, "--root", "hf", "--principal", "api", "--json").data
    assert data["command"] == "iam render"
    assert (data["provider"], data["format"], data["bucket"]) == ("aws", "json", "lake")
    assert (data["prefix"], data["principals"]) == ("hf/acme/prod/", ["api"])
    (file,) = data["files"]
    assert (file["name"], file["principals"]) == ("api.json", ["api"])
    assert json.loads(file["text"])["Statement"]
    written = holdfast(*AWS, "--principal", "api", "--json", "--out", tmp_path).data["files"][0]
    assert Path(written["path"]).read_text() == written["text"]


@pytest.mark.parametrize(
    "words, part",
    [
        (["--provider", "aws", "--bucket", "lake", "--tenant", "acme"], "--workspace"),
        (["--provider", "oracle", *WHERE], "oracle"),
        (["--provider", "aws", *WHERE, "--principal", "root"], "is no principal; use api, pipeline"),
        (["--provider", "aws", *WHERE, "--bucket", "La*ke"], "no name of an S3 bucket"),
        (["--provider", "aws", *WHERE, "--tenant", "a/b"], "tenant name"),
        (["--provider", "aws", *WHERE, "--root", "a/../b"], "root 'a/../b'"),
        (["--provider", "gcp", *WHERE], "give --project"),
        (["--provider", "gcp", *WHERE, "--project", "X"], "no id of a Google Cloud project"),
        (["--provider", "azure", *WHERE], "give --storage-account"),
        (["--provider", "azure", *WHERE, "--storage-account", "acmelake"], "give its resource id"),
        (["--provider", "azure", *WHERE, "--format", "terraform", "--see-missing"], "--see-missing is not for azure"),
        (["--provider", "gcp", *WHERE, "--format", "terraform", "--write-once"], "--write-once is for aws only"),
        (["--provider", "aws", *WHERE, "--project", "acme-data"], "--project is for gcp only"),
        (["--provider", "aws", *WHERE, "--storage-account", ACCOUNT], "--storage-account is for azure only"),
    ],
)  # fmt: skip
def test_what_cannot_be_rendered_is_refused_in_one_line(holdfast: Program, words: list[str], part: str) -> None:
    """C10: it says what to give instead."""
    assert part in holdfast.fails("iam", "render", *words, code=2)


def test_a_folder_that_cannot_be_written_to_is_refused(holdfast: Program, tmp_path: Path) -> None:
    """C10: and nothing is left behind."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert "give another --out" in holdfast.fails(*AWS, "--out", blocked, code=2)
    assert "give another --out" in holdfast.fails(*AWS, "--out", blocked / "below", code=2)
    assert blocked.read_text() == "in the way"


def test_two_long_names_are_too_long_for_a_policy_of_terraform_only(holdfast: Program) -> None:
    """C10: AWS ends a policy's name at 128 characters; the document itself has none."""
    words = ["iam", "render", "--provider", "aws", "--bucket", "lake", "--tenant", "a" * 60, "--workspace", "b" * 60]
    holdfast(*words)
    assert "use --format json" in holdfast.fails(*words, "--format", "terraform", code=2)
