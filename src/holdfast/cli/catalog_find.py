"""What a name in a workspace means: a namespace, a table or a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from holdfast.cli.words import shorten
from holdfast.errors import BadInput, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KINDS", "Found", "find_named", "mapping", "named", "rows_where"]

KINDS = ("namespace", "table", "dataset")
_WORDS = {"namespace": "namespace", "table": "table", "dataset": "data set"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing, and its row in the catalog."""

    kind: str
    row: Mapping[str, Any]


def rows_where(table: pa.Table, **wanted: object) -> pa.Table:
    """The rows that say this."""
    import pyarrow.compute as pc

    for name, value in wanted.items():
        table = table.filter(pc.equal(table.column(name), value))
    return table


def named(there: Mapping[str, pa.Table], name: str) -> list[Found]:
    """All that goes by a name. Names may have dots, so a table is looked for by how its whole name is spelled."""
    import pyarrow.compute as pc

    tables = there["tables"]
    spelled = pc.binary_join_element_wise(tables["namespace"], tables["table"], ".")
    found = {
        "namespace": rows_where(there["namespaces"], namespace=name),
        "table": tables.filter(pc.equal(spelled, name)),
        "dataset": rows_where(there["datasets"], dataset=name),
    }
    return [Found(kind=kind, row=row) for kind, rows in found.items() for row in rows.to_pylist()]


def find_named(there: Mapping[str, pa.Table], name: str, kinds: Sequence[str] = KINDS) -> Found:
    """The one thing of this name; NotFound, or BadInput where the name does not say which."""
    found = [one for one in named(there, name) if one.kind in kinds]
    if not found:
        what = " or ".join(_WORDS[kind] for kind in kinds)
        raise NotFound(f"there is no {what} {shorten(name, 100)!r}; `holdfast catalog ls` lists what there is")
    if len(found) > 1:
        several = list(dict.fromkeys(one.kind for one in found))
        if len(several) == 1:
            raise BadInput(f"{name!r} can be split into namespace and table in several ways; rename one of them")
        words = " and ".join(f"a {_WORDS[kind]}" for kind in several)
        raise BadInput(f"{name!r} is {words}; say which with --kind {' or '.join(several)}")
    return found[0]


def mapping(text: str | None) -> dict[str, str]:
    """Tags and properties, which are kept as JSON."""
    found = orjson.loads(text or "{}")
    return found if isinstance(found, dict) else {}
