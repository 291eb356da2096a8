"""Lineage that SQL tells: from a statement to the tables, and the columns, that its output is made from (C28).

    column_lineage("SELECT id, price * n AS total FROM lines", {"lines": ["id", "price", "n"]}, "report").edges

gives edges for the ledger: one for each table, one for each pair of columns with how the one is made of the other, and
one for each column that decides about rows. Statements are read, never run; Spark is not needed. What cannot be told is
said: where the columns of a table are not known, or a clause hides them, there are edges between tables and a remark. A
column that a known table does not have is an error, because Spark would not run the statement either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.catalog.payloads import Column, Edge
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.catalog.column_lineage_sql import Statement
    from holdfast.catalog.column_lineage_walk import Made

__all__ = ["DIALECT", "DIRECT_KINDS", "INDIRECT_KINDS", "TABLE_KIND", "Schema", "SqlLineage", "column_lineage",
           "is_sql_kind", "table_inputs"]  # fmt: skip

DIALECT = "spark"
TABLE_KIND = "sql"
"""The kind of an edge between tables that a statement says."""
DIRECT_KINDS = ("identity", "transformation", "aggregation")
"""A column's values are taken as they are, are computed with, or are those of many rows made one."""
INDIRECT_KINDS = ("conditional", "window", "filter", "join", "group", "sort")
"""A column decides: in a CASE, in a window, about which rows, which pairs of rows, which groups, in which order."""
_KIND_MARK = ", "

Schema = Mapping[str, str] | Iterable[str | Column]
"""The columns of a table: by name with types, or as a list of names or of catalog columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLineage:
    """What a statement says about where its output comes from."""

    output: str
    inputs: tuple[str, ...]
    """The stored tables it reads, in the order in which they are written."""
    columns: tuple[str, ...]
    """The columns of the output, in order; none where they cannot be told."""
    edges: tuple[Edge, ...]
    """Between tables first, then between columns, then from columns that decide about rows."""
    remarks: tuple[str, ...] = ()
    """What could not be told, and why."""


def table_inputs(sql: str, *, dialect: str = DIALECT) -> list[str]:
    """The stored tables that a statement reads, as they are written, each once; not what WITH or a function makes."""
    from holdfast.catalog.column_lineage_sql import parse_statement

    return list(parse_statement(sql, dialect=dialect).names)


def column_lineage(sql: str, schemas: Mapping[str, Schema], output: str, *, dialect: str = DIALECT) -> SqlLineage:
    """Where the columns of `output` come from. `schemas` are those of the tables that the statement reads.

    The schema of `output`, if it is among them, names the columns that an INSERT without a list of columns fills.
    """
    from holdfast.catalog.column_lineage_sql import parse_statement

    statement = parse_statement(sql, dialect=dialect)
    known = _Known.of(schemas)
    inputs = tuple(dict.fromkeys(known.spelled(name) for name in statement.names))
    between = [Edge(source=name, target=output, kind=TABLE_KIND) for name in inputs]
    columns, fine, remarks = _columns(statement, known, output, dialect)
    return SqlLineage(output=output, inputs=inputs, columns=columns, edges=(*between, *fine), remarks=remarks)


def is_sql_kind(kind: str) -> bool:
    """Whether an edge of this kind is one that a statement says."""
    return kind == TABLE_KIND or all(one in DIRECT_KINDS + INDIRECT_KINDS for one in kind.split(_KIND_MARK))


@dataclass(frozen=True, slots=True)
class _Known:
    """The columns of tables, found by names in any case."""

    names: Mapping[str, str]
    columns: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, schemas: Mapping[str, Schema]) -> _Known:
        columns = {
            name: tuple(one.name if isinstance(one, Column) else one for one in schema)
            for name, schema in schemas.items()
        }
        return cls({name.lower(): name for name in columns}, columns)

    def spelled(self, name: str) -> str:
        return self.names.get(name.lower(), name)

    def of_table(self, name: str) -> tuple[str, ...]:
        return self.columns.get(self.spelled(name), ())

    def column(self, table: str, name: str) -> str:
        return next((one for one in self.of_table(table) if one.lower() == name.lower()), name)


_Told = tuple[tuple[str, ...], list[Edge], tuple[str, ...]]
"""Columns, edges, remarks."""


def _columns(statement: Statement, known: _Known, output: str, dialect: str) -> _Told:
    """The columns of the output and the edges to them, or a remark that says why there are none."""
    import sqlglot.expressions as exp
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.qualify import qualify
    from sqlglot.optimizer.scope import build_scope

    from holdfast.catalog.column_lineage_walk import Unresolved, Walk

    flat = {name: dict.fromkeys(known.of_table(table), "unknown") for name, table in statement.tables.items()}
    strangers = frozenset(name for name, columns in flat.items() if not columns)
    missing = sorted({statement.tables[name] for name in strangers})
    if statement.query.find(exp.Pivot) is not None:
        return (), [], ("columns cannot be told through PIVOT; only tables are",)
    spelled = _spelled(statement, known)
    try:
        query = qualify(
            statement.query.copy(),
            schema={name: columns for name, columns in flat.items() if columns},
            dialect=dialect,
            validate_qualify_columns=False,
            quote_identifiers=False,
        )
        scope = build_scope(query)
        if scope is None or any(one.is_star for each in scope.traverse() for one in _selects(each.expression)):
            return (), [], (f"columns cannot be told: those of {', '.join(missing) or 'a star'} are not known",)
        walk = Walk.over(scope, unknown=strangers)
        made, rows = walk.columns(scope), walk.rows(scope)
    except (SqlglotError, Unresolved) as error:
        said = str(error).splitlines()[0].rstrip(".")
        if missing:
            return (), [], (f"columns cannot be told: {said}; those of {', '.join(missing)} are not known",)
        raise BadInput(f"the statement names what its tables do not have: {said}; check it, or their columns") from None
    names, remarks = _names(statement, known, output, [spelled.get(one.lower(), one) for one in made])
    tables = {name: known.spelled(table) for name, table in statement.tables.items()}
    edges = [
        Edge(source=tables[table], target=output, source_column=known.column(tables[table], column),
             target_column=name, kind=kind)
        for name, sources in zip(names, made.values(), strict=True)
        for (table, column), kind in _ordered(sources)
    ]  # fmt: skip
    edges += [
        Edge(source=tables[table], target=output, source_column=known.column(tables[table], column),
             kind=_KIND_MARK.join(sorted(kinds)))
        for (table, column), kinds in sorted(rows.items())
    ]  # fmt: skip
    return tuple(names), _once(edges), remarks


def _selects(query: object) -> list[Any]:
    return list(getattr(query, "selects", []))


def _ordered(made: Made) -> list[tuple[tuple[str, str], str]]:
    return sorted(made.items())


def _once(edges: list[Edge]) -> list[Edge]:
    """An edge is known by its ends: of two the first, which is the direct one."""
    found: dict[tuple[object, ...], Edge] = {}
    for edge in edges:
        found.setdefault((edge.source, edge.source_column, edge.target_column), edge)
    return list(found.values())


def _spelled(statement: Statement, known: _Known) -> dict[str, str]:
    """Columns as they are written: names in SQL are the same in any case, and the output keeps one of them."""
    found = {one.lower(): one for table in statement.tables.values() for one in known.of_table(table)}
    for one in statement.query.selects:
        found[one.alias_or_name.lower()] = one.alias_or_name
    return found


def _names(statement: Statement, known: _Known, output: str, given: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """What the output calls its columns: as the statement lists them, as the table has them, or as they come."""
    filled = list(statement.target_columns)
    there = list(known.of_table(output))
    if not filled and there and statement.by_place:
        filled = there[: len(given)]  # partitions that are given a value come last, and are not selected
    if filled and len(filled) != len(given):
        raise BadInput(f"{len(given)} columns are selected, and {len(filled)} are to be filled; check the statement")
    doubled = [one.partition("\x00")[0] for one in given if "\x00" in one]
    if filled:
        return filled, ()
    if doubled:
        raise BadInput(f"column {doubled[0]!r} is selected twice; give one of them another name with AS")
    nameless = [place for place, one in enumerate(given, 1) if one == f"_col_{place - 1}"]
    remark = f"column {nameless[0]} has no name in the statement; give it one with AS" if nameless else ""
    return given, (remark,) if remark else ()
