"""What stays open between the commands of one prompt: the chain, the reader, and how answers are printed.

A command finds it in its context. Without one it was called from a shell, and opens what it needs itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.config import Settings
from holdfast.cli.output import Output, make_output
from holdfast.cli.words import time_text

if TYPE_CHECKING:
    from holdfast.chain.chain import Chain
    from holdfast.kv import ShardedReader

__all__ = ["OpenReader", "Session", "current_session"]

OpenReader = Callable[[str | None, int | None], "ShardedReader"]
"""Opens a reader at a ref, at an offset, or with neither at the head."""


class Session:
    """One data set at a prompt."""

    def __init__(
        self,
        *,
        url: str | None,
        layout: str | None,
        settings: Settings,
        chain: Chain,
        as_json: bool,
        open_reader: OpenReader,
    ) -> None:
        self.url = url
        self.layout = layout
        self.settings = settings
        self.chain = chain
        self.as_json = as_json
        self.pinned = False
        """Whether one snapshot was chosen, so that refreshing changes nothing."""
        self.ended = False
        self._open_reader = open_reader
        self._reader: ShardedReader | None = None

    @property
    def reader(self) -> ShardedReader:
        assert self._reader is not None
        return self._reader

    @property
    def name(self) -> str:
        """What people call the data set: the last word of its URL."""
        return self.chain.store.url.rstrip("/").rpartition("/")[2]

    @property
    def served_at(self) -> str:
        """When the served snapshot was published."""
        return time_text(self.reader.snapshot_info().published_at)

    def use(self, *, ref: str | None = None, offset: int | None = None) -> None:
        """Switch to one snapshot, or with neither to the head. If it cannot be opened, nothing changes."""
        opened = self._open_reader(ref, offset)
        self.close()
        self._reader = opened
        self.pinned = ref is not None or offset is not None

    def output(self, *, as_json: bool) -> Output:
        """Documents follow each other here, so each is on one line."""
        return make_output(as_json=as_json or self.as_json, one_line=True)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def current_session() -> Session | None:
    """The prompt that the running command was typed at; None for a command of the shell."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(Session)
