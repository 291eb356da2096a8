"""SQL over a workspace: `system.*`, read-only, with limits (C26). Needs the extra `catalog` (DuckDB, sqlglot).

    query(workspace, "SELECT namespace, count(*) FROM system.tables GROUP BY 1").to_pylist()

Only the domains that a statement names are read (C5). DuckDB runs in this process, without access to files, network,
settings or Python's variables; a statement that is anything but a question is refused before it gets there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.catalog.reading import commits_table, read_tables
from holdfast.catalog.system_tables import SYSTEM_TABLES
from holdfast.catalog.tables import state_table
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput, LimitReached, NotFound

if TYPE_CHECKING:
    import sqlglot.expressions as exp

__all__ = ["COMMITS", "SCHEMA", "QueryLimits", "query", "system_names", "system_table"]

SCHEMA, COMMITS = "system", "commits"
_INNER = "held"
"""The schema that DuckDB keeps them in: it has a catalog called `system` of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """What a question may cost at most."""

    rows: int = 100_000
    bytes: int = 256 << 20
    seconds: float = 30.0
    memory: str = "1GB"


def system_names() -> list[str]:
    """The tables that can be asked, without `system.`."""
    return sorted([*SYSTEM_TABLES, COMMITS])


def system_table(workspace: Workspace, name: str, *, at: datetime | None = None) -> pa.Table:
    """One of them, whole; as of a time if one is given."""
    if name == COMMITS:
        return commits_table(workspace)
    if name not in SYSTEM_TABLES:
        raise NotFound(f"there is no system.{name}; use one of {', '.join(system_names())}")
    wanted = SYSTEM_TABLES[name]
    there: dict[str, pa.Table] = {}
    for domain in wanted.domains:
        names = [table for table in wanted.needs if state_table(table).domain == domain]
        there |= read_tables(workspace, domain, names, at=at)
    return wanted.make(there)


def query(
    workspace: Workspace, statement: str, *, at: datetime | None = None, limits: QueryLimits | None = None
) -> pa.Table:
    """The answer to one question. BadInput if it is none; LimitReached if the answer would be larger or take longer."""
    allowed = limits or QueryLimits()
    tree, names = _question(statement)
    tables = {name: system_table(workspace, name, at=at) for name in names}
    return _ask(tree.sql(dialect="duckdb"), tables, allowed)


def _question(statement: str) -> tuple[exp.Query, list[str]]:
    """The statement, if it only reads, with its tables where DuckDB will find them; and which tables these are."""
    import sqlglot
    import sqlglot.expressions as exp

    try:
        trees = [tree for tree in sqlglot.parse(statement, read="duckdb") if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        raise BadInput(f"this is not SQL: {str(error).splitlines()[0]}") from None
    if len(trees) != 1:
        raise BadInput(f"give one statement, not {len(trees)}")
    (tree,) = trees
    writes = tree.find(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into, exp.Command, exp.DDL, exp.Copy)
    if not isinstance(tree, exp.Query) or writes is not None:
        raise BadInput("only questions can be asked here: use SELECT; changes are made by their own commands")
    inner = {with_.alias.lower() for with_ in tree.find_all(exp.CTE)}
    names: dict[str, None] = {}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            raise BadInput(f"{table.sql(dialect='duckdb')} is no table; use one of {_listed()}")
        name, schema = table.name.lower(), table.db.lower()
        if not schema and not table.catalog and name in inner:
            continue
        if table.catalog or schema not in {SCHEMA, ""} or name not in system_names():
            raise NotFound(f"there is no table {table.sql(dialect='duckdb')}; use one of {_listed()}")
        names[name] = None
        table.set("db", exp.to_identifier(_INNER))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
    return tree, list(names)


def _listed() -> str:
    return ", ".join(f"{SCHEMA}.{name}" for name in system_names())


def _ask(statement: str, tables: dict[str, pa.Table], limits: QueryLimits) -> pa.Table:
    import duckdb

    connection = duckdb.connect(
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "memory_limit": limits.memory,
            "threads": "2",
        }
    )
    timer = threading.Timer(limits.seconds, connection.interrupt)
    try:
        connection.execute(f"CREATE SCHEMA {_INNER}")
        for name, table in tables.items():
            connection.register("incoming", table)
            connection.execute(f'CREATE TABLE {_INNER}."{name}" AS SELECT * FROM incoming')
            connection.unregister("incoming")
        connection.execute("SET lock_configuration = true")
        timer.start()
        return _limited(connection.execute(statement).to_arrow_reader(10_000), limits)
    except duckdb.InterruptException:
        raise LimitReached(f"the question took longer than {limits.seconds:g} s; ask for less") from None
    except duckdb.Error as error:
        raise BadInput(f"DuckDB says: {str(error).splitlines()[0]}") from None
    finally:
        timer.cancel()
        connection.close()


def _limited(batches: Iterable[Any], limits: QueryLimits) -> pa.Table:
    held, rows, size = [], 0, 0
    reader = batches
    for batch in reader:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > limits.rows or size > limits.bytes:
            raise LimitReached(
                f"the answer has more than {limits.rows:,} rows or {limits.bytes:,} bytes; add a LIMIT, or ask for less"
            )
        held.append(batch)
    return pa.Table.from_batches(held, schema=reader.schema)  # type: ignore[attr-defined]
