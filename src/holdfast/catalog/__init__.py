"""The workspace catalog: everything that was ever published, as events in a ledger and as domains folded from them."""

from holdfast.catalog.backpressure import LagWarning, Limits
from holdfast.catalog.events import EVENT_BYTES_MAX, Event, EventDraft, UnknownEvent, decode_event, payload_from_json
from holdfast.catalog.layout import LEDGER_DOMAINS, ledger_layout
from holdfast.catalog.ledger import Ledger, Receipt
from holdfast.catalog.ledger_read import LedgerLister, LedgerPage, LedgerReader
from holdfast.catalog.metrics import LedgerMetrics
from holdfast.catalog.payload import Payload
from holdfast.catalog.payloads import PAYLOAD_TYPES
from holdfast.catalog.watermark import EVENT_WATERMARK, POSITION_WATERMARK, Watermark, WatermarkReader
from holdfast.catalog.workspace import Workspace, open_workspace

__all__ = [
    "EVENT_BYTES_MAX",
    "EVENT_WATERMARK",
    "LEDGER_DOMAINS",
    "PAYLOAD_TYPES",
    "POSITION_WATERMARK",
    "Event",
    "EventDraft",
    "LagWarning",
    "Ledger",
    "LedgerLister",
    "LedgerMetrics",
    "LedgerPage",
    "LedgerReader",
    "Limits",
    "Payload",
    "Receipt",
    "UnknownEvent",
    "Watermark",
    "WatermarkReader",
    "Workspace",
    "decode_event",
    "ledger_layout",
    "open_workspace",
    "payload_from_json",
]
