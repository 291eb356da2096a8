"""The page about the file is true: its examples are good files, and it names every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.pipeline.file import inspect_pipeline
from holdfast.pipeline.schema import pipeline_schema
from tests.docs.pages import Block, blocks
from tests.house.source import ROOT

PAGE = ROOT / "docs" / "pipeline-file.md"
EXAMPLES = [(page, block) for page in sorted((ROOT / "docs").glob("*.md")) for block in blocks(page, "toml")
            if "[datasets." in block.text]  # fmt: skip


def keys(schema: Any) -> set[str]:
    """Every key that the schema describes."""
    if isinstance(schema, dict):
        return set(schema.get("properties", {})).union(*map(keys, schema.values()))
    return set().union(*map(keys, schema)) if isinstance(schema, list) else set()


@pytest.mark.parametrize("page, block", EXAMPLES, ids=[f"{page.name}:{block.line}" for page, block in EXAMPLES])
def test_every_pipeline_on_a_page_is_right(page: Path, block: Block, tmp_path: Path) -> None:
    """C30: an example can be copied."""
    path = tmp_path / "pipeline.toml"
    path.write_text(block.text, encoding="utf-8")
    assert [str(one) for one in inspect_pipeline(path).problems] == []


def test_the_page_names_every_key() -> None:
    """C30: the reference is complete."""
    tables = "\n".join(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| "))
    named = {word for code in re.findall(r"`([^`]+)`", tables) for word in re.findall(r"\w+", code)}
    missing = keys(pipeline_schema()) - named - {"sources", "steps", "datasets"}
    assert missing == set()
