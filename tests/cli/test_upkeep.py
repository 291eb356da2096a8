"""`verify`, `reconcile`, `status` and `switch`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.support import DataSet, Program


def test_verify_of_a_whole_chain_is_quiet_and_succeeds(holdfast: Program, users: DataSet) -> None:
    result = holdfast("verify", users)
    assert "Nothing is broken" in result.out
    assert "4 artifacts hashed" in result.out
    assert result.err == ""  # no progress bar where there is no terminal


def test_verify_lists_every_break_and_fails(holdfast: Program, users: DataSet) -> None:
    """S38: a changed byte and a missing file are both found, by their keys."""
    first, second, *_ = sorted((users.folder / "shards").rglob("part-0"))
    first.write_bytes(b"x" * first.stat().st_size)
    second.unlink()
    before = users.listing()

    out = holdfast("verify", users, code=6).out
    data = holdfast("verify", users, "--json", code=6).data

    keys = {str(path.relative_to(users.folder)) for path in (first, second)}
    assert "2 breaks found" in out
    assert data["ok"] is False
    assert {one["key"] for one in data["breaks"]} == keys
    assert all(key in out for key in keys)
    assert users.listing() == before


def test_a_quick_verify_asks_for_sizes_only(holdfast: Program, users: DataSet) -> None:
    first = sorted((users.folder / "shards").rglob("part-0"))[0]
    first.write_bytes(b"x" * first.stat().st_size)

    assert holdfast("verify", users, "--quick", "--json").data["ok"] is True
    first.write_bytes(b"")
    assert len(holdfast("verify", users, "--quick", "--json", code=6).data["breaks"]) == 1


def test_verify_reports_a_pointer_that_cannot_be_read_as_a_break(holdfast: Program, users: DataSet) -> None:
    (users.folder / "_CURRENT").write_text("{")
    assert "_CURRENT" in holdfast("verify", users, code=6).out


def test_reconcile_finds_first_and_repairs_when_told(holdfast: Program, catalog: DataSet) -> None:
    """S43: a missing mirror and a stale root are found in a dry run, and repaired with --apply."""
    (catalog.folder / "manifests" / "catalog.manifest.json").unlink()
    (catalog.folder / "manifests" / "root.manifest.json").unlink()
    before = catalog.listing()

    out = holdfast("reconcile", catalog).out
    assert "Found 2 things left undone." in out
    assert f"repair it: holdfast reconcile {catalog} --apply" in out
    assert catalog.listing() == before
    assert len(holdfast("verify", catalog, "--json", code=6).data["breaks"]) == 2

    data = holdfast("reconcile", catalog, "--apply", "--json").data
    assert [one["repaired"] for one in data["findings"]] == [True, True]
    assert "Nothing was left undone." in holdfast("reconcile", catalog).out
    assert catalog.chain.verify() == []


def test_status_gives_the_verdict_on_a_commit(holdfast: Program, users: DataSet) -> None:
    """S17: committed, superseded or never published; open only while it may still land."""
    committed = users.chain.list_manifests()[1]
    between = committed.commit_ulid[:-1] + ("Z" if committed.commit_ulid[-1] != "Z" else "Y")
    future = users.chain.handle.ulid(after=users.chain.list_manifests()[0].commit_ulid)

    data = holdfast("status", users, committed.commit_ulid, "--json").data
    assert (data["verdict"], data["snapshot"]["ref"]) == ("committed", committed.ref)
    assert "Committed: " in holdfast("status", users, committed.commit_ulid).out
    if between > committed.commit_ulid:
        assert holdfast("status", users, between, "--json").data["verdict"] == "superseded"
    assert holdfast("status", users, "0" * 26, "--json").data["verdict"] == "superseded"
    assert "Superseded, never visible" in holdfast("status", users, "0" * 26).out
    assert holdfast("status", users, future, "--json").data["verdict"] == "open"
    assert "--settle" in holdfast("status", users, future).out


def test_status_settles_an_open_commit_for_good(holdfast: Program, users: DataSet) -> None:
    """S17: after --settle the commit can no longer land."""
    newest = users.chain.list_manifests()[0].commit_ulid
    later = users.chain.handle.ulid(after=newest)

    assert holdfast("status", users, later, "--json").data["verdict"] == "open"
    assert "Never published" in holdfast("status", users, later, "--settle").out
    assert holdfast("status", users, later, "--json").data["verdict"] == "never published"


def test_what_is_no_ulid_is_refused(holdfast: Program, users: DataSet) -> None:
    assert "is not a commit ULID" in holdfast.fails("status", users, "01KA", code=2)
    assert "expected [URL] COMMIT_ULID" in holdfast.fails("status", users, "a", "b", code=2)


def test_a_domain_is_switched_to_legacy_writes_and_back(holdfast: Program, catalog: DataSet) -> None:
    """S45: each switch says how to undo it; the chain is whole at every step."""
    out = holdfast("switch", catalog, "legacy", "--why", "playbook").out
    assert "legacy path only" in out
    assert f"undo it: holdfast switch {catalog} pointer" in out
    assert "switched to legacy-only writes" in holdfast.fails("rollback", catalog, code=4)

    data = holdfast("switch", f"{catalog}#domain:catalog", "pointer", "--json").data
    assert data["publishing"] == "pointer"
    assert catalog.chain.verify() == []


def test_a_switch_to_legacy_waits_until_root_and_mirror_are_current(holdfast: Program, catalog: DataSet) -> None:
    """S45: refused while the legacy manifest is behind."""
    (catalog.folder / "manifests" / "catalog.manifest.json").unlink()
    assert "holdfast reconcile --apply" in holdfast.fails("switch", catalog, "legacy", code=6)


def test_a_chain_without_a_legacy_path_cannot_be_switched(holdfast: Program, users: DataSet, tmp_path: Path) -> None:
    assert "no legacy path" in holdfast.fails("switch", users, "legacy", code=2)
    assert "use legacy or pointer" in holdfast.fails("switch", users, "sideways", code=2)
