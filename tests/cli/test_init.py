"""`holdfast init`: which workspace a URL names, and what is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.catalog import open_workspace
from tests.cli.support import Program


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_workspace_is_made_once_and_twice_makes_nothing(holdfast: Program, tmp_path: Path) -> None:
    """C1: the last two segments are tenant and workspace; a second call says that there was nothing to make."""
    first = holdfast("init", "./lake/acme/prod", "--json").data
    assert (first["command"], first["tenant"], first["name"]) == ("init", "acme", "prod")
    assert first["workspace"] == (tmp_path / "lake" / "acme" / "prod").as_uri()
    assert all((tmp_path / "lake" / "acme" / "prod" / key).is_file() for key in first["made"])
    assert open_workspace(str(tmp_path / "lake"), tenant="acme", workspace="prod").read_root().version
    before = files(tmp_path)
    assert holdfast("init", "./lake/acme/prod").out.startswith("Nothing to make: workspace prod of acme at ")
    assert holdfast("init", "./lake/acme/prod", "--json").data["made"] == []
    assert files(tmp_path) == before


def test_what_is_missing_is_made_again(holdfast: Program, tmp_path: Path) -> None:
    """C14: a counter that was lost comes back, and nothing else is touched."""
    holdfast("init", "./lake/acme/prod")
    (tmp_path / "lake/acme/prod/locks/lineage.positions.json").unlink()
    assert holdfast("init", "./lake/acme/prod", "--json").data["made"] == ["locks/lineage.positions.json"]


@pytest.mark.parametrize(
    "url, place",
    [
        ("acme/prod", "acme/prod"),
        ("lake/../other/acme/prod/", "other/acme/prod"),
        ("./lake/acme/./prod", "lake/acme/prod"),
        ("file://{here}/lake/acme/prod", "lake/acme/prod"),
        ("{here}/acme/prod", "acme/prod"),
    ],
)
def test_a_workspace_is_found_however_its_place_is_written(
    holdfast: Program, tmp_path: Path, url: str, place: str
) -> None:
    """C11: tenant and workspace are the last two segments, whatever is before them."""
    data = holdfast("init", url.replace("{here}", str(tmp_path)), "--json").data
    assert data["workspace"] == (tmp_path / place).as_uri()
    assert (tmp_path / place / "manifests").is_dir()


@pytest.mark.parametrize(
    "url, says",
    [
        ("prod", "names no workspace"),
        (".", "names no workspace"),
        ("../prod", "names no workspace"),
        ("/prod", "names no workspace"),
        ("s3://bucket/prod", "names no workspace"),
        ("memory://acme/prod", "names no workspace"),
        ("", "names no workspace"),
        ("./lake/Acme/prod", "tenant name 'Acme'"),
        ("./lake/acme/pr%2Fod", "workspace name 'pr%2Fod'"),
        ("./lake/acme/prod#kv", "workspace name 'prod#kv'"),
        ("ftp://host/lake/acme/prod", "unknown kind of store"),
    ],
)
def test_what_names_no_workspace_is_refused_and_makes_nothing(
    holdfast: Program, tmp_path: Path, url: str, says: str
) -> None:
    """C11: one line that says how a workspace is named."""
    assert says in holdfast.fails("init", url, code=2)
    assert files(tmp_path) == {}


def test_a_workspace_may_be_configured(holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K24: the URL counts before the environment, and that before the file, whose paths start where it is."""
    assert "no workspace was named" in holdfast.fails("init", code=2)
    (tmp_path / "holdfast.toml").write_text('workspace = "lake/acme/file"\n')
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert holdfast("init", "--json").data["workspace"] == (tmp_path / "lake/acme/file").as_uri()
    monkeypatch.setenv("HOLDFAST_WORKSPACE", str(tmp_path / "lake/acme/environment"))
    assert holdfast("init", "--json").data["name"] == "environment"
    assert holdfast("init", tmp_path / "lake/acme/word", "--json").data["name"] == "word"
    monkeypatch.delenv("HOLDFAST_WORKSPACE")
    (tmp_path / "holdfast.toml").write_text('workspace = ""\n')
    assert "workspace should be text" in holdfast.fails("init", code=2)
