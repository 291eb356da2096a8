"""The commands of docs/sql.md, typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from holdfast.chain import Committed, open_chain
from holdfast.chain.sql import migrate
from holdfast.cli.main import main
from holdfast.testing.chain_contract import publish_one
from tests.house.source import ROOT

PAGE = ROOT / "docs" / "sql.md"


def test_every_command_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S34: the page's commands, on a chain that was published as the page says."""
    monkeypatch.chdir(tmp_path)
    migrate("sqlite:///chains.db")
    chain = open_chain("./users", layout="kv", manifests="sqlite:///chains.db?chain=users")
    for number in range(3):
        assert isinstance(publish_one(chain, str(number)), Committed)
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) >= 7
    for line in commands:
        words = shlex.split(line)
        assert words[0] == "holdfast"
        assert main(words[1:]) == 0, f"{line}\n{capsys.readouterr()}"
    assert "users" in capsys.readouterr().out
    assert chain.verify() == []
