"""The benchmarks of graphs run, and are fed what they say. Nothing here looks at a clock."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from bench.__main__ import main
from bench.graph_engines import ENGINES
from bench.graph_rows import NODES_PER_FILE, file_of, graph, of_file
from bench.kv_engines import have
from bench.report import WIDTH_MAX
from holdfast.graph.store import GraphStore


def test_queries_and_the_store_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["graph_formats", "graph_queries", "graph_store", "--quick", "--no-peers", "--disk", str(tmp_path / "disk")])
    out = capsys.readouterr().out
    assert "segment, row groups of 16,384" in out
    assert "0.008M: one-file commit" in out
    assert "cold: incoming edges of a node" in out
    assert max(map(len, out.splitlines())) <= WIDTH_MAX


def test_the_graph_is_the_same_every_time_and_has_what_it_says() -> None:
    nodes, edges = graph(2_000)
    assert (len(nodes), len(edges)) == (2_000, 6_000)
    assert graph(2_000)[0].equals(nodes)
    assert nodes.column("file")[777].as_py() == file_of(777)
    assert nodes.column("semantic_id")[0].as_py().startswith("packages/p0/src/mod_0.ts->")
    inside, starting = of_file(nodes, edges, 777)
    assert len(inside) == NODES_PER_FILE
    assert pc.all(pc.starts_with(starting.column("source"), file_of(777))).as_py()


@pytest.mark.parametrize("name", list(ENGINES))
def test_every_engine_answers_alike(tmp_path: Path, name: str) -> None:
    if name == "igraph" and not have("igraph"):
        pytest.skip("igraph is not installed: it is in the extra bench")
    nodes, edges = graph(1_000)
    engine = ENGINES[name](tmp_path)
    engine.load(nodes, edges)
    engine.reopen()
    truth = GraphStore.ephemeral()
    truth.commit(nodes=nodes, edges=edges)
    now, one = truth.snapshot(), nodes.column("semantic_id")[33].as_py()
    assert engine.by_type("CALL") == len(now.nodes(type="CALL"))
    assert engine.by_name("sym_5_205") == len(now.nodes(name="sym_5_205"))
    assert list(engine.neighbors(one)) == now.neighbors(one)
    assert engine.search(one) == len(now.breadth_first(one, depth=4))
    engine.replace_file(file_of(33), *of_file(nodes, edges, 33))
    engine.tag("first")
    assert engine.by_type("CALL") == len(now.nodes(type="CALL"))
