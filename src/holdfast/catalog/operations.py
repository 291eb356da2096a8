"""What people do with a catalog: register, change, rename and drop, each refused where it makes no sense (C16, C17).

    catalog = Catalog(workspace)
    catalog.create_namespace("sales")
    catalog.register_table("sales", "orders", columns=[Column(name="id", type="bigint")])

Every method returns once the change is visible to every reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson
import pyarrow as pa

from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.events import EventDraft
from holdfast.catalog.expected import Expected
from holdfast.catalog.group_commit import Applied, Change, Compact, GroupCommit
from holdfast.catalog.payload import Payload
from holdfast.catalog.reading import read_tables
from holdfast.catalog.state_files import StateFiles
from holdfast.catalog.workspace import Workspace
from holdfast.errors import Conflict, NotFound
from holdfast.storage.capabilities import Reader

__all__ = ["Catalog"]

_NAMESPACE_NEEDS = ("namespaces", "tables")
_TABLE_NEEDS = ("namespaces", "tables")


class Catalog:
    """The catalog domain of a workspace, for whoever changes it. Any number of threads may."""

    def __init__(self, workspace: Workspace, compact: Compact | None = None) -> None:
        """`compact` is how events are folded: in this process unless given, or by a compactor service."""
        self._workspace = workspace
        files = StateFiles(Reader(workspace.store))
        self._group = GroupCommit(workspace, "catalog", compact or self._compact_here, files=files)
        self._compactor = Compactor(workspace, "catalog", files=files)

    def _compact_here(self, paths: Sequence[str], ticket: str) -> Any:
        return self._compactor.compact(paths, ticket=ticket, told=self._group.told)

    # -- namespaces ---------------------------------------------------------------------------------------------------

    def create_namespace(self, namespace: str, *, key: str | None = None, **described: Any) -> Applied:
        """A new one. `described`: description, owner, properties."""

        def check(there: Expected) -> None:
            _absent(_namespace(there, namespace), f"namespace {namespace!r}")

        return self._apply(p.NamespaceCreated(namespace=namespace, **described), check, _NAMESPACE_NEEDS, key)

    def update_namespace(self, namespace: str, *, key: str | None = None, **described: Any) -> Applied:
        """All that is known of it from now on."""

        def check(there: Expected) -> None:
            _present(_namespace(there, namespace), f"namespace {namespace!r}")

        return self._apply(p.NamespaceUpdated(namespace=namespace, **described), check, _NAMESPACE_NEEDS, key)

    def delete_namespace(self, namespace: str, *, key: str | None = None) -> Applied:
        """One that has no tables."""

        def check(there: Expected) -> None:
            _present(_namespace(there, namespace), f"namespace {namespace!r}")
            inside = there.rows("tables", namespace=namespace)
            if len(inside):
                raise Conflict(
                    f"namespace {namespace!r} has {len(inside)} tables, such as {inside.column('table')[0].as_py()!r}; "
                    "drop or rename them first"
                )

        return self._apply(p.NamespaceDeleted(namespace=namespace), check, _NAMESPACE_NEEDS, key)

    # -- tables -------------------------------------------------------------------------------------------------------

    def register_table(self, namespace: str, table: str, *, key: str | None = None, **described: Any) -> Applied:
        """A new one. `described`: columns, kind, location, description, owner, tags, properties."""

        def check(there: Expected) -> None:
            _present(_namespace(there, namespace), f"namespace {namespace!r}")
            _absent(_table(there, namespace, table), f"table {namespace}.{table}")

        return self._apply(p.TableRegistered(namespace=namespace, table=table, **described), check, _TABLE_NEEDS, key)

    def update_table(self, namespace: str, table: str, *, key: str | None = None, **described: Any) -> Applied:
        """All that is known of it from now on."""

        def check(there: Expected) -> None:
            _present(_table(there, namespace, table), f"table {namespace}.{table}")

        return self._apply(p.TableUpdated(namespace=namespace, table=table, **described), check, _TABLE_NEEDS, key)

    def drop_table(self, namespace: str, table: str, *, key: str | None = None) -> Applied:
        def check(there: Expected) -> None:
            _present(_table(there, namespace, table), f"table {namespace}.{table}")

        return self._apply(p.TableDropped(namespace=namespace, table=table), check, _TABLE_NEEDS, key)

    def rename_table(
        self, namespace: str, table: str, *, to_namespace: str, to_table: str, key: str | None = None
    ) -> Applied:
        """The same table under another name. It is refused if the table was changed while this was on its way."""
        found = self._described(namespace, table)

        def check(there: Expected) -> None:
            row = _present(_table(there, namespace, table), f"table {namespace}.{table}")
            if _described_by(row) != found:
                raise Conflict(f"table {namespace}.{table} was changed just now; look at it, then rename it again")
            _present(_namespace(there, to_namespace), f"namespace {to_namespace!r}")
            _absent(_table(there, to_namespace, to_table), f"table {to_namespace}.{to_table}")

        said = p.TableRenamed(namespace=namespace, table=table, new_namespace=to_namespace, new_table=to_table, **found)
        return self._apply(said, check, _TABLE_NEEDS, key)

    def _described(self, namespace: str, table: str) -> dict[str, Any]:
        tables = read_tables(self._workspace, "catalog", ["tables"])
        there = Expected({name: [rows] for name, rows in tables.items()})
        return _described_by(_present(_table(there, namespace, table), f"table {namespace}.{table}"))

    def _apply(
        self, said: Payload, check: Callable[[Expected], None], needs: tuple[str, ...], key: str | None
    ) -> Applied:
        # Without a key the content would name the event, and a table that is registered, dropped and registered again,
        # just so, would be the first event once more. Here each call is a change of its own.
        own = key or f"change/{self._workspace.randomness.bits(96):024x}"
        return self._group.apply(Change(draft=EventDraft(payload=said, idempotency_key=own), check=check, needs=needs))


def _namespace(there: Expected, namespace: str) -> pa.Table:
    return there.rows("namespaces", namespace=namespace)


def _table(there: Expected, namespace: str, table: str) -> pa.Table:
    return there.rows("tables", namespace=namespace, table=table)


def _present(rows: pa.Table, what: str) -> pa.Table:
    if not len(rows):
        raise NotFound(f"there is no {what}; check the name")
    return rows


def _absent(rows: pa.Table, what: str) -> None:
    if len(rows):
        raise Conflict(f"{what} exists already; choose another name, or update it")


def _described_by(row: pa.Table) -> dict[str, Any]:
    """What a row of `tables` says about a table, as a payload says it."""
    (said,) = row.to_pylist()
    columns = tuple(p.Column(**{**column, "tags": orjson.loads(column["tags"])}) for column in said["columns"])
    texts: Mapping[str, Any] = {name: said[name] for name in ("kind", "location", "description", "owner")}
    maps = {name: orjson.loads(said[name]) for name in ("tags", "properties")}
    known = {one.name for one in fields(p.TableRenamed)}
    return {name: value for name, value in {**texts, **maps, "columns": columns}.items() if name in known}
