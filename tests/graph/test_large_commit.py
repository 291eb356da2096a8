"""A large commit goes another way to the same files: what many rows share is worked out once for all of them."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from holdfast.graph import publishing, segment_writer, store
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import GraphStore
from holdfast.storage.memory import MemoryStore
from tests.chain.publishing import keys_below

NODES = [Node(semantic_id=f"n{number:03d}", type="T", file=f"{number % 3}.py") for number in range(60)]
EDGES = [
    Edge(source=f"n{number % 60:03d}", target=f"n{number % 60 // 4 * 4 + number // 120:03d}", type=f"E{number // 60}")
    for number in range(200)
]
FEWER = [edge for edge in EDGES if edge.source != "n001"]


def segments_of(*, parallel_rows: int, changed: bool) -> dict[str, bytes]:
    """The files of a graph after a commit, and perhaps a second that puts all of it again with a few new edges."""
    place = MemoryStore()
    with (
        patch.object(publishing, "_PARALLEL_ROWS", parallel_rows),
        patch.object(segment_writer, "ROW_GROUP_ROWS", 16),
        patch.object(store, "SEGMENT_ROWS_MAX", 50),
    ):
        graph = GraphStore.create(place)
        graph.commit(nodes=NODES, edges=FEWER if changed else EDGES)
        if changed:
            graph.commit(nodes=NODES, edges=EDGES)
    return {key: place.get(key).data for key in keys_below(place, "segments")}


@pytest.mark.parametrize("changed", [False, True])
def test_a_large_commit_writes_the_files_that_a_small_one_would(changed: bool) -> None:
    """G7: targets are hashed once for all segments, and the index of each is the same to the byte."""
    small = segments_of(parallel_rows=10**9, changed=changed)
    assert len(small) > 4
    assert segments_of(parallel_rows=0, changed=changed) == small


def test_edges_of_a_large_commit_are_found_by_their_targets() -> None:
    """G7: by the index, in each of the segments that have one."""
    place = MemoryStore()
    with patch.object(publishing, "_PARALLEL_ROWS", 0), patch.object(store, "SEGMENT_ROWS_MAX", 50):
        GraphStore.create(place).commit(nodes=NODES, edges=EDGES)
    direct = GraphStore.open(place).direct()
    for node in NODES:
        found = {edge.source for edge in direct.edges(target=node.semantic_id)}
        assert found == {edge.source for edge in EDGES if edge.target == node.semantic_id}
