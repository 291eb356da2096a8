"""What the commands for key-value data sets refuse, and damage that they do not hide."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.config import Settings, load_settings
from holdfast.errors import BadInput
from holdfast.kv import ShardedReader
from tests.cli.kv_data import make_users, shard_files
from tests.cli.support import DataSet, Program, environment

COMMANDS = [["get", "3"], ["multiget", "3"], ["info"], ["shards"], ["route", "3"], ["repl"]]
READING = [["get", "3"], ["multiget", *map(str, range(6))]]


@pytest.fixture
def people(tmp_path: Path) -> DataSet:
    return make_users(tmp_path)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_chain_of_another_kind_is_refused(holdfast: Program, tmp_path: Path, words: list[str]) -> None:
    graph = DataSet(tmp_path / "graph", "graph")
    graph.publish("build-1", kind="nodes")
    says = holdfast.fails(words[0], graph, *words[1:], code=2)
    assert "is no key-value data set" in says


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_place_without_a_chain_is_refused_and_not_made(holdfast: Program, tmp_path: Path, words: list[str]) -> None:
    assert "no chain at" in holdfast.fails(words[0], tmp_path / "nothing", *words[1:], code=2)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("words", [["get"], ["multiget", "1"], ["route"]], ids=" ".join)
@pytest.mark.parametrize("key", ["Ada", "1.5", "99999999999999999999"])
def test_a_key_of_another_type_is_refused_by_the_columns_name(
    holdfast: Program, people: DataSet, words: list[str], key: str
) -> None:
    """K18: a wrong key is its own clear error."""
    says = holdfast.fails(words[0], people, *words[1:], key, code=2)
    assert "key column 'id'" in says
    assert "int64" in says


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("how", ["--direct", "--cached"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_shard_is_exit_code_six_and_nothing_of_it_is_printed(
    holdfast: Program, people: DataSet, words: list[str], how: str, damage: str
) -> None:
    """K18, K26: a corrupt shard is never served, and a missing one is not an empty one."""
    people.chain.rollback(offset=2)  # nothing older to fall back to, and nothing newer may be shown instead
    for path in shard_files(people):
        if damage == "missing":
            path.unlink()
        else:
            data = path.read_bytes()
            path.write_bytes(data[:64] if damage == "cut" else bytes(byte ^ 0x55 for byte in data))
    says = holdfast.fails(words[0], people, *words[1:], how, code=6)
    assert "holdfast verify" in says


def test_a_damaged_visible_snapshot_is_not_replaced_by_an_older_one(holdfast: Program, people: DataSet) -> None:
    """K22: no flag means the pointer's target, and never silently another."""
    for path in shard_files(people):
        if "build-3" in str(path):
            path.unlink()
    assert "holdfast verify" in holdfast.fails("get", people, "3", code=6)
    assert holdfast("get", people, "3", "--offset", "1", "--json").data["value"]["version"] == 2


def test_a_cache_that_cannot_be_one_is_refused(holdfast: Program, people: DataSet, tmp_path: Path) -> None:
    assert "--direct keeps no files" in holdfast.fails("get", people, "3", "--direct", "--cache", tmp_path, code=2)
    (tmp_path / "taken").write_text("")
    assert "is a file" in holdfast.fails("get", people, "3", "--cache", tmp_path / "taken", code=2)


def test_a_cache_that_does_not_exist_is_made_when_it_is_needed(
    holdfast: Program, people: DataSet, tmp_path: Path
) -> None:
    """K22: a missing folder for --cache is no error."""
    assert "Barbara" in holdfast("get", people, "3", "--cache", tmp_path / "a" / "b").out


@pytest.mark.parametrize(
    "text, says",
    [("mode = 'fast'", "mode should be direct or cached, not 'fast'"), ("cache = 7", "cache should be text")],
)
def test_a_wrong_setting_is_refused_by_the_name_of_its_file(
    holdfast: Program, people: DataSet, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    error = holdfast.fails("get", people, "3", code=2)
    assert says in error
    assert str(tmp_path / "holdfast.toml") in error


def test_how_to_read_is_configured_by_flag_environment_and_file_in_that_order(tmp_path: Path) -> None:
    """K24: `mode` and `cache` are settings like the others; a path in the file starts at its folder."""
    (tmp_path / "holdfast.toml").write_text('mode = "direct"\ncache = "kept"\n')
    assert load_settings(environ={}, folder=tmp_path) == Settings(mode="direct", cache=str(tmp_path / "kept"))
    environment_says = {"HOLDFAST_MODE": "cached", "HOLDFAST_CACHE": "/elsewhere"}
    assert load_settings(environ=environment_says, folder=tmp_path) == Settings(mode="cached", cache="/elsewhere")
    with pytest.raises(BadInput, match="HOLDFAST_MODE: mode should be direct or cached"):
        load_settings(environ={"HOLDFAST_MODE": "quick"}, folder=tmp_path)


def test_help_and_history_start_without_arrow(people: DataSet) -> None:
    """K21: commands that need no data do not wait for the modules that read it."""
    script = (
        "import sys; from holdfast.cli.main import main\n"
        f"assert main(['--help']) == 0 and main(['get', '--help']) == 0 and main(['history', {str(people)!r}]) == 0\n"
        "heavy = {'pyarrow', 'numpy', 'holdfast.kv', 'pandas'} & set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60, env=environment()
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    "flags, variable, file, used",
    [
        pytest.param((), None, None, "cache", id="files of this machine are mapped"),
        pytest.param((), None, "direct", "direct", id="file"),
        pytest.param((), "cached", "direct", "cache", id="environment before file"),
        pytest.param(("--direct",), "cached", "cached", "direct", id="flag before environment"),
        pytest.param(("--cache", "kept"), "direct", "direct", "cache", id="a cache is for reading cached"),
    ],
)
def test_a_flag_decides_how_to_read_before_the_environment_and_that_before_the_file(
    holdfast: Program,
    people: DataSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    variable: str | None,
    file: str | None,
    used: str,
) -> None:
    """K24: flags, environment, holdfast.toml, in that order, for `--direct` and `--cached`."""
    modes = []

    def opened(*args: Any, **options: Any) -> ShardedReader:
        modes.append(options["mode"])
        return opening(*args, **options)

    opening = ShardedReader.open
    monkeypatch.setattr(ShardedReader, "open", opened)
    if file is not None:
        (tmp_path / "holdfast.toml").write_text(f'mode = "{file}"\n')
    if variable is not None:
        monkeypatch.setenv("HOLDFAST_MODE", variable)
    assert "Barbara" in holdfast("get", people, "3", *flags).out
    assert modes == [used]
