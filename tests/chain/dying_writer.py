"""A process that works on a chain in a folder and kills itself, with SIGKILL, exactly where it is told to.

One interpreter stays warm and forks a child for each order, so that hundreds of deaths cost seconds. It has no threads,
and the only store is a folder: nothing that a fork would break.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

import orjson

from holdfast.storage import LocalStore, ObjectStore
from holdfast.testing.clock import SeededRandomness
from holdfast.testing.faulty import InterceptedStore, Operation
from tests.chain.publishing import LAYOUTS, ChainFactory, publish_one

_T = TypeVar("_T")

NEW = {"part-0": b"new rows", "part-1": b"more new rows"}


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to do, and where to die:

    before or after the how-manieth request, or at the how-manieth step inside writes.
    """

    root: str
    layout: str
    action: str
    where: str = "nowhere"
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """How it ended, and how many requests and steps there were if it came to the end."""

    killed: bool
    exit_status: int
    requests: int = 0
    steps: int = 0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillingStore(InterceptedStore):
    """Ends the process before or after one request."""

    def __init__(self, store: ObjectStore, order: Order) -> None:
        super().__init__(store)
        self._order = order

    def _around(self, operation: Operation, effect: Callable[[], _T]) -> _T:
        here = operation.serial == self._order.number
        if here and self._order.where == "before":
            _die()
        result = effect()
        if here and self._order.where == "after":
            _die()
        return result


def act(order: Order) -> dict[str, int]:
    """Do what was ordered, in this process; returns only if it was not killed."""
    steps = 0

    def step(_name: str) -> None:
        nonlocal steps
        steps += 1
        if order.where == "step" and steps == order.number:
            _die()

    store = KillingStore(LocalStore(order.root, durable=False, step=step), order)
    factory = ChainFactory(layout=LAYOUTS[order.layout], store=store, randomness=SeededRandomness(2))
    chain = factory(by="doomed")
    factory.clock.advance(7200)
    match order.action:
        case "publish":
            publish_one(chain, NEW, run_id="doomed")
        case "rollback":
            chain.rollback(why="killed on the way")
        case "collect":
            chain.collect(retention=2)
        case "purge":
            chain.purge(grace_s=0)
        case "publish for ever":
            for number in range(10**6):
                publish_one(chain, NEW, run_id=f"doomed-{number}")
                sys.stdout.write(".\n")
                sys.stdout.flush()
        case unknown:
            raise ValueError(f"no such action: {unknown}")
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
        order = Order(**orjson.loads(line))
        if order.action == "publish for ever":
            act(order)
        sys.stdout.write(orjson.dumps(asdict(carry_out(order))).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
