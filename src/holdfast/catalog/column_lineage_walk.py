"""From the columns of a question to the columns of stored tables that they come from.

A question is a tree of scopes: queries in WITH, in FROM, in an expression, and the arms of a UNION. Each scope is asked
two things, and each answer is made of those of the scopes below it:

1. for each column that it gives: the stored columns it is made of, and how (`direct`, or by a condition or a window);
2. the stored columns that decide about its rows: by a filter, a join, a group or an order.

A column that is used in several ways is used in the strongest: aggregation, transformation, identity, window,
conditional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import sqlglot.expressions as exp
from sqlglot.optimizer.scope import Scope

__all__ = ["DIRECT", "ROWS", "Stored", "Unresolved", "Walk"]

IDENTITY, TRANSFORMATION, AGGREGATION = "identity", "transformation", "aggregation"
CONDITIONAL, WINDOW = "conditional", "window"
FILTER, JOIN, GROUP, SORT = "filter", "join", "group", "sort"
_STRENGTH = (CONDITIONAL, WINDOW, IDENTITY, TRANSFORMATION, AGGREGATION)
DIRECT = (IDENTITY, TRANSFORMATION, AGGREGATION)
ROWS = (FILTER, JOIN, GROUP, SORT)
"""What decides about rows, and so about every column."""
_CLAUSES = {
    "where": FILTER, "having": FILTER, "qualify": FILTER, "group": GROUP, "order": SORT, "sort": SORT, "cluster": SORT,
}  # fmt: skip

Stored = tuple[str, str]
"""A stored table, by its flat name, and a column of it."""
Made = dict[Stored, str]
"""What a column is made of, and how."""


class Unresolved(Exception):
    """A column that no table of its scope is known to have. Not for users: the caller says what it means to them."""

    def __init__(self, column: str, why: str) -> None:
        super().__init__(f"column {column!r} {why}")


@dataclass(slots=True, kw_only=True)
class Walk:
    """One walk over a question whose names are qualified."""

    unknown: frozenset[str]
    """Flat names of tables whose columns nobody told."""
    scopes: Mapping[int, Scope]
    """By their query: a query in WITH that asks itself is met as a scope that knows nothing of its tables."""
    _columns: dict[int, dict[str, Made]] = field(default_factory=dict)
    _rows: dict[int, dict[Stored, set[str]]] = field(default_factory=dict)

    @classmethod
    def over(cls, root: Scope, *, unknown: frozenset[str]) -> Walk:
        return cls(unknown=unknown, scopes={id(scope.expression): scope for scope in root.traverse()})

    # -- the two questions ---------------------------------------------------------------------------------------------

    def columns(self, scope: Scope) -> dict[str, Made]:
        """Each column that a scope gives, in order, and what it is made of."""
        scope = self.scopes.get(id(scope.expression), scope)
        if id(scope) not in self._columns:
            made: dict[str, Made] = {}
            self._columns[id(scope)] = made  # a query that asks itself adds nothing to what its first arm says
            made.update(self._make(scope))
        return self._columns[id(scope)]

    def rows(self, scope: Scope) -> dict[Stored, set[str]]:
        """The stored columns that decide about a scope's rows, and how."""
        scope = self.scopes.get(id(scope.expression), scope)
        if id(scope) not in self._rows:
            found: dict[Stored, set[str]] = {}
            self._rows[id(scope)] = found
            for stored, kind in self._decisions(scope):
                found.setdefault(stored, set()).add(kind)
        return self._rows[id(scope)]

    # -- columns -------------------------------------------------------------------------------------------------------

    def _make(self, scope: Scope) -> dict[str, Made]:
        query = scope.expression
        if scope.set_operation_scopes:
            arms = [self.columns(arm) for arm in scope.set_operation_scopes]
            both = {name: dict(sources) for name, sources in arms[0].items()}
            for name, sources in zip(both, arms[1].values(), strict=False):  # by place: the first arm names them
                _add(both[name], sources)
            return both
        if not isinstance(query, exp.Select):
            inner = [self.columns(one) for one in scope.subquery_scopes]
            if isinstance(query, exp.Lateral) and inner:
                return inner[0]
            return self._generated(scope)
        found: dict[str, Made] = {}
        for projection in query.selects:
            made = self._used(projection, scope, IDENTITY)
            names = [one.name for one in projection.expressions] if isinstance(projection, exp.Aliases) else []
            for name in names or [projection.alias_or_name]:
                _add(found.setdefault(_free(name, found), {}), made)
        return found

    def _generated(self, scope: Scope) -> dict[str, Made]:
        """The columns of a lateral view, or of VALUES: each is made of all that the function is given."""
        alias = scope.expression.args.get("alias")
        made = self._used(scope.expression.this, scope, TRANSFORMATION) if scope.expression.this else {}
        return {one.name: dict(made) for one in (alias.columns if alias is not None else [])}

    def _used(self, node: object, scope: Scope, kind: str) -> Made:
        """All stored columns below an expression, and how each is used there."""
        made: Made = {}
        if isinstance(node, list):
            for one in node:
                _add(made, self._used(one, scope, kind))
        elif isinstance(node, exp.Column):
            return {stored: _through(inner, kind) for stored, inner in self._source(node, scope).items()}
        elif isinstance(node, exp.Query):
            inside = _scope_of(node, scope)
            for inner in self.columns(inside).values() if inside is not None else ():
                _add(made, {stored: _through(one, _at_least(kind, TRANSFORMATION)) for stored, one in inner.items()})
        elif isinstance(node, exp.Expr):
            for child, used in _parts(node, kind, scope):
                _add(made, self._used(child, scope, used))
        return made

    def _source(self, column: exp.Column, scope: Scope) -> Made:
        """What a column of a scope is made of in stored tables."""
        name, table = column.name, column.table
        if not table:
            return self._unqualified(name, scope)
        around: Scope | None = scope
        while around is not None and table not in around.sources:
            around = around.parent
        if around is None:
            raise Unresolved(f"{table}.{name}", "belongs to no table of the statement")
        source = around.sources[table]
        if isinstance(source, exp.Table):
            return {(source.name, name): IDENTITY} if isinstance(source.this, exp.Identifier) else {}
        given = self.columns(source)
        found = given.get(name) or next((made for one, made in given.items() if one.lower() == name.lower()), None)
        return found or {}

    def _unqualified(self, name: str, scope: Scope) -> Made:
        """A column that could not be given a table: one of the answer, or of the one table nobody knows."""
        answer = self._columns.get(id(scope), {})
        if name in answer:
            return answer[name]
        strangers = {
            source.name
            for source in scope.sources.values()
            if isinstance(source, exp.Table) and source.name in self.unknown
        }
        if len(strangers) == 1:
            return {(strangers.pop(), name): IDENTITY}
        raise Unresolved(name, "is in none of the tables, or in more than one")

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _decisions(self, scope: Scope) -> Iterator[tuple[Stored, str]]:
        self.columns(scope)
        query = scope.expression
        for below in (*scope.set_operation_scopes, *scope.subquery_scopes, *_sources(scope)):
            for stored, kinds in self.rows(below).items():
                for kind in kinds:
                    yield stored, kind
        clauses = [(query.args.get(name), kind) for name, kind in _CLAUSES.items()]
        clauses += [(join.args.get("on"), JOIN) for join in query.args.get("joins") or []]
        for clause, kind in clauses:
            if clause is not None:
                for stored in self._used(clause, scope, TRANSFORMATION):
                    yield stored, kind


def _sources(scope: Scope) -> list[Scope]:
    return [source for _, source in scope.selected_sources.values() if isinstance(source, Scope)] + list(
        scope.udtf_scopes
    )


def _scope_of(query: exp.Query, scope: Scope) -> Scope | None:
    inner = query.unnest()
    return next((one for one in scope.subquery_scopes if one.expression in (query, inner)), None)


def _parts(node: exp.Expr, kind: str, scope: Scope) -> Iterator[tuple[object, str]]:
    """What an expression is made of, and how each part is used in it."""
    if isinstance(node, exp.Alias | exp.Paren | exp.Subquery):
        yield node.this, kind
        return
    used = _at_least(kind, TRANSFORMATION)
    if isinstance(node, exp.Window):
        yield node.this, used
        named = node.alias.lower()
        windows = [one for one in scope.expression.args.get("windows") or [] if named and one.name.lower() == named]
        for one in (node, *windows):
            yield one.args.get("partition_by"), WINDOW
            yield one.args.get("order"), WINDOW
    elif isinstance(node, exp.Case):
        yield node.this, CONDITIONAL
        for branch in node.args.get("ifs") or []:
            yield from _branch(branch, used)
        yield node.args.get("default"), used
    elif isinstance(node, exp.If):
        yield from _branch(node, used)
    elif isinstance(node, exp.Filter):
        yield node.this, used
        yield node.expression, CONDITIONAL
    else:
        inside = _at_least(used, AGGREGATION) if isinstance(node, exp.AggFunc) else used
        for child in node.iter_expressions():
            yield child, inside


def _branch(node: exp.Expr, used: str) -> Iterator[tuple[object, str]]:
    yield node.this, CONDITIONAL
    yield node.args.get("true"), used
    yield node.args.get("false"), used


def _at_least(kind: str, other: str) -> str:
    """Inside of a condition or a window everything is that; elsewhere the stronger one."""
    return kind if kind in (CONDITIONAL, WINDOW) else _stronger(kind, other)


def _through(inner: str, outer: str) -> str:
    """How a column is used that is used one way below, and what becomes of it another way above."""
    indirect = next((one for one in (outer, inner) if one in (CONDITIONAL, WINDOW)), None)
    return indirect or _stronger(inner, outer)


def _stronger(one: str, other: str) -> str:
    return max(one, other, key=_STRENGTH.index)


def _add(made: Made, more: Mapping[Stored, str]) -> None:
    for stored, kind in more.items():
        made[stored] = _stronger(made[stored], kind) if stored in made else kind


def _free(name: str, taken: Mapping[str, Made]) -> str:
    """A question may give two columns of one name; nobody can ask for the second one by it."""
    return name if name not in taken else f"{name}\x00{len(taken)}"
