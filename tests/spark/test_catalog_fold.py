"""A domain folded on Spark is what it is folded here: the same rows, published the same way, or nothing at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast.catalog import Workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.bulk import compact_in_bulk
from holdfast.catalog.compactor import Compaction, Compactor
from holdfast.catalog.domain_state import BASE, DELTA, DomainState
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import decode_event
from holdfast.catalog.fold import fold
from holdfast.catalog.layout import LEDGER_DOMAINS, ledger_layout
from holdfast.catalog.payload import Payload
from holdfast.catalog.tables import STATE_TABLES
from holdfast.chain import Chain
from holdfast.errors import (
    BadInput,
    BuildFailed,
    Conflict,
    CorruptRecord,
    CorruptShard,
    ObjectNotFound,
    ScopeEscape,
    StoreUnavailable,
)
from holdfast.fencing import LockGuard
from holdfast.spark import compact_domain
from holdfast.spark.catalog_task import parts_of
from holdfast.storage import LocalStore, MemoryStore
from holdfast.storage.capabilities import Reader
from tests.catalog.test_fold import NOW, SAID, event, ulid
from tests.spark.faults import FailingStore, unavailable_at_first, unavailable_at_shard_1

Stored = tuple[str, bytes]


def workspace_at(folder: Path) -> Workspace:
    return Workspace(root=LocalStore(folder, durable=False), tenant="acme", name="prod", by="tests")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = workspace_at(tmp_path / "root")
    made.initialize()
    yield made
    assert [problem for domain in LEDGER_DOMAINS for problem in made.domain(domain).verify()] == []


def stored(*said: Payload, first: int = 1) -> list[Stored]:
    """Events as they lie in the ledger, with the positions that follow each other."""
    layout = ledger_layout(said[0].DOMAIN)
    return [
        (layout.event_key(ulid(first + number)), event(first + number, payload).encode())
        for number, payload in enumerate(said)
    ]


def put(workspace: Workspace, many: Sequence[Stored]) -> list[str]:
    for path, data in dict(many).items():
        workspace.store.put_new(path, data)
    return [path for path, _ in many]


def state_of(workspace: Workspace, domain: str) -> DomainState:
    return DomainState.of_manifest(domain, workspace.domain(domain).load_current())


def tables_of(workspace: Workspace, domain: str) -> dict[str, pa.Table]:
    found = state_of(workspace, domain).read(Reader(workspace.store))
    return {name: table for name, table in found.items() if len(table)}


def expected_of(many: Sequence[Stored], domain: str) -> dict[str, pa.Table]:
    layout = ledger_layout(domain)
    events = [decode_event(data, path=path, layout=layout) for path, data in many]
    return fold({}, rows_of(events, domain=domain))


# -- one fold, two runners --------------------------------------------------------------------------------------------


@st.composite
def ledgers(draw: st.DrawFn) -> dict[str, list[Stored]]:
    """For each domain what happened there, with events that nobody understands and places that were given twice."""
    found = {}
    for domain in LEDGER_DOMAINS:
        layout = ledger_layout(domain)
        many = stored(*draw(st.lists(SAID[domain], min_size=1, max_size=30)))
        told = list(many)
        for number, odd in draw(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), max_size=5)):
            path = layout.event_key(ulid(1000 + number))
            record = orjson.loads(told[number % len(told)][1]) | {"event_id": ulid(1000 + number)}
            data = [b"{", orjson.dumps(record | {"event_version": 9}), orjson.dumps(record | {"more": 1})][odd % 3]
            many.append((path, data))  # the last: another event at the same position, of which the higher id counts
        found[domain] = list(dict(many).items())
    return found


def batches(draw: Callable[[st.SearchStrategy[Any]], Any], many: Sequence[Stored]) -> list[tuple[str, list[Stored]]]:
    """The events in any order, some twice, cut into batches that are folded here or there; at last a late replay."""
    again = draw(st.permutations([*many, *draw(st.lists(st.sampled_from(many), max_size=4))]))
    cuts = sorted(draw(st.lists(st.integers(0, len(again)), max_size=2)))
    cut = [again[start:end] for start, end in zip([0, *cuts], [*cuts, len(again)], strict=True)]
    cut.append(draw(st.lists(st.sampled_from(many), max_size=3)))
    runners = draw(st.lists(st.sampled_from(["here", "bulk", "spark"]), min_size=len(cut), max_size=len(cut)))
    if "spark" not in runners:
        runners[draw(st.integers(0, len(cut) - 1))] = "spark"
    return [(runner, list(some)) for runner, some in zip(runners, cut, strict=True) if some]


@settings(max_examples=3, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(ledgers(), st.data())
def test_folded_here_there_or_by_turns_the_state_is_the_same(
    spark: SparkSession, told: dict[str, list[Stored]], data: st.DataObject
) -> None:
    """C19: shuffled, doubled, cut into batches that the compactor, the bulk fold and Spark take by turns, and replayed:
    each table is bit by bit what one fold of all events in order gives."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = workspace_at(Path(folder))
        workspace.initialize()
        parts = data.draw(st.sampled_from([20, 1_000]))
        for domain, many in told.items():
            put(workspace, many)
            for runner, some in batches(data.draw, many):
                paths = [path for path, _ in some]
                done: Compaction
                if runner == "here":
                    done = Compactor(workspace, domain).compact(paths)
                elif runner == "bulk":
                    done = compact_in_bulk(workspace, domain, paths)
                else:
                    done = compact_domain(spark, workspace, domain, paths, rows_per_file=parts, events_per_task=20)
                assert done.events == len(paths)
            expected, found = expected_of(many, domain), tables_of(workspace, domain)
            assert set(found) == set(expected)
            for name, table in expected.items():
                assert found[name].equals(table), name
            highest = max((orjson.loads(data)["sequence_position"], path) for path, data in many if len(data) > 9)
            assert state_of(workspace, domain).watermark.position == highest[0]
            assert workspace.domain(domain).verify() == []


# -- publishing -------------------------------------------------------------------------------------------------------


def table(name: str, description: str = "") -> p.TableRegistered:
    return p.TableRegistered(namespace="n", table=name, description=description)


def test_all_of_a_ledger_is_found_by_listing_and_folded_once(spark: SparkSession, workspace: Workspace) -> None:
    """C19, C6, C24: one snapshot, a base for each table, the watermark, the root; the second time there is nothing."""
    paths = put(workspace, stored(table("a"), table("b"), p.TableDropped(namespace="n", table="a")))
    done = compact_domain(spark, workspace, "catalog")
    assert (done.published, done.events, done.quarantined, done.merged) == (True, 3, 0, ("tables",))
    assert (done.snapshot_version, done.watermark.position, done.watermark.event_id) == (1, 3, ulid(3))
    (file,) = state_of(workspace, "catalog").files
    assert (file.level, file.row_count, file.first_position, file.last_position) == (BASE, 2, 2, 3)
    assert file.path.startswith("state/catalog/run_id=")
    root = workspace.read_root().paths["catalog_manifest_path"]
    assert workspace.store.head(root).size > 0
    again = compact_domain(spark, workspace, "catalog", paths)
    assert (again.published, again.events, again.manifest_id) == (False, 3, done.manifest_id)
    assert not compact_domain(spark, workspace, "lineage").published


def test_a_large_base_is_several_files_and_none_may_be_missing(spark: SparkSession, workspace: Workspace) -> None:
    """C6, C22: each key is in one part; readers and the compactor take all of them, or refuse."""
    many = stored(*(table(f"t{number}") for number in range(40)))
    done = compact_domain(spark, workspace, "catalog", put(workspace, many), rows_per_file=10)
    state = state_of(workspace, "catalog")
    assert [(file.part, file.parts) for file in state.files] == [(number, 4) for number in range(4)]
    assert tables_of(workspace, "catalog")["tables"].equals(expected_of(many, "catalog")["tables"])
    manifest = workspace.domain("catalog").load_current()
    assert manifest is not None
    for artifacts in (manifest.artifacts[1:], (*manifest.artifacts, manifest.artifacts[0]), manifest.artifacts[:3]):
        with pytest.raises(CorruptRecord, match=r"part|bases"):
            DomainState.of_manifest("catalog", replace(manifest, artifacts=artifacts))
    (path,) = put(workspace, stored(table("t7", "newer"), first=99))
    Compactor(workspace, "catalog").compact([path])
    assert sorted(file.level for file in state_of(workspace, "catalog").files) == [BASE] * 4 + [DELTA]
    merged = compact_domain(spark, workspace, "catalog", put(workspace, stored(table("t8", "newer"), first=100)))
    assert [file.level for file in state_of(workspace, "catalog").files] == [BASE]
    assert (done.snapshot_version, merged.snapshot_version) == (1, 3)
    rows = tables_of(workspace, "catalog")["tables"].to_pylist()
    assert [row["table"] for row in rows if row["description"]] == ["t7", "t8"]


def test_the_parts_of_a_table_are_told_by_its_whole_key() -> None:
    """C6: the same key is always in the same part, and parts are of about the same size."""
    said = [p.RunStarted(run_id=f"r{number // 2}", started_at=NOW, attempt=number % 2 + 1) for number in range(4_000)]
    rows = rows_of([event(number + 1, one) for number, one in enumerate(said)], domain="executions")["run_starts"]
    parts = parts_of(rows, STATE_TABLES["run_starts"].key, 4)
    turned = rows.take(pa.array(range(len(rows) - 1, -1, -1)))
    assert parts_of(turned, STATE_TABLES["run_starts"].key, 4).tolist() == parts.tolist()[::-1]
    assert parts_of(rows.slice(17), STATE_TABLES["run_starts"].key, 4).tolist() == parts.tolist()[17:]
    counts = [parts.tolist().count(part) for part in range(4)]
    assert min(counts) > 850
    assert any(one != other for one, other in zip(parts[::2].tolist(), parts[1::2].tolist(), strict=True))


def test_missing_or_damaged_state_and_missing_events_stop_it(spark: SparkSession, workspace: Workspace) -> None:
    """C22: closed, with the same error as in process; what was visible still is."""
    compact_domain(spark, workspace, "catalog", put(workspace, stored(table("a"))))
    later = put(workspace, stored(table("b"), first=2))
    with pytest.raises(ObjectNotFound, match=ulid(9)):
        compact_domain(spark, workspace, "catalog", [*later, ledger_layout("catalog").event_key(ulid(9))])
    (file,) = state_of(workspace, "catalog").files
    good = workspace.store.get(file.path).data
    workspace.store.delete([file.path])
    with pytest.raises(CorruptShard, match="missing"):
        compact_domain(spark, workspace, "catalog", later)
    workspace.store.put_new(file.path, good[:-1] + b"x")
    with pytest.raises(CorruptShard, match="checksum"):
        compact_domain(spark, workspace, "catalog", later)
    workspace.store.delete([file.path])
    workspace.store.put_new(file.path, good)
    assert state_of(workspace, "catalog").snapshot_version == 1


class Meanwhile(Workspace):
    """Somebody else does something between the fold and the commit: when the lock is about to be taken."""

    def told(self, act: Callable[[], object]) -> Meanwhile:
        object.__setattr__(self, "_act", act)
        return self

    def domain(self, name: str) -> Chain:
        chain = super().domain(name)
        act, lock = self.__dict__.pop("_act", None), chain.lock

        def locked(**given: Any) -> LockGuard:
            if act is not None:
                act()
            return lock(**given)

        chain.lock = locked  # type: ignore[method-assign]
        return chain


def test_what_is_published_meanwhile_stays_and_waits_for_nobody(spark: SparkSession, workspace: Workspace) -> None:
    """C2, C17, C19: a change that comes while Spark works is a delta on top of the new base; a merge or a rollback of
    what was folded is a conflict, and nothing is lost."""
    compact_domain(spark, workspace, "catalog", put(workspace, stored(table("a"))))
    paths = put(workspace, stored(table("b"), table("c", "meanwhile"), table("d"), table("e"), first=2))
    busy = Meanwhile(root=workspace.root, tenant="acme", name="prod", by="tests")
    busy.told(lambda: Compactor(workspace, "catalog").compact(paths[1:2]))
    done = compact_domain(spark, busy, "catalog", paths[:1])
    files = state_of(workspace, "catalog").files
    assert [(file.level, file.row_count) for file in files] == [(BASE, 2), (DELTA, 1)]
    assert (done.watermark.position, done.snapshot_version) == (3, 3)
    assert tables_of(workspace, "catalog")["tables"].column("table").to_pylist() == ["a", "b", "c"]
    for act in (
        lambda: compact_in_bulk(workspace, "catalog", paths[:3]),
        lambda: workspace.domain("catalog").rollback(),
    ):
        with pytest.raises(Conflict, match="merged or rolled back"):
            compact_domain(spark, busy.told(act), "catalog", paths[3:])
    assert compact_domain(spark, workspace, "catalog", paths).events == 4
    assert tables_of(workspace, "catalog")["tables"].column("table").to_pylist() == ["a", "b", "c", "d", "e"]


def test_a_task_that_fails_once_is_tried_again_and_one_that_always_fails_publishes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """C23: every attempt writes under a key of its own; the error says which task, in one line."""
    plain = workspace_at(tmp_path / "root")
    plain.initialize()
    many = stored(*(table(f"t{number}") for number in range(10)), p.NamespaceCreated(namespace="n"))
    paths = put(plain, many)
    failing = Workspace(root=FailingStore(tmp_path / "root", unavailable_at_shard_1), tenant="acme", name="prod")
    with pytest.raises((BuildFailed, StoreUnavailable), match=r"task 1: .*did not answer"):
        compact_domain(spark, failing, "catalog", paths)
    assert plain.domain("catalog").load_current() is None
    once = Workspace(root=FailingStore(tmp_path / "root", unavailable_at_first), tenant="acme", name="prod")
    assert compact_domain(spark, once, "catalog", paths).published
    assert {name: rows.to_pylist() for name, rows in tables_of(plain, "catalog").items()} == {
        name: rows.to_pylist() for name, rows in expected_of(many, "catalog").items()
    }
    assert plain.domain("catalog").verify() == []


def test_what_makes_no_sense_is_refused_before_spark_is_asked(spark: SparkSession, workspace: Workspace) -> None:
    """C11: another domain's path; a store that executors cannot reach; sizes of nothing."""
    with pytest.raises(ScopeEscape, match="no event of this ledger"):
        compact_domain(spark, workspace, "catalog", [ledger_layout("lineage").event_key(ulid(1))])
    with pytest.raises(BadInput, match="cannot reach memory"):
        compact_domain(spark, Workspace(root=MemoryStore(), tenant="acme", name="prod"), "catalog", [])
    with pytest.raises(BadInput, match="at least one row"):
        compact_domain(spark, workspace, "catalog", [], rows_per_file=0)
