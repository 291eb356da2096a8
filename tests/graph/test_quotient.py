"""Groups of nodes and what lies between them, such as which files depend on a file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.graph.quotient import Grouping, quotient
from tests.graph.small_graphs import Model, models, set_sizes, sets_up_to, type_filters

FILES = [0, 0, 1, 1, 2, -1]
"""Two nodes in each of files 0 and 1, one in file 2, one in none."""
IMPORTS = Model(6, [(0, 2, 0), (1, 2, 0), (2, 4, 1), (3, 2, 0), (5, 0, 0), (4, 4, 0)])


@given(
    data=st.data(), model=models(), types=type_filters, size=set_sizes, transitive=st.booleans(), incoming=st.booleans()
)
def test_a_group_is_next_to_another_if_any_of_its_nodes_is(
    data: st.DataObject, model: Model, types: list[int] | None, size: int, transitive: bool, incoming: bool
) -> None:
    """G22: files that depend on a file, and those that it depends on, at first hand or at any."""
    groups_of = data.draw(st.lists(st.integers(-1, 4), min_size=model.node_count, max_size=model.node_count))
    groups = data.draw(st.lists(st.integers(0, 6), max_size=3))
    adjacency = model.adjacency().reversed() if incoming else model.adjacency()
    plain = model.backwards() if incoming else model
    with sets_up_to(size):
        found = quotient(
            adjacency, Grouping(np.array(groups_of, dtype=np.int64)), groups, types=types, transitive=transitive
        )
    assert found.tolist() == sorted(plain.groups_next_to(groups_of, groups, types, transitive=transitive))


def test_files_that_depend_on_a_file_are_found_at_first_hand_and_at_any() -> None:
    """G22: files that depend on a file."""
    files = Grouping(np.array(FILES))
    out = IMPORTS.adjacency()
    in_ = out.reversed()
    assert quotient(in_, files, [2]).tolist() == [1]
    assert quotient(in_, files, [2], transitive=True).tolist() == [0, 1]
    assert quotient(in_, files, [2], transitive=True, types=[1]).tolist() == [1]
    assert quotient(out, files, [0], transitive=True).tolist() == [1, 2]
    assert quotient(in_, files, [0]).tolist() == []  # only a node without a file points there
    assert quotient(in_, files, [7]).tolist() == []
    assert quotient(in_, files, []).tolist() == []


def test_a_group_knows_its_nodes() -> None:
    files = Grouping(np.array([2, 0, -1, 2, 0, 4]))
    assert files.group_count == 5
    assert files.nodes_of([2, 0]).tolist() == [0, 3, 1, 4]
    assert files.nodes_of([1, 3, 9]).tolist() == []
    assert Grouping(np.array([-1, -1])).group_count == 0
    assert Grouping(np.empty(0, dtype=np.int32)).nodes_of([0]).tolist() == []


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: Grouping(np.array([0, -2])), "found -2 as the lowest"),
        (lambda: Grouping(np.array([0.5])), "plain array of whole numbers"),
        (lambda: Grouping(np.array(FILES)).nodes_of([-1]), "give their codes"),
        (lambda: quotient(IMPORTS.adjacency(), Grouping(np.array(FILES)), [-1]), "give their codes"),
        (lambda: quotient(IMPORTS.adjacency(), Grouping(np.array([0])), [0]), "do not fit a graph of 6"),
    ],
)
def test_groups_that_cannot_be_right_are_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        call()
