"""A SQL statement, made ready for lineage: what it asks, which tables it names, and which columns it fills.

Names in SQL come in one, two or three parts, a table may be called like a query in WITH, and two may differ in their
first part only. So every stored table of a statement gets a flat name of its own (`t0`, `t1`) before columns are looked
for, and keeps what it was called as its alias. Needs sqlglot, of the extra `catalog`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
import sqlglot.expressions as exp
from sqlglot.optimizer.scope import traverse_scope

from holdfast.errors import BadInput

__all__ = ["Statement", "parse_statement"]

_USE = "use SELECT, CREATE TABLE … AS SELECT, CREATE VIEW … AS SELECT or INSERT INTO … SELECT"
_LATERAL_NAMES: Mapping[type[exp.Expr], tuple[str, ...]] = {exp.Posexplode: ("pos", "col"), exp.Explode: ("col",)}
"""What Spark calls the columns of a lateral view that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a statement asks, and where that goes."""

    query: exp.Query
    """The question, with stored tables under their flat names."""
    tables: Mapping[str, str]
    """Flat name → the table's name as it is written, in the order of the statement."""
    target_columns: tuple[str, ...] = ()
    """The columns that an INSERT or a CREATE names; none where it names none."""
    by_place: bool = False
    """INSERT without BY NAME: columns go where their place says, whatever they are called."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.tables.values()))


def parse_statement(sql: str, *, dialect: str) -> Statement:
    """The one statement in `sql`; BadInput if it is none, or one that lineage cannot be told of."""
    tree = _parsed(sql, dialect)
    columns: tuple[str, ...] = ()
    query: object = tree
    if isinstance(tree, exp.Insert | exp.Create):
        query = tree.expression
        if isinstance(tree.this, exp.Schema):
            columns = tuple(one.name for one in tree.this.expressions)
        before = tree.args.get("with_")
        if isinstance(query, exp.Query) and before is not None:
            query.set("with_", _both(before, query.args.get("with_")))
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    if not isinstance(query, exp.Query):
        raise BadInput(f"lineage cannot be told from this statement; {_USE}")
    _name_laterals(query)
    tables = _flatten(query)
    by_place = isinstance(tree, exp.Insert) and not tree.args.get("by_name")
    return Statement(query=query, tables=tables, target_columns=columns, by_place=by_place)


def _parsed(sql: str, dialect: str) -> exp.Expr:
    try:
        trees = [tree for tree in sqlglot.parse(sql, read=dialect) if tree is not None]
    except (sqlglot.errors.SqlglotError, ValueError) as error:  # the second is an unknown dialect
        raise BadInput(f"this is not SQL of {dialect}: {str(error).splitlines()[0]}") from None
    if len(trees) != 1:
        raise BadInput(f"give one statement, not {len(trees)}")
    return trees[0]


def _both(outer: exp.With, inner: exp.With | None) -> exp.With:
    """WITH before INSERT, and WITH behind it."""
    queries = [*outer.expressions, *(inner.expressions if inner is not None else [])]
    recursive = any(one is not None and one.args.get("recursive") for one in (outer, inner))
    return exp.With(expressions=[one.copy() for one in queries], recursive=recursive)


def _name_laterals(query: exp.Query) -> None:
    for lateral in query.find_all(exp.Lateral):
        alias = lateral.args.get("alias")
        names = next((names for kind, names in _LATERAL_NAMES.items() if isinstance(lateral.this, kind)), ())
        if alias is not None and not alias.columns and lateral.args.get("view"):
            alias.set("columns", [exp.to_identifier(name) for name in names])


def _flatten(query: exp.Query) -> dict[str, str]:
    """Rename the stored tables; what is a query in WITH, or made by a function, is none."""
    flat: dict[str, str] = {}
    by_name: dict[str, str] = {}
    aliases: dict[tuple[str, ...], str] = {}
    for table in _stored(query):
        written = ".".join(part.name for part in table.parts)
        name = by_name.setdefault(written, f"t{len(by_name)}")
        flat[name] = written
        if not table.alias:
            taken = {alias for parts, alias in aliases.items() if ".".join(parts) != written}
            alias = table.name if table.name.lower() not in taken else f"{table.name}_{name}"
            aliases[tuple(part.name for part in table.parts)] = alias.lower()
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=table.this.args.get("quoted"))))
        for part in ("db", "catalog"):
            table.set(part, None)
        table.set("this", exp.to_identifier(name))
    _strip_columns(query, aliases)
    return flat


def _stored(query: exp.Query) -> list[exp.Table]:
    """In the order in which they are written."""
    found: dict[int, exp.Table] = {}
    for scope in traverse_scope(query):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                found[id(source)] = source
    return sorted(found.values(), key=lambda table: table.this.meta.get("start", 0))


def _strip_columns(query: exp.Query, aliases: Mapping[tuple[str, ...], str]) -> None:
    """`sales.orders.id` names a column by its whole table: from here on by its alias."""
    spelled = {tuple(part.lower() for part in parts): alias for parts, alias in aliases.items()}
    for column in query.find_all(exp.Column):
        parts = tuple(part.name.lower() for part in column.parts[:-1])
        if len(parts) > 1 and parts in spelled:
            column.set("table", exp.to_identifier(spelled[parts]))
            column.set("db", None)
            column.set("catalog", None)
