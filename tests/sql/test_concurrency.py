"""Many publishers at once: every commit that was reported is in the history once, and ids are unique."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from itertools import count as numbers
from pathlib import Path

import pytest

from holdfast.chain import Chain, Committed, ManifestDraft, Superseded, open_chain
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.url import parse_sql_url
from holdfast.errors import Conflict, Fenced
from holdfast.testing.chain_contract import publish_one

PUBLISHERS = 32
PROCESSES = 4


def together(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in so many threads, from one moment on."""
    barrier = threading.Barrier(count)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "somebody never came to their turn"


def publish_on_top(url: str, name: str) -> list[str]:
    """Publish one snapshot on top of whoever was first, or be told that it did not work; what was reported."""
    chain = open_chain(url, by=name)
    guard = chain.lock(operation=name, holder=name)
    try:
        run = chain.begin_run(name)
        outcome = chain.publish(ManifestDraft(payload={"by": name}), run=run, permit=chain.permit(guard), rebase=True)
    except Fenced:
        return []
    finally:
        guard.release()
    return [outcome.commit_ulid] if isinstance(outcome, Committed) else []


def _many(url: str, process: int) -> list[str]:
    """One process's share of publishers; the lock is a courtesy, so each takes whatever turn it gets."""
    reported: list[str] = []

    def work(number: int) -> None:
        for attempt in numbers():  # how many says nothing: whoever waits in vain is stopped by `together`
            try:
                found = publish_on_top(url, f"p{process}-t{number}-a{attempt}")
            except Conflict:
                continue  # somebody holds the lock
            if found:
                reported.extend(found)
                return

    together(PUBLISHERS // PROCESSES, work)
    return reported


def test_32_publishers_in_processes_and_threads(database_url: str, tmp_path: Path) -> None:
    """S34: 32 publishers in four processes: each commit that was reported is in the history exactly once."""
    url = f"{database_url}?chain=users"
    chain = open_chain(str(tmp_path / "store"), layout="graph", manifests=url, by="zero")
    assert isinstance(publish_one(chain, "zero"), Committed)
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES) as pool:
        shares = pool.starmap_async(_many, [(url, number) for number in range(PROCESSES)], chunksize=1).get(180)
    reported = [ulid for share in shares for ulid in share]
    assert len(reported) == PUBLISHERS
    history = chain.list_manifests(1000)
    commits = [found.commit_ulid for found in history]
    assert len(set(commits)) == len(commits)
    assert set(reported) <= set(commits)
    assert len(commits) == PUBLISHERS + 1, "nothing was published that nobody was told about"
    assert sorted(found.manifest_id for found in history) == list(range(1, PUBLISHERS + 2))
    assert chain.verify() == []


@pytest.mark.parametrize("pointer", ["missing", "written", "made up"])
def test_of_many_publishers_on_one_pointer_exactly_one_wins(database_url: str, tmp_path: Path, pointer: str) -> None:
    """S34: all of them read the same pointer before any swaps it; one commits, the others are superseded by it."""
    if database_url.startswith("postgresql"):
        isolation = database_at(parse_sql_url(database_url)).rows("SHOW transaction_isolation")
        assert isolation == [("read committed",)]
    url = f"{database_url}?chain=users"
    first = open_chain(str(tmp_path / "store"), layout="kv", manifests=url, by="zero")
    if pointer != "missing":  # else they race to create it
        assert isinstance(publish_one(first, "zero"), Committed)
    if pointer == "made up":
        database_at(parse_sql_url(database_url)).write(lambda tx: tx.run("DELETE FROM holdfast_pointer"))
    guard = first.lock()
    racers = 16
    chains: list[Chain] = [
        open_chain(str(tmp_path / "store"), layout="kv", manifests=url, by=f"racer {number}")
        for number in range(racers)
    ]
    runs = [chain.begin_run() for chain in chains]
    permits = [chain.permit(guard) for chain in chains]
    outcomes: dict[int, object] = {}

    def work(number: int) -> None:
        outcomes[number] = chains[number].publish(ManifestDraft(), run=runs[number], permit=permits[number])

    together(racers, work)
    guard.release()
    won = [outcome for outcome in outcomes.values() if isinstance(outcome, Committed)]
    lost = [outcome for outcome in outcomes.values() if isinstance(outcome, Superseded)]
    assert (len(won), len(lost)) == (1, racers - 1)
    assert {outcome.winner.commit_ulid for outcome in lost} == {won[0].commit_ulid}
    assert len(first.list_manifests()) == (1 if pointer == "missing" else 2)
    assert first.verify() == []
