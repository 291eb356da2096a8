"""`holdfast catalog`: what a workspace holds, asked in every way, and what people say about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.catalog import EventDraft, Workspace, open_workspace
from holdfast.catalog.operations import Catalog
from holdfast.catalog.payloads import Edge, LineageEdgesAdded, NamespaceCreated
from holdfast.catalog.sql import system_names
from holdfast.cli import catalog_compact
from holdfast.kv import publish_arrow
from holdfast.testing.servers import ServerUnavailable, start_ministack
from tests.cli.support import Program

PLACE = "./lake/acme/prod"
READING: list[list[str]] = [
    ["ls"],
    ["ls", "sales"],
    ["show", "sales"],
    ["show", "sales.orders"],
    ["show", "clean"],
    ["sql", "SELECT * FROM system.tables"],
    ["search", "orders"],
    ["lineage", "sales.orders"],
]
KEYS: dict[str, set[str]] = {
    "ls": {"totals", "namespaces", "datasets"},
    "ls sales": {"namespace", "total", "tables"},
    "show sales": {"kind", "name", "description", "owner", "properties", "tables"},
    "show sales.orders": {
        "kind", "name", "description", "owner", "table_kind", "location", "tags", "properties", "columns", "inputs",
    },
    "show clean": {
        "kind", "name", "description", "chain", "dataset_kind", "manifest_id", "ref", "run_id", "moved_at", "move",
        "why", "rows", "bytes", "tags", "columns", "inputs", "snapshots",
    },
    "sql SELECT * FROM system.tables": {"columns", "rows", "total"},
    "search orders": {"asked", "hits", "refreshed", "built_from"},
    "lineage sales.orders": {"name", "column", "direction", "total", "edges"},
}  # fmt: skip


def build(workspace: Workspace, name: str, rows: int, *inputs: str) -> None:
    table = pa.table({"id": range(rows), "label": [f"n{number}" for number in range(rows)]})
    pins = [workspace.dataset(one).pin() for one in inputs]
    publish_arrow(workspace.dataset(name, "kv"), table, key="id", shards=1, inputs=pins, why=f"{name} of {rows}")


def tell_edges(workspace: Workspace, *edges: Edge) -> None:
    workspace.ledger("lineage").append_many([EventDraft(payload=LineageEdgesAdded(edges=edges, run_id="r1"))])


@pytest.fixture
def workspace(holdfast: Program, tmp_path: Path) -> Workspace:
    """Made with the program: a namespace with two tables, and two data sets of which one is built from the other."""
    holdfast("init", PLACE)
    register = ("catalog", "register", PLACE)
    holdfast(*register, "sales", "--description", "What we sold", "--owner", "shop", "--tag", "team=shop")
    columns = ("--column", "id:bigint", "--column", "customer:struct<name:text>")
    holdfast(*register, "sales.orders", *columns, "--description", "One row an order", "--tag", "pii=no")
    holdfast(*register, "sales.refunds", "--location", "s3://bucket/refunds")
    made = open_workspace(str(tmp_path / "lake"), tenant="acme", workspace="prod", by="tests")
    build(made, "raw", 5)
    build(made, "clean", 3, "raw")
    build(made, "clean", 4, "raw")
    holdfast("catalog", "announce", PLACE)
    tell_edges(made, Edge(source="clean", target="sales.orders", source_column="id", target_column="id", kind="sql"))
    holdfast("catalog", "compact", PLACE)
    return made


def asked(holdfast: Program, *words: object) -> Any:
    return holdfast("catalog", *words, "--json").data


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_every_document_has_what_its_help_promises(
    holdfast: Program, workspace: Workspace, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C26, C27, C28: the same document whether the workspace is named or configured; text fits a terminal."""
    data = asked(holdfast, words[0], PLACE, *words[1:])
    assert set(data) == {"command", "workspace"} | KEYS[" ".join(words)]
    assert (data["command"], data["workspace"]) == (f"catalog {words[0]}", workspace.url)
    monkeypatch.setenv("HOLDFAST_WORKSPACE", PLACE)
    again = asked(holdfast, *words)
    assert {**again, "refreshed": None} == {**data, "refreshed": None}
    monkeypatch.setenv("COLUMNS", "80")
    lines = holdfast("catalog", *words).out.splitlines()
    assert lines
    assert [line for line in lines if len(line) > 80] == []


def test_a_workspace_that_is_written_as_a_place_counts_before_the_configured_one(
    holdfast: Program, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K24: words that are no place are words; with a fixed number of words the one more is the workspace."""
    holdfast("init", "./lake/acme/other")
    monkeypatch.setenv("HOLDFAST_WORKSPACE", "./lake/acme/other")
    assert asked(holdfast, "ls")["totals"]["tables"] == 0
    assert asked(holdfast, "ls", PLACE)["totals"]["tables"] == 2
    assert asked(holdfast, "ls", PLACE, "sales")["total"] == 2
    assert asked(holdfast, "search", PLACE, "orders")["asked"] == "orders"
    assert asked(holdfast, "search", "lake/acme/prod", "orders")["asked"] == "lake/acme/prod orders"
    assert asked(holdfast, "announce", PLACE, "raw")["workspace"] == workspace.url
    assert asked(holdfast, "show", "lake/acme/prod", "sales")["workspace"] == workspace.url


@pytest.mark.server
def test_a_workspace_in_a_bucket_is_used_the_same_way(
    holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1: on a real S3 server, with a prefix before the tenant and without."""
    try:
        server = start_ministack(tmp_path)
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.create_bucket("lake")
        for place in ("s3://lake/deep/acme/prod", "s3://lake/acme/prod"):
            assert holdfast("init", place, "--json").data["workspace"] == place
            holdfast("catalog", "register", place, "sales")
            holdfast("catalog", "register", place, "sales.orders", "--column", "id:bigint")
            assert asked(holdfast, "search", place, "ordrs")["hits"][0]["name"] == "sales.orders"
            assert asked(holdfast, "compact", place)["domains"][0]["publishes"] == 0
    finally:
        server.stop()


def test_ls_counts_what_there_is(holdfast: Program, workspace: Workspace) -> None:
    data = asked(holdfast, "ls", PLACE)
    assert data["totals"] == {"namespaces": 1, "tables": 2, "datasets": 2}
    assert [(one["namespace"], one["tables"], one["owner"]) for one in data["namespaces"]] == [("sales", 2, "shop")]
    assert [(one["dataset"], one["kind"], one["rows"], one["snapshots"]) for one in data["datasets"]] == [
        ("clean", "kv", 4, 2), ("raw", "kv", 5, 1)
    ]  # fmt: skip
    assert holdfast("catalog", "ls", PLACE).out.endswith("\n1 namespace, 2 tables, 2 data sets\n")
    inside = asked(holdfast, "ls", PLACE, "sales")
    assert [(one["table"], one["columns"], one["location"]) for one in inside["tables"]] == [
        ("orders", 2, ""), ("refunds", 0, "s3://bucket/refunds")
    ]  # fmt: skip
    short = asked(holdfast, "ls", PLACE, "sales", "--limit", 1)
    assert (short["total"], len(short["tables"])) == (2, 1)
    assert "… and 1 more (--limit N shows more)" in holdfast("catalog", "ls", PLACE, "sales", "--limit", 1).out


def test_show_tells_all_that_is_known(holdfast: Program, workspace: Workspace) -> None:
    """C28: columns, what it was made from, and every snapshot; after a rollback too."""
    orders = asked(holdfast, "show", PLACE, "sales.orders")
    assert [(one["name"], one["type"]) for one in orders["columns"]] == [
        ("id", "bigint"), ("customer", "struct<name:text>")
    ]  # fmt: skip
    assert (orders["kind"], orders["tags"]) == ("table", {"pii": "no"})
    assert [(one["source"], one["source_column"]) for one in orders["inputs"]] == [("clean", "id")]
    clean = asked(holdfast, "show", PLACE, "clean")
    assert [(one["manifest_id"], one["rows"], one["visible"]) for one in clean["snapshots"]] == [
        (1, 4, True), (0, 3, False)
    ]  # fmt: skip
    pins = [(one["source"], one["source_snapshot"], one["target_snapshot"], one["kind"]) for one in clean["inputs"]]
    assert pins == [("raw", "0", "1", "pinned")]
    assert [one["name"] for one in clean["columns"]] == ["id", "label"]
    workspace.dataset("clean").rollback(why="too many")
    assert asked(holdfast, "announce", PLACE, "clean")["published"] == 1
    back = asked(holdfast, "show", PLACE, "clean")
    assert (back["manifest_id"], back["rows"], back["move"], back["why"]) == (0, 3, "rolled back", "too many")
    assert [one["target_snapshot"] for one in back["inputs"]] == ["0"]
    assert asked(holdfast, "show", PLACE, "sales")["properties"] == {"team": "shop"}


def test_a_name_that_several_things_have_must_say_which(holdfast: Program, workspace: Workspace) -> None:
    """Nothing is guessed: a namespace and a data set, or two ways to split a name with dots."""
    build(workspace, "sales", 1)
    holdfast("catalog", "announce", PLACE, "sales")
    error = holdfast.fails("catalog", "show", PLACE, "sales", code=2)
    assert "a namespace and a data set; say which with --kind namespace or dataset" in error
    assert asked(holdfast, "show", PLACE, "sales", "--kind", "dataset")["rows"] == 1
    assert asked(holdfast, "show", PLACE, "sales", "--kind", "namespace")["owner"] == "shop"
    catalog = Catalog(workspace)
    catalog.create_namespace("a")
    catalog.create_namespace("a.b")
    catalog.register_table("a", "b.c")
    assert asked(holdfast, "show", PLACE, "a.b.c")["kind"] == "table"
    catalog.register_table("a.b", "c")
    assert "several ways" in holdfast.fails("catalog", "drop", PLACE, "a.b.c", code=2)


def test_sql_answers_in_columns_and_rows(holdfast: Program, workspace: Workspace) -> None:
    """C26: names that occur twice lose nothing; what is no question, or too large, is refused in one line."""
    data = asked(holdfast, "sql", PLACE, 'SELECT "table", 1 AS n, 2 AS n, NULL AS x FROM system.tables ORDER BY 1')
    assert [one["name"] for one in data["columns"]] == ["table", "n", "n", "x"]
    assert data["rows"] == [["orders", 1, 2, None], ["refunds", 1, 2, None]]
    assert data["total"] == 2
    assert "orders" in holdfast("catalog", "sql", PLACE, "SELECT * FROM system.tables").out
    none = asked(holdfast, "sql", PLACE, "SELECT * FROM system.runs")
    assert (none["rows"], none["total"]) == ([], 0)
    help_text = " ".join(holdfast("catalog", "sql", "--help").out.split())
    assert [name for name in system_names() if name not in help_text] == []
    many = "SELECT * FROM system.columns a, system.columns b"
    assert asked(holdfast, "sql", PLACE, many, "--limit-rows", 4)["total"] == 4
    assert "more than 3 rows" in holdfast.fails("catalog", "sql", PLACE, many, "--limit-rows", 3, code=2)


def test_time_goes_back_for_every_question(holdfast: Program, workspace: Workspace) -> None:
    """C26, C27, C28: --at shows what was known then, before anything was known too."""
    holdfast("catalog", "search", PLACE, "orders")
    then = workspace.clock.now().isoformat()
    holdfast("catalog", "drop", PLACE, "sales.orders")
    assert asked(holdfast, "ls", PLACE)["totals"]["tables"] == 1
    assert asked(holdfast, "ls", PLACE, "--at", then)["totals"]["tables"] == 2
    assert asked(holdfast, "show", PLACE, "sales.orders", "--at", then)["tags"] == {"pii": "no"}
    count = "SELECT count(*) FROM system.tables"
    assert asked(holdfast, "sql", PLACE, count)["rows"] == [[1]]
    assert asked(holdfast, "sql", PLACE, count, "--at", then)["rows"] == [[2]]
    assert asked(holdfast, "search", PLACE, "orders")["hits"] == []
    assert [hit["name"] for hit in asked(holdfast, "search", PLACE, "orders", "--at", then)["hits"]] == ["sales.orders"]
    assert asked(holdfast, "ls", PLACE, "--at", "2020-01-01")["totals"]["tables"] == 0
    assert asked(holdfast, "lineage", PLACE, "clean", "--at", "2020-01-01")["total"] == 0
    assert "no search index at that time" in holdfast.fails(
        "catalog", "search", PLACE, "orders", "--at", "2020-01-01", code=3
    )
    assert "is not a time" in holdfast.fails("catalog", "ls", PLACE, "--at", "soon", code=2)


def test_search_forgives_typos_and_looks_at_what_is_new(holdfast: Program, workspace: Workspace) -> None:
    """C27: the index follows the catalog, unless it is told to stay."""
    assert "no search index yet" in holdfast.fails("catalog", "search", PLACE, "orders", "--no-refresh", code=3)
    first = asked(holdfast, "search", PLACE, "custmer", "ordr")
    assert (first["asked"], first["hits"][0]["name"], first["refreshed"]) == ("custmer ordr", "sales.orders", True)
    assert asked(holdfast, "search", PLACE, "orders")["refreshed"] is False
    holdfast("catalog", "register", PLACE, "sales.orderlines")
    stale = asked(holdfast, "search", PLACE, "orderlines", "--no-refresh")
    assert "sales.orderlines" not in [hit["name"] for hit in stale["hits"]]
    fresh = asked(holdfast, "search", PLACE, "orderlines")
    assert (fresh["hits"][0]["name"], fresh["refreshed"]) == ("sales.orderlines", True)
    assert fresh["built_from"] > stale["built_from"]
    assert {hit["kind"] for hit in asked(holdfast, "search", PLACE, "label", "--kind", "dataset")["hits"]} == {
        "dataset"
    }
    assert len(asked(holdfast, "search", PLACE, "sales", "--limit", 2)["hits"]) == 2
    assert holdfast("catalog", "search", PLACE, "zzzzzz").out == "Nothing fits 'zzzzzz'.\n"


def test_lineage_goes_both_ways_to_any_depth(holdfast: Program, workspace: Workspace) -> None:
    """C28: by default one step; by column and by snapshot where somebody said one."""

    def ends(*words: object) -> list[tuple[int, str, str]]:
        found = asked(holdfast, "lineage", PLACE, *words)
        assert found["total"] == len(found["edges"])
        return [(one["depth"], one["source"], one["target"]) for one in found["edges"]]

    assert ends("sales.orders") == [(1, "clean", "sales.orders")]
    both = [(2, "raw", "clean")] * 2
    assert ends("sales.orders", "--depth", "all") == [(1, "clean", "sales.orders"), *both]
    assert ends("sales.orders", "--depth", 2) == [(1, "clean", "sales.orders"), *both]
    assert ends("raw", "--downstream") == [(1, "raw", "clean")] * 2
    assert ends("clean", "--snapshot", 1) == [(1, "raw", "clean")]
    assert ends("sales.orders", "--column", "id") == [(1, "clean", "sales.orders")]
    assert ends("sales.orders", "--column", "customer") == []
    text = holdfast("catalog", "lineage", PLACE, "sales.orders", "--depth", "all").out
    assert "clean:id" in text
    assert "raw@0" in text
    said = holdfast("catalog", "lineage", PLACE, "raw").out
    assert said == "It is not known what raw was made from.\n"
    for depth in ("0", "-1", "some", "²"):
        assert "use 1 or more, or all" in holdfast.fails("catalog", "lineage", PLACE, "raw", "--depth", depth, code=2)


def test_what_was_dropped_can_be_said_again(holdfast: Program, workspace: Workspace) -> None:
    """C16: every call is a change of its own, also where exactly this was said before."""
    for _ in range(3):
        assert asked(holdfast, "drop", PLACE, "sales.refunds")["kind"] == "table"
        again = asked(holdfast, "register", PLACE, "sales.refunds", "--location", "s3://bucket/refunds")
        assert (again["kind"], again["name"], again["updated"]) == ("table", "sales.refunds", False)
        assert asked(holdfast, "show", PLACE, "sales.refunds")["location"] == "s3://bucket/refunds"
    assert "has 2 tables" in holdfast.fails("catalog", "drop", PLACE, "sales", code=4)
    holdfast("catalog", "drop", PLACE, "sales.refunds")
    holdfast("catalog", "drop", PLACE, "sales.orders")
    assert holdfast("catalog", "drop", PLACE, "sales").out == "Namespace sales is dropped.\n"
    assert asked(holdfast, "ls", PLACE)["totals"]["namespaces"] == 0


def test_an_update_says_all_that_is_known_anew(holdfast: Program, workspace: Workspace) -> None:
    """C16: of a table and of a namespace; only of what is there."""
    told = asked(holdfast, "register", PLACE, "sales.orders", "--update", "--column", "id:text", "--owner", "me")
    assert told["updated"] is True
    found = asked(holdfast, "show", PLACE, "sales.orders")
    assert [(one["name"], one["type"]) for one in found["columns"]] == [("id", "text")]
    assert (found["owner"], found["tags"], found["description"]) == ("me", {}, "")
    holdfast("catalog", "register", PLACE, "sales", "--update", "--description", "Sold")
    assert asked(holdfast, "show", PLACE, "sales")["description"] == "Sold"
    assert "no namespace 'nowhere'" in holdfast.fails("catalog", "register", PLACE, "nowhere", "--update", code=3)
    assert "no table sales.gone" in holdfast.fails("catalog", "register", PLACE, "sales.gone", "--update", code=3)


@pytest.mark.parametrize(
    "words, code, says",
    [
        (["register", PLACE, "sales"], 4, "exists already"),
        (["register", PLACE, "sales.orders"], 4, "exists already"),
        (["register", PLACE, "nowhere.orders"], 3, f"make it with `holdfast catalog register {PLACE} nowhere`"),
        (["register", PLACE, "sales.new", "--column", "id"], 2, "use NAME:TYPE"),
        (["register", PLACE, "sales.new", "--column", "a:int", "--column", "a:int"], 2, "'a' is named twice"),
        (["register", PLACE, "sales.new", "--tag", "pii"], 2, "use KEY=VALUE"),
        (["register", PLACE, "other", "--column", "a:int"], 2, "is a namespace"),
        (["register", PLACE, "sales."], 2, "NAMESPACE.TABLE"),
        (["register", PLACE, ".orders"], 2, "NAMESPACE.TABLE"),
        (["register", PLACE, ""], 2, "'namespace' is empty"),
        (["drop", PLACE, "clean"], 3, "no namespace or table 'clean'"),
        (["show", PLACE, "nothing"], 3, "no namespace or table or data set 'nothing'"),
        (["ls", PLACE, "nothing"], 3, "no namespace 'nothing'"),
        (["announce", PLACE, "nothing"], 3, "'nothing' has no snapshot here"),
        (["announce", PLACE, "../x"], 2, "data set name '../x'"),
        (["sql", PLACE, "DROP TABLE system.tables"], 2, "only questions"),
        (["sql", PLACE, "SELECT * FROM nothing"], 3, "there is no table nothing"),
        (["ls", "./lake/acme/gone"], 3, "there is no workspace at"),
        (["compact", "./lake/acme/gone"], 3, "there is no workspace at"),
        (["ls", PLACE, "sales", "more"], 2, "'more' is one word too many"),
        (["show", PLACE], 2, "no workspace is configured"),
        (["search", PLACE], 2, "got no WORD"),
        (["ls"], 2, "no workspace was named"),
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(
    holdfast: Program, workspace: Workspace, words: Sequence[str], code: int, says: str
) -> None:
    before = asked(holdfast, "ls", PLACE)
    assert says in holdfast.fails("catalog", *words, code=code)
    assert asked(holdfast, "ls", PLACE) == before


def test_compact_finds_what_nobody_was_told_of(holdfast: Program, workspace: Workspace) -> None:
    """C18: an event that only lies in the ledger is folded, once, whatever was folded after it."""
    ledger = workspace.ledger("catalog")
    missed = ledger.append_many([EventDraft(payload=NamespaceCreated(namespace="missed"))])
    Catalog(workspace).create_namespace("later")
    assert [one["namespace"] for one in asked(holdfast, "ls", PLACE)["namespaces"]] == ["later", "sales"]
    newer = asked(holdfast, "compact", PLACE, "--domain", "catalog", "--new")["domains"]
    assert [(one["domain"], one["events"], one["publishes"]) for one in newer] == [("catalog", 0, 0)]
    (found,) = asked(holdfast, "compact", PLACE, "--domain", "catalog")["domains"]
    assert found["publishes"] == 1
    assert found["position"] > missed[0].position
    assert "missed" in [one["namespace"] for one in asked(holdfast, "ls", PLACE)["namespaces"]]
    again = asked(holdfast, "compact", PLACE)["domains"]
    assert [one["domain"] for one in again] == ["catalog", "lineage", "executions", "orchestration"]
    assert [one["publishes"] for one in again] == [0, 0, 0, 0]
    assert holdfast("catalog", "compact", PLACE).out.endswith("\nNothing was missing.\n")


def test_compact_goes_page_by_page(holdfast: Program, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """C18: a ledger of several pages is folded whole; what lies there and is no event is counted and left alone."""
    drafts = [EventDraft(payload=NamespaceCreated(namespace=f"n{number}")) for number in range(7)]
    workspace.ledger("catalog").append_many(drafts)
    workspace.store.put_new("ledger/catalog/notes.txt", b"mine")
    monkeypatch.setattr(catalog_compact, "PAGE_SIZE", 3)
    (found,) = asked(holdfast, "compact", PLACE, "--domain", "catalog")["domains"]
    assert found["events"] >= 7
    assert found["foreign"] == 1
    assert asked(holdfast, "ls", PLACE)["totals"]["namespaces"] == 8


def test_announce_tells_once_and_goes_past_what_is_half_written(holdfast: Program, workspace: Workspace) -> None:
    """C16: all data sets, also if one of them has only been begun."""
    workspace.dataset("half", "kv").begin_run()
    build(workspace, "raw", 6)
    data = asked(holdfast, "announce", PLACE)
    assert [(one["dataset"], one["moves"], one["published"]) for one in data["datasets"]] == [
        ("clean", 2, False), ("half", None, False), ("raw", 2, True)
    ]  # fmt: skip
    assert data["published"] == 1
    assert asked(holdfast, "announce", PLACE, "raw")["published"] == 0
    assert "nothing published yet" in holdfast("catalog", "announce", PLACE).out


@pytest.mark.parametrize(
    "words, library",
    [(["sql", "SELECT 1"], "duckdb"), (["sql", "SELECT 1"], "sqlglot"), (["search", "ordr"], "rapidfuzz")],
)
def test_a_missing_library_is_named_with_how_to_get_it(
    holdfast: Program, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, words: list[str], library: str
) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Refuses(library), *sys.meta_path])
    error = holdfast.fails("catalog", words[0], PLACE, *words[1:], code=2)
    assert f"needs {library}" in error
    assert "pip install 'holdfast[catalog]'" in error


class _Refuses:
    """As if a library were not installed."""

    def __init__(self, library: str) -> None:
        self._library = library

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name.partition(".")[0] == self._library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_rollback_by_its_own_command_is_in_the_catalog_at_once(holdfast: Program, tmp_path: Path) -> None:
    """C16, C28: a data set in a workspace announces itself, also when it is moved by the chain's own commands."""
    workspace = open_workspace(f"file://{tmp_path}/lake", tenant="acme", workspace="prod")
    workspace.initialize()
    for rows in (2, 3):
        table = pa.table({"id": list(range(rows))})
        publish_arrow(workspace.dataset("users", "kv"), table, key="id", shards=1)
    place = f"{tmp_path}/lake/acme/prod"
    moved = holdfast("rollback", f"{place}/datasets/users", "--why", "one too many", "--json")
    assert moved.data["repair_pending"] == []
    shown = holdfast("catalog", "sql", place, "SELECT manifest_id, why FROM system.datasets", "--json")
    assert shown.data["rows"] == [[0, "one too many"]]
    Path(f"{place}/locks/catalog.positions.json").write_bytes(b"{")
    moved = holdfast("forward", f"{place}/datasets/users")
    assert moved.code == 0
    assert "holdfast catalog announce" in moved.out
