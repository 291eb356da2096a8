"""A store that counts over process boundaries, each range request a line in a file; and what runs in such processes."""

from __future__ import annotations

import os
import sys

from holdfast.chain import chain_on, kv_layout
from holdfast.kv import ShardedReader
from holdfast.storage import LocalStore
from holdfast.testing.faulty import InterceptedStore

ASKED = 200


class LoggedStore(InterceptedStore):
    """Files, but served as a remote store is: through the cache."""

    def __init__(self, root: str, log: str) -> None:
        super().__init__(LocalStore(root, durable=False))
        self._requests = log

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with open(self._requests, "a", encoding="utf-8") as file:
            file.write(f"{key} {start}\n")
        return super().get_range(key, start, length)


class DyingStore(LoggedStore):
    """Dies without a word after its first request was answered, when the answer is still to be written."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        super().get_range(key, start, length)
        os._exit(9)


def main(root: str, log: str, cache: str, store: str) -> None:
    """Say that it is ready, wait for a line, open the data set and ask for everything."""
    make = DyingStore if store == "dying" else LoggedStore
    chain = chain_on(make(root, log), kv_layout(), by="reader")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    with ShardedReader.open(chain, cache=cache) as reader:
        found = reader.multi_get(range(ASKED))
    assert found == {key: {"square": key * key, "name": f"row {key}"} for key in range(ASKED)}


if __name__ == "__main__":
    main(*sys.argv[1:])
