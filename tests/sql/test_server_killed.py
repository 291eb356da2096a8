"""The server dies in the middle of a publish and comes back: nothing is lost, and verdicts are true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from holdfast.chain import Chain, Committed, ManifestDraft, VerdictKind, chain_on, kv_layout
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.migration import migrate
from holdfast.chain.sql.records import SqlRecords
from holdfast.chain.sql.url import parse_sql_url
from holdfast.errors import StoreUnavailable
from holdfast.storage import MemoryStore
from holdfast.testing.chain_contract import publish_one
from holdfast.testing.postgres import PostgresServer, start_postgres
from holdfast.testing.servers import ServerUnavailable
from holdfast.testing.wire import Cut, Watch, Wire

pytestmark = pytest.mark.server

# Where a publish can be hit, by what is on the wire then, and how.
MOMENTS = {
    "before the transaction": (b"BEGIN\x00", Cut.BEFORE),
    "as the pointer is inserted": (b"INSERT INTO holdfast_pointer", Cut.BEFORE),
    "after the pointer is inserted": (b"INSERT INTO holdfast_pointer", Cut.ANSWER),
    "after the manifest is inserted": (b"INSERT INTO holdfast_manifests", Cut.ANSWER),
    "as it commits": (b"COMMIT", Cut.BEFORE),
    "when it has committed": (b"COMMIT", Cut.ANSWER),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own: it is going to be killed."""
    try:
        found = start_postgres(fsync=False)
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield found
    found.stop()


@pytest.fixture
def wire(server: PostgresServer) -> Iterator[Wire]:
    found = Wire(server.port)
    yield found
    found.close()


@pytest.fixture
def url(server: PostgresServer, wire: Wire, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database behind the wire, with tables."""
    name = f"k{abs(hash(request.node.name)):x}"[:40]
    server.create_database(name)
    url = server.url(name, port=wire.port)
    migrate(url)
    yield f"{url}?chain=users"
    database_at(parse_sql_url(url)).close()


@pytest.fixture
def chain(url: str) -> Iterator[Chain]:
    store = MemoryStore()
    chain = chain_on(store, kv_layout(), records=SqlRecords(url, kv_layout(), artifacts=store.url), by="writer")
    yield chain
    assert chain.verify() == []


def once(server: PostgresServer, wire: Wire, text: bytes, cut: Cut, *, armed: Callable[[], bool]) -> Watch:
    """Cut the wire at the first message with this text, and let the server die and come back right there."""
    done: list[bytes] = []

    def watch(message: bytes) -> Cut:
        if done or not armed() or text not in message:
            return Cut.PASS
        done.append(message)
        return cut

    wire.on_cut = server.restart_after_kill
    return watch


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_server_killed_in_the_middle_of_a_publish_loses_nothing(
    server: PostgresServer, wire: Wire, chain: Chain, moment: str
) -> None:
    """S34, S17: whenever it dies, what was committed is there, what was not is not, and the writer is told which."""
    before = [publish_one(chain, str(number)) for number in range(2)]
    assert all(isinstance(outcome, Committed) for outcome in before)
    text, cut = MOMENTS[moment]
    publishing: list[bool] = []
    wire.watch = once(server, wire, text, cut, armed=lambda: bool(publishing))
    with chain.lock() as guard:
        run = chain.begin_run()
        permit = chain.permit(guard)
        publishing.append(True)
        outcome = chain.publish(_empty(), run=run, permit=permit)
    # The writer sends it again until it knows: nobody else is there to win.
    assert isinstance(outcome, Committed), outcome
    assert [found.run_id for found in chain.list_manifests()][:1] == [run.run_id]
    assert len(chain.list_manifests()) == 3
    assert chain.status(outcome.commit_ulid).kind is VerdictKind.COMMITTED


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.ANSWER], ids=["not committed", "committed"])
def test_a_writer_that_cannot_read_back_does_not_claim_to_know(
    server: PostgresServer, wire: Wire, url: str, cut: Cut
) -> None:
    """S34, S17: the server stays away after the commit was sent; the writer says unknown, and status says it later."""
    store = MemoryStore()
    records = SqlRecords(f"{url}&connect_timeout=1", kv_layout(), artifacts=store.url)
    chain = chain_on(store, kv_layout(), records=records, by="writer")
    chain = Chain(replace(chain.handle, attempts_max=2), by="writer")
    assert isinstance(publish_one(chain, "zero"), Committed)
    publishing: list[bool] = []
    wire.watch = once(server, wire, b"COMMIT", cut, armed=lambda: bool(publishing))
    wire.on_cut = server.kill
    guard = chain.lock()
    run = chain.begin_run()
    permit = chain.permit(guard)
    publishing.append(True)
    outcome = chain.publish(_empty(), run=run, permit=permit)
    server.start()
    assert not isinstance(outcome, Committed)
    landed = cut is Cut.ANSWER
    verdict = chain.status(outcome.commit_ulid, settle=True)
    assert (verdict.kind is VerdictKind.COMMITTED) == landed
    assert (chain.list_manifests()[0].run_id == run.run_id) == landed
    guard.release()
    assert chain.verify() == []


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.ANSWER], ids=["not committed", "committed"])
def test_a_write_whose_answer_was_lost_is_not_made_again_behind_the_writer(wire: Wire, chain: Chain, cut: Cut) -> None:
    """S34: the connection breaks at the commit: unavailable, whether it happened or not; nothing is tried in secret."""
    records = chain.handle.records
    records.put_new("before", b"")
    seen: list[bytes] = []

    def watch(message: bytes) -> Cut:
        hit = b"COMMIT" in message
        seen.extend([message] if hit else [])
        return cut if hit and len(seen) == 1 else Cut.PASS

    wire.watch = watch
    with pytest.raises(StoreUnavailable):
        records.put_new("a/b", b"one")
    assert len(seen) == 1
    if cut is Cut.ANSWER:
        assert records.get("a/b").data == b"one"
    else:
        assert records.put_new("a/b", b"two") == records.get("a/b").version


def test_readers_outlast_a_restart(server: PostgresServer, chain: Chain) -> None:
    """S34: a restarted server costs a reader nothing: its dead connection is replaced and the read made again."""
    assert isinstance(publish_one(chain, "one"), Committed)
    with chain.reader(lambda manifest: manifest.payload["content"]) as reader:
        server.restart_after_kill()
        reader.refresh()
        assert reader.manifest.payload["content"] == "one"
        server.restart_after_kill()
        assert isinstance(publish_one(chain, "two"), Committed)

    async def read() -> list[object]:
        async with await chain.async_reader(lambda manifest: manifest.payload["content"]) as reader:
            await asyncio.to_thread(server.restart_after_kill)
            await reader.refresh()
            return [reader.manifest.payload["content"]]

    assert asyncio.run(read()) == ["two"]


def test_a_server_that_is_gone_is_unavailable(server: PostgresServer, url: str) -> None:
    """S34: nobody answers: the error says so at once, and does not show the password."""
    server.kill()
    try:
        with pytest.raises(StoreUnavailable) as caught:
            SqlRecords(url, kv_layout()).get("x/y")
    finally:
        server.start()
    assert server.password not in str(caught.value)


def _empty() -> ManifestDraft:
    return ManifestDraft(payload={"content": "hit"})
