"""Opening chains whose records are in a database, by two URLs or by one; and what those URLs show of themselves."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.chain import Committed, open_chain
from holdfast.chain.sql import find_chain, is_sql_url, list_chains, parse_sql_url
from holdfast.chain.sql.records import SqlRecords
from holdfast.errors import BadInput, NotAChain, StoreDenied
from holdfast.storage import LocalStore
from holdfast.testing.chain_contract import publish_one
from holdfast.testing.postgres import PostgresServer


@pytest.mark.parametrize("layout", ["kv", "graph", "orchestration", "domain:lineage"])
def test_any_chain_lives_in_a_database_while_its_artifacts_stay_in_a_store(
    database_url: str, tmp_path: Path, layout: str
) -> None:
    """S34: records in the database and nothing but artifacts in the store; the database's URL alone opens it again."""
    store = tmp_path / "users"
    url = f"{database_url}?chain=users"
    chain = open_chain(str(store), layout=layout, manifests=url, by="ada")
    outcome = publish_one(chain, "one")
    assert isinstance(outcome, Committed)
    keys = [info.key for page in LocalStore(store).list("") for info in page]
    assert keys == [outcome.manifest.artifacts[0].path]
    for again in (open_chain(url), open_chain(database_url), open_chain(str(store), manifests=database_url)):
        assert again.handle.identity == chain.handle.identity
        assert again.load_current() == outcome.manifest
        assert again.layout.name == layout
        assert again.verify() == []
    assert open_chain(f"{url}#{layout}").load_current() == outcome.manifest


def test_without_a_name_a_chain_is_called_after_its_store(database_url: str, tmp_path: Path) -> None:
    """S34: one `manifests` setting serves every data set: each gets a name of its own."""
    stores = [tmp_path / "users", tmp_path / "orders"]
    for store in stores:
        chain = open_chain(str(store), layout="kv", manifests=database_url)
        assert isinstance(publish_one(chain, store.name), Committed)
    assert [one.chain for one in list_chains(database_url)] == sorted(f"{LocalStore(one).url}#kv" for one in stores)
    for store in stores:
        current = open_chain(f"{store}#kv", manifests=database_url).load_current()
        assert current is not None
        assert current.payload["content"] == store.name
        assert open_chain(str(store), manifests=database_url).load_current() == current
    with pytest.raises(NotAChain, match="more than one chain"):
        open_chain(database_url)


def test_a_chain_that_is_not_there_is_said_so(database_url: str, tmp_path: Path) -> None:
    """S34: a wrong name is NotAChain with the right ones beside it, and looking leaves no trace."""
    with pytest.raises(NotAChain, match="none at all"):
        open_chain(f"{database_url}?chain=users")
    chain = open_chain(str(tmp_path / "a"), layout="kv", manifests=f"{database_url}?chain=users")
    assert chain.current() is None
    assert list_chains(database_url) == []
    assert isinstance(publish_one(chain, "one"), Committed)
    with pytest.raises(NotAChain, match="'users'"):
        open_chain(f"{database_url}?chain=usres")
    with pytest.raises(NotAChain):
        open_chain(str(tmp_path / "b"), manifests=database_url)


def test_a_name_is_not_used_for_two_things(database_url: str, tmp_path: Path) -> None:
    """S34: another layout, or another place for the artifacts, is refused before anything is written."""
    url = f"{database_url}?chain=users"
    assert isinstance(publish_one(open_chain(str(tmp_path / "a"), layout="kv", manifests=url), "one"), Committed)
    with pytest.raises(BadInput, match="is a kv chain"):
        publish_one(open_chain(str(tmp_path / "a"), layout="graph", manifests=url), "two")
    with pytest.raises(BadInput, match="is a kv chain"):
        open_chain(str(tmp_path / "a"), layout="graph", manifests=url).load_current()
    with pytest.raises(BadInput, match="keeps its artifacts"):
        publish_one(open_chain(str(tmp_path / "b"), layout="kv", manifests=url), "two")
    with pytest.raises(BadInput, match="already names a database"):
        open_chain(url, manifests=url)
    assert find_chain(url).layout == "kv"


def test_chains_in_one_database_do_not_see_each_other(
    database_url: str, tmp_path: Path, rows: Callable[..., list[tuple[object, ...]]]
) -> None:
    """S34: names separate pointers, manifests, runs, tags and locks completely."""
    chains = [
        open_chain(str(tmp_path / name), layout="graph", manifests=f"{database_url}?chain={name}")
        for name in ("a", "b")
    ]
    guards = [chain.lock() for chain in chains]
    for guard in guards:
        guard.release()
    for number in range(3):
        for chain in chains:
            assert isinstance(publish_one(chain, str(number), run_id=f"run-{number}", n=str(number)), Committed)
    chains[1].begin_run("only-in-b")
    keys = [[info.key for page in chain.handle.records.list("") for info in page] for chain in chains]
    assert sorted(set(keys[1]) - set(keys[0])) == [chains[1].layout.run_key("only-in-b")]
    chains[0].collect(retention=1)
    chains[0].rollback(offset=0)
    assert [len(chain.list_manifests()) for chain in chains] == [3, 3]  # tagged ones stay
    assert all(chain.verify() == [] for chain in chains)
    assert rows("SELECT chain, count(*) FROM holdfast_manifests GROUP BY chain ORDER BY chain") == [("a", 3), ("b", 3)]


@pytest.mark.server
def test_no_password_is_ever_shown(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S34: not in URLs, identities, representations, stored records, errors or logs; a pickle can still connect."""
    caplog.set_level(logging.DEBUG)
    chain = open_chain(str(tmp_path / "a"), layout="kv", manifests=f"{postgres_url}?chain=users")
    assert isinstance(publish_one(chain, "one"), Committed)
    records = chain.handle.records
    wrong = postgres_url.replace(postgres.password, "wr0ng&secret")
    with pytest.raises(StoreDenied) as denied:
        open_chain(f"{wrong}?chain=users")
    shown = [records.url, repr(records), chain.handle.identity, repr(chain.handle), str(denied.value), caplog.text]
    shown += [repr(parse_sql_url(postgres_url)), repr(postgres), chain.pin().chain]
    stored = b"".join(records.get(info.key).data for page in records.list("") for info in page)
    shown += [stored.decode(), repr(list_chains(postgres_url))]
    assert not [text for text in shown if postgres.password in text or "wr0ng" in text]
    again = pickle.loads(pickle.dumps(records))
    assert isinstance(again, SqlRecords)
    assert again.get(chain.layout.pointer_key) == records.get(chain.layout.pointer_key)


@pytest.mark.parametrize(
    "url, public, chain",
    [
        ("sqlite:////srv/a%20b.db?chain=users", "sqlite:////srv/a%20b.db", "users"),
        ("sqlite:////srv/x.db?mode=ro", "sqlite:////srv/x.db", None),
        ("postgres://ada:secret@db.example:5432/lake?chain=a%2Fb", "postgresql://db.example/lake", "a/b"),
        ("postgresql://ada@db:6432/x?sslmode=require&password=secret", "postgresql://db:6432/x?sslmode=require", None),
        ("postgresql://u:se%40cret@[::1]:5433/x?user=v", "postgresql://[::1]:5433/x", None),
        ("postgresql://u:secret@one:5432,two:5433/x?target_session_attrs=primary",
         "postgresql://one,two:5433/x?target_session_attrs=primary", None),
    ],
)  # fmt: skip
def test_a_url_shows_its_place_and_nothing_else(url: str, public: str, chain: str | None) -> None:
    """S34: what is shown is the same for everybody who means this database, whoever they connect as."""
    found = parse_sql_url(url)
    assert (found.public, found.chain) == (public, chain)
    assert "secret" not in found.naming("users") + repr(found)
    assert "***" in found.scrub(f"it said {found.secrets[0]}") if found.secrets else True
    again = parse_sql_url(found.naming("é & b"))
    assert (again.public, again.chain) == (public, "é & b")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://x.db",
        "sqlite:///",
        "sqlite:///x.db?cache=shared",
        "sqlite:///x.db?chain=a&chain=b",
        "sqlite:///x.db?chain=",
        "sqlite:///x.db?chain=%0A",
        "file:///x.db",
        "x.db",
        "postgresql://u:secret@h:port:1/x?chain=a&chain=b",
    ],
)
def test_a_url_that_cannot_be_right_is_refused(url: str) -> None:
    """S34: bad input says what to write instead, and repeats no password."""
    with pytest.raises(BadInput) as caught:
        parse_sql_url(url)
    assert "secret" not in str(caught.value)


def test_only_database_urls_are_database_urls() -> None:
    """S34: a store's URL is never mistaken for a database's."""
    assert is_sql_url("sqlite:///x.db")
    assert is_sql_url("postgres://h/x")
    assert not any(is_sql_url(url) for url in ("file:///x", "s3://b/postgresql://", "sqlite.db", "./sqlite:/x", ""))


def test_a_relative_path_is_relative_to_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S34: three slashes are relative, four absolute, and what is shown is absolute."""
    monkeypatch.chdir(tmp_path)
    assert parse_sql_url("sqlite:///x.db").public == f"sqlite:///{tmp_path}/x.db"


def test_a_name_is_needed_where_records_are_opened() -> None:
    """S34: records belong to one chain; a URL without one says what to add."""
    from holdfast.chain import kv_layout

    with pytest.raises(BadInput, match="chain=NAME"):
        SqlRecords("sqlite:///x.db", kv_layout())
