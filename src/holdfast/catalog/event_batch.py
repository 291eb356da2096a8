"""A batch of stored events as folded rows: what both runners of the fold are fed with (C16, C18, C19).

Most events are read by columns, many at once (`event_columns.py`); whatever is not plain is read one by one, and what
is no event to this release goes to the quarantine. Which way was gone makes no difference to the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from holdfast.catalog.event_columns import PLAIN_TYPES, NotPlain, plain_rows
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import EVENT_BYTES_MAX, UnknownEvent, decode_event
from holdfast.catalog.fold import fold_table
from holdfast.catalog.layout import ledger_layout
from holdfast.catalog.payload import Payload
from holdfast.catalog.tables import EVENT_ID, POSITION, state_table
from holdfast.catalog.watermark import Watermark
from holdfast.errors import BadInput

__all__ = ["EventBatch", "batch_of", "later"]

_FEW = 8
"""So few events are read one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """What some events say, of each key the newest."""

    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    """By the name of the table."""
    watermark: Watermark = field(default_factory=Watermark)
    """The highest place among them."""
    events: int = 0
    quarantined: int = 0


@dataclass(slots=True)
class _Gathered:
    domain: str
    rows: dict[str, list[pa.Table]] = field(default_factory=dict)
    slow: list[tuple[str, bytes]] = field(default_factory=list)
    watermark: Watermark = field(default_factory=Watermark)

    def add(self, table: str, rows: pa.Table) -> None:
        self.rows.setdefault(table, []).append(rows)

    def saw(self, position: int, event_id: str) -> None:
        self.watermark = later(self.watermark, Watermark(position=position, event_id=event_id))


def batch_of(stored: Iterable[tuple[str, bytes]], *, domain: str) -> EventBatch:
    """The events of one domain at some paths, as they are stored."""
    layout = ledger_layout(domain)
    found = _Gathered(domain)
    groups: dict[type[Payload], list[tuple[str, bytes, dict[str, Any], str]]] = {}
    events = 0
    for path, data in stored:
        events += 1
        event_id = layout.parse_event_key(path)
        if event_id is None:
            raise BadInput(f"{path!r} is no event of the {domain!r} ledger")
        parsed = _parsed(data)
        kind = None if parsed is None else _plain_kind(parsed)
        if parsed is None or kind is None or domain != kind.DOMAIN:
            found.slow.append((path, data))
        else:
            groups.setdefault(kind, []).append((path, data, parsed, event_id))
    for kind, group in groups.items():
        _by_columns(found, kind, group)
    told = [decode_event(data, path=path, layout=layout) for path, data in found.slow]
    for table, rows in rows_of(told, domain=domain).items():
        found.add(table, rows)
    for one in told:
        found.saw(one.position or 0, one.event_id)
    return EventBatch(
        rows={name: fold_table(state_table(name), tables) for name, tables in sorted(found.rows.items())},
        watermark=found.watermark,
        events=events,
        quarantined=sum(isinstance(one, UnknownEvent) for one in told),
    )


def later(one: Watermark, other: Watermark) -> Watermark:
    """The one that is further; by event id where positions are equal."""
    return max(one, other, key=lambda mark: (mark.position, mark.event_id or ""))


def _parsed(data: bytes) -> dict[str, Any] | None:
    if len(data) > EVENT_BYTES_MAX:
        return None
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return found if type(found) is dict else None


def _plain_kind(parsed: Mapping[str, Any]) -> type[Payload] | None:
    event_type, version = parsed.get("event_type"), parsed.get("event_version")
    return PLAIN_TYPES.get((event_type, version)) if type(event_type) is str and type(version) is int else None


def _by_columns(found: _Gathered, kind: type[Payload], group: Sequence[tuple[str, bytes, dict[str, Any], str]]) -> None:
    """All at once; or, where one of them is not plain, in halves until it stands alone."""
    if len(group) <= _FEW:
        found.slow += [(path, data) for path, data, _, _ in group]
        return
    try:
        table, rows = plain_rows(kind, [parsed for _, _, parsed, _ in group], [event_id for *_, event_id in group])
    except NotPlain:
        middle = len(group) // 2
        _by_columns(found, kind, group[:middle])
        _by_columns(found, kind, group[middle:])
        return
    found.add(table, rows)
    positions = rows.column(POSITION).to_numpy()
    last = positions.max()
    ids = rows.column(EVENT_ID).filter(pa.array(positions == last)).to_pylist()
    found.saw(int(last), max(ids))
