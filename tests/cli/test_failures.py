"""Errors: one line on stderr, nothing on stdout, an exit code for each class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast import errors
from holdfast.cli.failures import exit_code
from tests.cli.support import DataSet, Program, environment

CODES = {"BadInput": 2, "NotFound": 3, "Conflict": 4, "Fenced": 5, "Damaged": 6, "StoreError": 7, "BuildFailed": 8}
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "StaleFencingToken": (2, 1),
    "CorruptRecord": ("key", "why"),
    "CorruptShard": ("key", "why"),
    "LedgerFull": ("catalog", 10_000, 5),
}


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "HoldfastError"])
def test_every_error_has_the_exit_code_of_its_class(name: str) -> None:
    kind = getattr(errors, name)
    branch = next(one.__name__ for one in reversed(kind.__mro__) if one.__name__ in CODES)
    assert exit_code(kind(*ARGUMENTS.get(name, ("what happened",)))) == CODES[branch]


def test_other_failures_have_codes_of_their_own() -> None:
    assert exit_code(click.UsageError("wrong")) == 2
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(ZeroDivisionError()) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["history"],
        ["show"],
        ["rollback"],
        ["forward"],
        ["tags"],
        ["verify"],
        ["reconcile"],
        ["gc", "collect", "--retention", "1"],
        ["gc", "purge"],
        ["gc", "restore"],
        ["gc", "list"],
    ],
)
@pytest.mark.parametrize("layout", [[], ["--layout", "kv"]])
def test_a_place_without_a_chain_is_refused_and_not_made(
    holdfast: Program, tmp_path: Path, command: list[str], layout: list[str]
) -> None:
    says = holdfast.fails(*command, tmp_path / "nothing", *layout, code=2)
    assert "chain at" in says
    assert "Check the URL" in says
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "words, says",
    [
        pytest.param(["history", "ftp://host/x"], "unknown kind of store 'ftp'", id="unknown scheme"),
        pytest.param(["history", "file://host/x"], "three slashes", id="file URL of another machine"),
        pytest.param(["history", "s3://"], "needs a bucket", id="no bucket"),
        pytest.param(["history", ".", "--layout", "tree"], "unknown layout 'tree'", id="unknown layout"),
        pytest.param(["history"], "no chain was named", id="no chain"),
        pytest.param(["history", "--colour"], "`holdfast history --help`", id="unknown option"),
        pytest.param(["history", "a", "b"], "`holdfast history --help`", id="too many arguments"),
        pytest.param(["history", "--limit", "0"], "--limit", id="a limit of nothing"),
        pytest.param(["paint"], "`holdfast --help`", id="unknown command"),
        pytest.param(["gc", "paint"], "`holdfast gc --help`", id="unknown command of a group"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(holdfast: Program, words: list[str], says: str) -> None:
    assert says in holdfast.fails(*words, code=2)


def test_more_than_one_chain_at_a_place_must_be_told_apart(holdfast: Program, catalog: DataSet) -> None:
    DataSet(catalog.folder, "domain:lineage").publish("fold-1")
    says = holdfast.fails("history", catalog, code=2)
    assert "#domain:catalog or #domain:lineage" in says
    assert holdfast("history", f"{catalog}#domain:lineage", "--json").data["more"] is False


def test_a_pointer_that_cannot_be_read_is_damage(holdfast: Program, users: DataSet) -> None:
    (users.folder / "_CURRENT").write_text("{")
    for words in (["history"], ["show"], ["rollback"], ["gc", "list"]):
        says = holdfast.fails(*words, users, code=6)
        assert "'_CURRENT' is damaged" in says
        assert "holdfast verify" in says


def test_the_traceback_is_there_for_those_who_ask(
    holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    result = holdfast("history", tmp_path / "nothing", code=2)
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("error: no chain at")


def test_a_failure_nobody_foresaw_is_one_line_too(
    holdfast: Program, users: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("holdfast.chain.chain.Chain.list_snapshots", fail)
    says = holdfast.fails("history", users, code=1)
    assert "unforeseen ZeroDivisionError: on purpose" in says
    assert "HOLDFAST_DEBUG=1" in says


@pytest.mark.parametrize("words", [[], ["--help"], ["gc"], ["gc", "collect", "--help"]])
def test_help_is_no_failure(holdfast: Program, words: list[str]) -> None:
    assert "Usage: holdfast" in holdfast(*words).out


def test_a_reader_that_goes_away_gets_no_traceback(users: DataSet) -> None:
    script = f"import sys; from holdfast.cli.main import main; sys.exit(main(['history', {str(users)!r}, '--json']))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        process.wait(timeout=60)
    assert said == b""


def test_help_starts_without_the_heavy_modules() -> None:
    script = (
        "import sys; from holdfast.cli.main import main; main(['--help'])\n"
        "heavy = {'rich', 'obstore', 'asyncio', 'holdfast.chain'} & set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60, env=environment()
    )
    assert (result.returncode, result.stderr) == (0, "")
