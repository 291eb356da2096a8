"""A process that changes a graph in a folder and kills itself, with SIGKILL, exactly where it is told to.

One interpreter stays warm and forks a child for each order. It has no threads and has not touched a graph: nothing that
a fork would break.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict

import orjson

from holdfast.graph.compaction import compact
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import GraphStore
from holdfast.storage import LocalStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from tests.chain.dying_writer import KillingStore, Order, Report
from tests.graph.model import Paper

PUT = (Node(semantic_id="n3", type="U", file="y.py"), Node(semantic_id="new", type="T", file="y.py"))
PUT_EDGES = (Edge(source="new", target="n3", type="E", file="y.py"),)


def commit(store: GraphStore) -> None:
    store.commit(nodes=list(PUT), edges=list(PUT_EDGES), remove_nodes=["n1"], dangling="keep", tags={"by": "doomed"})


def replace(store: GraphStore) -> None:
    store.replace_files(["y.py"], nodes=list(PUT), edges=list(PUT_EDGES), dangling="keep")


def merge(store: GraphStore) -> None:
    compact(store)


ACTIONS: Mapping[str, Callable[[GraphStore], None]] = {"commit": commit, "replace": replace, "merge": merge}


def after(action: str, before: Paper) -> Paper:
    """What is there once the action is done."""
    match action:
        case "commit":
            return before.changed(PUT, PUT_EDGES, remove_nodes=["n1"])
        case "replace":
            return before.changed(PUT, PUT_EDGES, files=["y.py"])
        case _:
            return before


def act(order: Order) -> dict[str, int]:
    """Do what was ordered, in this process; returns only if it was not killed."""
    steps = 0

    def step(_name: str) -> None:
        nonlocal steps
        steps += 1
        if order.where == "step" and steps == order.number:
            os.kill(os.getpid(), signal.SIGKILL)

    store = KillingStore(LocalStore(order.root, durable=False, step=step), order)
    clock = VirtualClock()
    clock.advance(7_200)
    ACTIONS[order.action](GraphStore.open(store, by="doomed", clock=clock, randomness=SeededRandomness(2)))
    return {"requests": len(store.log), "steps": steps}


def carry_out(order: Order) -> Report:
    """Fork a child for the order and see how it ends."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(send, orjson.dumps(act(order)))
            status = 0
        except BaseException:  # noqa: BLE001 - the last line of a process: told on stderr and by its exit status
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as answers:
        counts = answers.read()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return Report(killed=killed, exit_status=status, **(orjson.loads(counts) if counts else {}))


def main() -> None:
    """One order a line in, one report a line out."""
    for line in sys.stdin:
        report = carry_out(Order(**orjson.loads(line)))
        sys.stdout.write(orjson.dumps(asdict(report)).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
