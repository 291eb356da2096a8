"""What a step's SQL says without running it: the tables it reads, the parameters it takes, the columns it gives.

Needs sqlglot, of the extra `catalog`, which is imported when the first statement is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast.catalog.column_lineage import DIALECT, table_inputs
from holdfast.errors import BadInput

if TYPE_CHECKING:
    import sqlglot.expressions as exp

__all__ = ["BadSql", "Query", "read_sql"]

_KEPT = 1024
_CLASS = re.compile(r" for <class '[^']*'>")


class BadSql(Exception):
    """Why a statement is none that a step can have, and on which of its lines (0: nobody knows). For this package."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a statement says of itself."""

    reads: Mapping[str, int]
    """Tables as they are written, in the order of the statement, and the line of each; not what WITH makes."""
    markers: Mapping[str, int]
    """Parameters that are written as `:name`, and the line of each."""
    columns: tuple[str, ...] | None
    """The columns it gives; None where a star or a function hides them."""


@lru_cache(maxsize=_KEPT)
def read_sql(sql: str) -> Query:
    """BadSql if it is not one query."""
    tree = _parsed(sql)
    try:
        names = table_inputs(sql)
    except BadInput as error:
        raise BadSql(str(error)) from None
    rows = _rows_of_tables(tree)
    return Query(reads={name: rows.get(name, 0) for name in names}, markers=_markers(tree, sql), columns=_columns(tree))


def _parsed(sql: str) -> exp.Query:
    try:
        import sqlglot
        import sqlglot.expressions as exp
        from sqlglot.errors import ParseError, TokenError
    except ImportError as error:
        raise BadInput(f"reading SQL needs {error.name}: pip install 'holdfast[catalog]'") from None

    try:
        trees = [tree for tree in sqlglot.parse(sql, read=DIALECT) if tree is not None]
    except ParseError as error:
        raise _told(error.errors[0]) from None
    except TokenError:
        raise BadSql("this SQL cannot be read: a quote or a comment is not closed") from None
    if len(trees) != 1:
        raise BadSql(f"this is {len(trees)} statements: a step is one query" if trees else "there is no SQL here")
    if not isinstance(trees[0], exp.Query):
        raise BadSql("this is not a query: a step is one SELECT, WITH … SELECT, VALUES or FROM … SELECT")
    if isinstance(trees[0], exp.Select) and not trees[0].selects:
        raise BadSql("this SQL selects nothing: name a column, or *")
    return trees[0]


def _told(error: Mapping[str, Any]) -> BadSql:
    """The parser's words, without its own tokens."""
    words = str(error.get("description") or "").partition(" but got <Token")[0].rstrip(".")
    words = _CLASS.sub("", words).replace("Invalid expression / Unexpected token", "unexpected").strip()
    near = str(error.get("highlight") or "").strip()
    return BadSql(f"this SQL cannot be read: {words[:1].lower()}{words[1:]} at {near!r}", int(error.get("line") or 0))


def _rows_of_tables(tree: exp.Query) -> dict[str, int]:
    import sqlglot.expressions as exp

    rows: dict[str, int] = {}
    for table in tree.find_all(exp.Table):
        line = table.this.meta.get("line") if isinstance(table.this, exp.Identifier) else None
        if line is not None:
            name = ".".join(part.name for part in table.parts)
            rows[name] = min(rows.get(name, line), line)
    return rows


def _markers(tree: exp.Query, sql: str) -> dict[str, int]:
    """The parser keeps no line for them: the first place with such a text is near enough."""
    import sqlglot.expressions as exp

    found = dict.fromkeys(str(one.this) for one in tree.find_all(exp.Placeholder) if one.this)
    rows = {}
    for name in found:
        at = re.search(rf"(?<!:):{re.escape(name)}\b", sql)
        rows[name] = sql.count("\n", 0, at.start()) + 1 if at else 0
    return rows


def _columns(tree: exp.Query) -> tuple[str, ...] | None:
    """Only if each is a column or has a name by AS."""
    import sqlglot.expressions as exp

    selects = tree.selects
    plain = all(isinstance(one, exp.Alias | exp.Column) and not one.is_star for one in selects)
    return tuple(one.alias_or_name for one in selects) if selects and plain else None
