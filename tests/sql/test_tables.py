"""What S34 says, sentence by sentence, on both databases."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace

import orjson
import pytest

from holdfast.chain import Chain, Committed, ManifestDraft, MoveKind, Outcome, Superseded, chain_on, graph_layout
from holdfast.chain.handle import SeenPointer
from holdfast.chain.pointer import Pointer
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.records import STAGED_MAX, SqlRecords
from holdfast.chain.sql.url import parse_sql_url
from holdfast.clock import format_time
from holdfast.codec import content_hash
from holdfast.errors import (
    AlreadyExists,
    InvariantViolation,
    ObjectNotFound,
    RunIdInUse,
    StaleFencingToken,
    VersionConflict,
)
from holdfast.storage import MemoryStore
from holdfast.storage.objects import Version
from holdfast.testing.chain_contract import other_handle, publish_one

Rows = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def chain(database_url: str) -> Iterator[Chain]:
    store = MemoryStore()
    records = SqlRecords(f"{database_url}?chain=users", graph_layout(), artifacts=store.url)
    chain = chain_on(store, graph_layout(), records=records, by="ada")
    yield chain
    assert chain.verify() == []


def committed(outcome: Outcome) -> Committed:
    assert isinstance(outcome, Committed), outcome
    return outcome


def pointer_of(chain: Chain) -> SeenPointer:
    seen = chain.handle.read_pointer()
    assert seen is not None
    return seen


def count(rows: Rows, table: str) -> int:
    found = rows(f"SELECT count(*) FROM {table}")[0][0]
    assert isinstance(found, int)
    return found


def execute(url: str, statement: str, *parameters: object) -> None:
    database_at(parse_sql_url(url)).write(lambda tx: tx.run(statement, parameters))


def test_a_publish_is_a_row_in_each_table(chain: Chain, rows: Rows) -> None:
    """S34: one manifest row with its commit fields, its JSON and its bytes, and one pointer row that names it."""
    first = committed(publish_one(chain, "one"))
    second = committed(publish_one(chain, "a \0 b"))
    found = rows(
        "SELECT run_id, name, content_type, manifest_id, epoch, fencing_token, commit_ulid, parent_hash, content_hash, "
        "data, payload FROM holdfast_manifests WHERE chain = ? ORDER BY manifest_id",
        ("users",),
    )
    for row, outcome in zip(found, (first, second), strict=True):
        manifest = outcome.manifest
        assert row[:3] == (manifest.run_id, outcome.manifest_path, "application/json")
        assert row[3:6] == (manifest.manifest_id, manifest.epoch, manifest.fencing_token)
        assert row[6:9] == (manifest.commit_ulid, manifest.parent_hash, outcome.manifest_hash)
        assert content_hash(bytes(row[9])) == outcome.manifest_hash  # type: ignore[call-overload]
        payload = orjson.loads(row[10]) if isinstance(row[10], str) else row[10]
        assert isinstance(payload, dict)
        assert payload["run_id"] == manifest.run_id
    loaded = chain.load_current()
    assert loaded is not None
    assert loaded.payload["content"] == "a \0 b"
    pointers = rows("SELECT sequence, manifest_ref, epoch, who FROM holdfast_pointer ORDER BY sequence")
    assert pointers == [
        (0, first.manifest_path, first.manifest.epoch, "ada"),
        (1, second.manifest_path, second.manifest.epoch, "ada"),
    ]


def test_a_manifest_is_nowhere_until_the_pointer_names_it(chain: Chain, rows: Rows) -> None:
    """S34: publish is one transaction; what a writer stages nobody else sees, and it dies with the writer."""
    committed(publish_one(chain, "one"))
    records, layout = chain.handle.records, chain.layout
    key = layout.manifest_key(7, published_at=chain.handle.clock.now(), run_id="x")
    data = records.get(pointer_of(chain).pointer.manifest_path).data
    version = records.put_new(key, data)
    assert (records.get(key).data, records.get(key).version) == (data, version)
    with pytest.raises(AlreadyExists):
        records.put_new(key, data)
    with pytest.raises(ObjectNotFound):
        other_handle(chain).handle.records.get(key)
    with pytest.raises(ObjectNotFound):
        pickle.loads(pickle.dumps(records)).get(key)
    assert count(rows, "holdfast_manifests") == 1
    assert key not in [info.key for page in records.list(layout.manifest_prefix) for info in page]


def test_a_manifest_that_lost_leaves_no_row(chain: Chain, rows: Rows) -> None:
    """S34, S20: there are no orphans in a database; the loser's manifest is dropped with the loser."""
    committed(publish_one(chain, "zero"))
    rival = other_handle(chain)
    with chain.lock() as guard:
        runs = [chain.begin_run(), rival.begin_run()]
        permits = [chain.permit(guard), rival.permit(guard)]
        committed(chain.publish(ManifestDraft(), run=runs[0], permit=permits[0]))
        outcome = rival.publish(ManifestDraft(), run=runs[1], permit=permits[1])
    assert isinstance(outcome, Superseded)
    assert count(rows, "holdfast_manifests") == 2
    assert chain.plan_collection(retention=100).condemned == ()


def test_what_is_staged_is_bounded(chain: Chain) -> None:
    """S34: writers that give up do not fill the memory: the oldest staged manifests go first."""
    records, layout = chain.handle.records, chain.layout
    now = chain.handle.clock.now()
    keys = [layout.manifest_key(number, published_at=now, run_id="x") for number in range(STAGED_MAX + 3)]
    for key in keys:
        records.put_new(key, b"{}")
    with pytest.raises(ObjectNotFound):
        records.get(keys[2])
    assert records.get(keys[3]).data == b"{}"


def test_a_run_is_published_at_most_once(chain: Chain, rows: Rows) -> None:
    """S34: the run is the manifest's primary key: the whole transaction is undone, the pointer's row included."""
    first = committed(publish_one(chain, "one", run_id="nightly"))
    seen = pointer_of(chain)
    manifest = replace(
        first.manifest,
        manifest_id=2,
        commit_ulid=chain.handle.ulid(after=seen.pointer.commit_ulid),
        pointer_sequence=1,
        parent_hash=first.manifest_hash,
        previous_manifest_path=first.manifest_path,
    )
    path = chain.layout.manifest_key(2, published_at=manifest.published_at, run_id="nightly")
    data = manifest.encode(chain.layout.names)
    move = replace(
        seen.pointer.last_move,
        sequence=1,
        commit_ulid=manifest.commit_ulid,
        source_id=1,
        target_id=2,
        manifest_path=path,
        manifest_hash=content_hash(data),
    )
    chain.handle.records.put_new(path, data)
    with pytest.raises(RunIdInUse, match="nightly"):
        chain.handle.records.swap(
            chain.layout.pointer_key, seen.pointer.moved(move).encode(chain.layout.id_field), expected=seen.version
        )
    assert (count(rows, "holdfast_pointer"), count(rows, "holdfast_manifests")) == (1, 1)


def test_the_pointer_table_is_only_appended_to(chain: Chain, rows: Rows) -> None:
    """S34: a rollback appends a row with who and why; no row is ever changed or deleted, not even by a purge."""
    refs = [committed(publish_one(chain, str(number))).ref for number in range(4)]
    before = rows("SELECT * FROM holdfast_pointer ORDER BY sequence")
    chain.set_current(refs[1], why="bad prices")
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    after = rows("SELECT * FROM holdfast_pointer ORDER BY sequence")
    assert after[: len(before)] == before
    told = rows("SELECT kind, who, why, manifest_ref FROM holdfast_pointer WHERE sequence = 4")
    assert told == [("rollback", "ada", "bad prices", chain.layout.path_of(refs[1]))]
    assert [row[1] for row in after] == list(range(len(after)))
    assert count(rows, "holdfast_manifests") == 2
    with pytest.raises(InvariantViolation):
        chain.handle.records.delete([chain.layout.pointer_key])


def test_a_manifest_is_never_replaced(chain: Chain) -> None:
    """S34, S12: a manifest cannot be swapped, at whatever version."""
    found = chain.handle.records.get(committed(publish_one(chain, "one")).manifest_path)
    with pytest.raises(InvariantViolation):
        chain.handle.records.swap(found.key, b"{}", expected=found.version)
    with pytest.raises(VersionConflict):
        chain.handle.records.swap(found.key, b"{}", expected=Version("m-0"))


def test_an_empty_pointer_table_falls_back_to_the_newest_manifest(chain: Chain, database_url: str, rows: Rows) -> None:
    """S34: without pointer rows the newest manifest is visible; the first move writes that down and goes on."""
    outcomes = [committed(publish_one(chain, str(number))) for number in range(40)]
    execute(database_url, "DELETE FROM holdfast_pointer")
    for handle in (chain, other_handle(chain)):
        assert handle.load_current() == outcomes[-1].manifest
        seen = pointer_of(handle)
        assert [move.kind for move in seen.pointer.moves] == [MoveKind.ADOPT]
        assert seen.pointer.high_water_id == outcomes[-1].manifest.manifest_id
        assert (seen.pointer.epoch, seen.pointer.commit_ulid) == (outcomes[-1].manifest.epoch, outcomes[-1].commit_ulid)
        assert handle.handle.records.get_if_changed(chain.layout.pointer_key, seen.version) is None
    assert count(rows, "holdfast_pointer") == 0, "reading writes nothing"
    after = [committed(publish_one(other_handle(chain), f"after {number}")) for number in range(40)]
    assert after[0].manifest.manifest_id == outcomes[-1].manifest.manifest_id + 1
    assert after[0].manifest.parent_hash == outcomes[-1].manifest_hash
    assert after[0].manifest.commit_ulid > outcomes[-1].commit_ulid
    assert len(chain.list_manifests(100)) == 41
    assert rows("SELECT kind FROM holdfast_pointer ORDER BY sequence LIMIT 2") == [("adopt",), ("publish",)]


def test_a_made_up_pointer_is_swapped_once(chain: Chain, database_url: str) -> None:
    """S34: of two who saw the made-up pointer one swaps it; nobody can create a pointer beside it."""
    committed(publish_one(chain, "one"))
    committed(publish_one(chain, "two"))
    first_row = chain.handle.records.get(chain.layout.pointer_key)
    execute(database_url, "DELETE FROM holdfast_pointer")
    rivals = [chain, other_handle(chain)]
    with chain.lock() as guard:
        runs = [one.begin_run() for one in rivals]
        permits = [one.permit(guard) for one in rivals]
        with pytest.raises(AlreadyExists):
            chain.handle.records.put_new(chain.layout.pointer_key, first_row.data)
        outcomes = [
            one.publish(ManifestDraft(), run=run, permit=permit)
            for one, run, permit in zip(rivals, runs, permits, strict=True)
        ]
    assert [type(outcome) for outcome in outcomes] == [Committed, Superseded]


def test_a_legacy_manifest_row_is_adopted_too(database_url: str) -> None:
    """S34, S26: rows that an older program wrote, without ids or ULIDs, are visible and can be built on."""
    store = MemoryStore()
    records = SqlRecords(f"{database_url}?chain=old", graph_layout(), artifacts=store.url)
    chain = chain_on(store, graph_layout(), records=records, by="ada")
    dialect = database_at(parse_sql_url(database_url)).dialect
    for number in (1, 2):
        data = orjson.dumps({"rows": number})
        execute(
            database_url,
            "INSERT INTO holdfast_manifests (chain, run_id, name, payload, content_type, created_at, manifest_id, "
            "epoch, fencing_token, commit_ulid, parent_hash, content_hash, data) "
            f"VALUES (?, ?, ?, {dialect.json_value}, 'application/json', ?, ?, 0, 0, '', NULL, ?, ?)",
            "old",
            f"legacy {number}",
            chain.layout.manifest_id_key(number),
            data.decode(),
            dialect.time(chain.handle.clock.now()),
            number,
            content_hash(data),
            data,
        )
    current = chain.load_current()
    assert current is not None
    assert current.payload == {"rows": 2}
    assert committed(publish_one(chain, "new")).manifest.manifest_id == 3
    assert chain.verify() == []


def test_the_database_itself_refuses_a_lower_epoch(chain: Chain) -> None:
    """S34, S15: compare-and-swap at the right version does not help a writer whose epoch is behind."""
    committed(publish_one(chain, "one"))
    committed(publish_one(chain, "two"))
    seen = pointer_of(chain)
    key = chain.layout.pointer_key
    with pytest.raises(StaleFencingToken) as caught:
        chain.handle.records.swap(key, _next(chain, seen, epoch=1), expected=seen.version)
    assert (caught.value.previous, caught.value.attempted) == (2, 1)
    assert pointer_of(chain) == seen


@pytest.mark.parametrize("change", [{"sequence": 7}, {"manifest_path": "manifests/000009.json"}])
def test_a_pointer_that_would_break_the_chain_is_not_written(chain: Chain, change: dict[str, object]) -> None:
    """S34, I2, I6: a gap in the sequence, or a manifest that does not exist, is refused by the transaction."""
    committed(publish_one(chain, "one"))
    seen = pointer_of(chain)
    with pytest.raises(InvariantViolation):
        chain.handle.records.swap(chain.layout.pointer_key, _next(chain, seen, **change), expected=seen.version)
    with pytest.raises(InvariantViolation):
        chain.handle.records.swap(chain.layout.pointer_key, b"not a pointer", expected=seen.version)
    assert pointer_of(chain) == seen


@pytest.mark.parametrize("version", ["", "p0", "p-1", "r1", "adopted-", "m-0", "é", "p0-" + "0" * 20])
def test_a_version_the_pointer_never_had_conflicts(chain: Chain, version: str) -> None:
    """S34, S13: a malformed or foreign version is a conflict like any other."""
    committed(publish_one(chain, "one"))
    seen = pointer_of(chain)
    with pytest.raises(VersionConflict):
        chain.handle.records.swap(chain.layout.pointer_key, _next(chain, seen), expected=Version(version))
    assert pointer_of(chain) == seen


def test_times_are_what_the_records_say(chain: Chain, rows: Rows) -> None:
    """S34: created_at and updated_at are the publishing time, to the microsecond."""
    outcome = committed(publish_one(chain, "one"))
    for text in ("SELECT created_at FROM holdfast_manifests", "SELECT updated_at FROM holdfast_pointer"):
        found = rows(text)[0][0]
        assert (found if isinstance(found, str) else format_time(found)) == format_time(outcome.manifest.published_at)  # type: ignore[arg-type]


def _next(chain: Chain, seen: SeenPointer, **changes: object) -> bytes:
    """The bytes of a rollback to where we are, with something wrong about it."""
    pointer = seen.pointer
    move = replace(
        pointer.last_move,
        sequence=pointer.sequence + 1,
        kind=MoveKind.ROLLBACK,
        commit_ulid=chain.handle.ulid(after=pointer.commit_ulid),
        source_id=pointer.manifest_id,
    )
    move = replace(move, **changes)  # type: ignore[arg-type]
    moved: Pointer = replace(pointer.moved(move), moves=(move,))
    return moved.encode(chain.layout.id_field)
