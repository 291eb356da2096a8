"""What decides between two publishers in PostgreSQL, slowed down until it can be watched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.chain import Committed, ManifestDraft, graph_layout, open_chain
from holdfast.chain.commit import Outcome
from holdfast.chain.pointer import MoveKind
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.dialect import POSTGRES, Transaction
from holdfast.chain.sql.moving import move_pointer_row
from holdfast.chain.sql.reading import Place, read_steps
from holdfast.chain.sql.url import parse_sql_url
from holdfast.storage.objects import StoredObject, Version
from holdfast.testing.chain_contract import publish_one

POLLS_MAX = 20_000


@pytest.mark.server
@pytest.mark.parametrize("first_commits", [True, False], ids=["first commits", "first gives up"])
def test_a_second_publisher_waits_for_the_first_at_the_unique_key(
    postgres_url: str, tmp_path: Path, first_commits: bool
) -> None:
    """S34: at READ COMMITTED neither sees the other's row; the second waits for the first, then wins or loses."""
    url = f"{postgres_url}?chain=users"
    chain = open_chain(str(tmp_path / "store"), layout="graph", manifests=url, by="second")
    assert isinstance(publish_one(chain, "zero"), Committed)
    seen = chain.handle.read_pointer()
    assert seen is not None
    move = replace(
        seen.pointer.last_move,
        sequence=1,
        kind=MoveKind.ROLLBACK,
        commit_ulid=chain.handle.ulid(after=seen.pointer.commit_ulid),
        source_id=seen.pointer.manifest_id,
        by="first",
    )
    moved = seen.pointer.moved(move)
    database = database_at(parse_sql_url(postgres_url))
    place = Place(chain="users", layout=graph_layout(), dialect=POSTGRES)
    inserted, decide = threading.Event(), threading.Event()

    def slowly(tx: Transaction) -> Version:
        data = moved.encode(place.layout.id_field)
        version = move_pointer_row(tx, place, moved, data, expected=seen.version, staged=None)
        inserted.set()
        assert decide.wait(60)
        if not first_commits:
            raise ConnectionAbortedError("gives up")
        return version

    first = _in_thread(lambda: database.write(slowly))
    assert inserted.wait(60)
    guard = chain.lock()
    run = chain.begin_run()
    permit = chain.permit(guard)
    outcomes: list[Outcome] = []
    second = _in_thread(lambda: outcomes.append(chain.publish(ManifestDraft(), run=run, permit=permit)))
    waiting = False
    for _ in range(POLLS_MAX):
        waiting = bool(database.rows("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"))
        if waiting or outcomes:
            break
    decide.set()
    first.join(60)
    second.join(60)
    guard.release()
    assert waiting, "the second did not wait for the first"
    # The first one's move leads nowhere else, so the loser goes on top of it.
    assert isinstance(outcomes[0], Committed)
    assert outcomes[0].manifest.pointer_sequence == (2 if first_commits else 1)
    written = database.rows("SELECT who FROM holdfast_pointer ORDER BY sequence")
    assert [row[0] for row in written][1:] == (["first", "second"] if first_commits else ["second"])
    assert chain.verify() == []


def test_a_pointer_that_appears_between_two_queries_is_read(tmp_path: Path) -> None:
    """S34: no pointer row, and then a manifest with one: nothing is made up, the pointer is asked for again."""
    place = Place(chain="users", layout=graph_layout(), dialect=POSTGRES)
    steps = read_steps(place, place.layout.pointer_key)
    assert "holdfast_pointer" in next(steps)[0]
    assert "highest" in steps.send([])[0]
    now = datetime(2026, 3, 14, tzinfo=UTC)
    again, _ = steps.send([(1, "manifests/000001.json", b"{}", now, 1, "", 1)])
    assert "highest" not in again
    with pytest.raises(StopIteration) as done:
        steps.send([("p0-x", b"{}", 2, now)])
    assert done.value.value == StoredObject(key=place.layout.pointer_key, data=b"{}", version=Version("p0-x"))


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        except ConnectionAbortedError:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
