"""Arrow's threads must not outlive a call with something of Python's in hand: `holdfast.parquet_bytes` says why."""

from __future__ import annotations

import ast
import io
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.parquet_bytes import read_parquet
from tests.house.source import Module, parse, product

# What Arrow runs on threads of its own unless it is told not to.
THREADED = frozenset({"group_by", "read_row_group", "iter_batches"})


def threaded(module: Module) -> list[str]:
    """Calls that may leave a thread behind with a Python object: Parquet from memory, joins and groups on all cores."""
    return [
        f"{module.name}:{node.lineno} {node.func.attr}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_threaded(node, node.func.attr)
    ]


def _is_threaded(call: ast.Call, name: str) -> bool:
    given = {one.arg: ast.unparse(one.value) for one in call.keywords}
    if name == "read_table":
        return any("BufferReader" in ast.unparse(one) for one in call.args)
    return (name in THREADED or "join_type" in given) and given.get("use_threads") != "False"


def test_no_call_leaves_an_arrow_thread_with_an_object_of_pythons() -> None:
    assert [place for module in product().values() for place in threaded(module)] == []


@pytest.mark.parametrize(
    "text",
    ["pq.read_table(pa.BufferReader(data))", "table.group_by(['a'])", "table.join(other, ['a'], join_type='inner')"],
)
def test_the_rule_sees_such_a_call(text: str) -> None:
    assert threaded(parse("holdfast.x", text))


def test_a_program_that_read_parquet_ends_well() -> None:
    """Sixteen programs end at the same moment as their read does: none aborts."""
    program = (
        "import io, pyarrow as pa, pyarrow.parquet as pq\n"
        "from holdfast.parquet_bytes import read_parquet\n"
        "sink = io.BytesIO()\n"
        "pq.write_table(pa.table({'a': list(range(300_000)), 'b': list(range(300_000))}), sink, use_dictionary=False)\n"
        "data = sink.getvalue()\n"
        "assert len(data) > 1 << 20\n"
        "table = read_parquet(data)\n"
        "del data, sink\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(16)]
    ended = [(one.communicate(timeout=300)[1], one.returncode) for one in running]
    assert ended == [("", 0)] * len(running)


@pytest.mark.parametrize("rows", [3, 300_000])
def test_parquet_is_read_as_it_was_written(rows: int) -> None:
    table = pa.table({"a": list(range(rows)), "b": [f"text {row % 7}" for row in range(rows)]})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    assert read_parquet(sink.getvalue()).equals(table)
    read = read_parquet(sink.getvalue(), read_dictionary=["b"])
    assert pa.types.is_dictionary(read.schema.field("b").type)
    assert read.column("b").to_pylist() == table.column("b").to_pylist()
