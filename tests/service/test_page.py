"""docs/compactor.md: every request on the page is sent, and answered as the page says."""

from __future__ import annotations

import json
import re
from itertools import count

import pytest

from holdfast.catalog import Workspace
from tests.docs.pages import Block, blocks
from tests.house.source import ROOT
from tests.service.support import call, edge, table, tell

PAGE = ROOT / "docs" / "compactor.md"
EXCHANGES = blocks(PAGE, "http")
ULID = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
TICKET = re.compile(r'"7\.[0-9a-f]{24}"')
_numbers = count()


@pytest.mark.parametrize("block", EXCHANGES, ids=[f"line {block.line}" for block in EXCHANGES])
def test_every_request_is_answered_as_the_page_says(workspace: Workspace, url: str, block: Block) -> None:
    """C17, C18: an id on the page stands for that of an event that was just told, the ticket for one that is held."""
    asked, _, answered = block.text.partition("\n\n")
    line, _, body = asked.partition("\n")
    method, address = line.split(" ")
    status, _, document = answered.partition("\n")
    with workspace.domain("catalog").lock() as guard:
        if '"lineage"' in body:
            (path,) = tell(workspace, edge(next(_numbers)))
        else:
            (path,) = tell(workspace, table(f"t{next(_numbers)}"))
        sent = TICKET.sub(f'"{guard.ticket}"', ULID.sub(path[-31:-5], body))
        answer = call(url, method, address, json.loads(sent) if sent else None)
    assert answer.status == int(status)
    assert json.loads(ULID.sub("ULID", json.dumps(answer.document))) == json.loads(ULID.sub("ULID", document))


def test_the_page_shows_every_address() -> None:
    """C17, C18: and each that takes a body is shown with one."""
    shown = {block.text.split("\n")[0] for block in EXCHANGES}
    assert shown == {"POST /compact", "POST /notify", "GET /cursor/executions", "GET /health"}
    assert "**GET /metrics**" in PAGE.read_text(encoding="utf-8")
