"""A ledger beside a plain dictionary: writers come, go, die, lose answers, retry and turn their clocks."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from holdfast.catalog import EventDraft, Ledger, Limits, Receipt, Workspace
from holdfast.errors import IdempotencyConflict, LedgerFull, StoreUnavailable
from holdfast.storage import MemoryStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from tests.catalog.auditing import audit_domain, publish_watermark, said, told

LIMITS = Limits(soft=4, hard=12)
FAULTS = [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO, Fault.CRASH_BEFORE, Fault.CRASH_AFTER]
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3"])
NAMES = st.sampled_from(["sales", "users", "items"])


class LedgerMachine(RuleBasedStateMachine):
    """C13, C14, C15, C25: what was acknowledged is in the ledger once, in order, and its key stands for it for ever."""

    writers = Bundle("writers")

    @initialize()
    def begin(self) -> None:
        self.root = MemoryStore()
        self.clean = Workspace(
            root=self.root, tenant="acme", name="prod", clock=VirtualClock(), randomness=SeededRandomness(1)
        )
        self.clean.initialize()
        self.faults: dict[int, Fault] = {}
        """Request of the coming append, counted from now → what happens to it."""
        self.asked = 0
        self.seeds = 1
        self.model: dict[str, tuple[str, str, int]] = {}
        """Key → (what it says, its event, its position) for all that was acknowledged."""
        self.folded = 0
        self.highest = 0

    def plan(self, operation: Operation) -> Fault:
        del operation
        self.asked += 1
        return self.faults.get(self.asked, Fault.PASS)

    @rule(target=writers, skew_s=st.sampled_from([0.0, -1e6, 1e6]))
    def open_a_writer(self, skew_s: float) -> tuple[Ledger, VirtualClock]:
        """A process of its own."""
        self.seeds += 1
        clock = VirtualClock()
        clock.advance(skew_s)
        workspace = Workspace(
            root=FaultyStore(self.root, self.plan),
            tenant="acme",
            name="prod",
            by=f"writer-{self.seeds}",
            clock=clock,
            randomness=SeededRandomness(self.seeds),
        )
        return workspace.ledger("catalog", limits=LIMITS), clock

    @rule(
        writer=writers,
        key=KEYS,
        name=NAMES,
        faults=st.dictionaries(st.integers(1, 8), st.sampled_from(FAULTS), max_size=2),
    )
    def append(self, writer: tuple[Ledger, VirtualClock], key: str | None, name: str, faults: dict[int, Fault]) -> None:
        """One append, whatever becomes of it."""
        draft = EventDraft(payload=said(name), idempotency_key=key)
        self.faults, self.asked = faults, 0
        try:
            receipt = writer[0].append(said(name), idempotency_key=key)
        except IdempotencyConflict:
            assert key is not None
            known = self.model.get(key)
            assert known is None or known[0] != name
        except LedgerFull as full:
            self.rejected(full.lag)
        except (StoreUnavailable, Crashed):
            assert faults, "the store always answered"
        else:
            self.acknowledged(draft.key, name, receipt)
        finally:
            self.faults = {}

    def rejected(self, lag: int) -> None:
        assert LIMITS.hard <= lag <= self.pending()

    @rule(writer=writers, keys=st.lists(KEYS, min_size=2, max_size=4))
    def append_some(self, writer: tuple[Ledger, VirtualClock], keys: list[str | None]) -> None:
        """A batch, in threads of its own."""
        drafts = [
            EventDraft(payload=said(f"b{key}"), idempotency_key=None if key is None else f"b{key}") for key in keys
        ]
        with suppress(LedgerFull):
            for draft, receipt in zip(drafts, writer[0].append_many(drafts), strict=True):
                self.acknowledged(draft.key, str(draft.payload.to_json()["namespace"]), receipt)

    def acknowledged(self, key: str, name: str, receipt: Receipt) -> None:
        known = self.model.setdefault(key, (name, receipt.event_id, receipt.position))
        assert known == (name, receipt.event_id, receipt.position)
        assert receipt.warning is None or receipt.warning.lag >= LIMITS.soft
        if not receipt.duplicate:
            assert receipt.position > self.highest
            self.highest = receipt.position

    @rule(writer=writers, seconds=st.sampled_from([-1e7, -1.0, 0.5, 2.0, 1e7]))
    def turn_a_clock(self, writer: tuple[Ledger, VirtualClock], seconds: float) -> None:
        writer[1].advance(seconds)

    @rule(behind=st.integers(0, 3))
    def fold(self, behind: int) -> None:
        """Publish that everything but the newest few is folded."""
        events = told(self.clean.store)
        if len(events) > behind:
            last = events[len(events) - 1 - behind]
            position = last["sequence_position"]
            assert isinstance(position, int)
            if position > self.folded:
                publish_watermark(self.clean, position, str(last["event_id"]))
                self.folded = position

    def pending(self) -> int:
        positions = [event["sequence_position"] for event in told(self.clean.store)]
        return max((position for position in positions if isinstance(position, int)), default=0) - self.folded

    @invariant()
    def what_was_acknowledged_is_there_once_and_in_order(self) -> None:
        if not hasattr(self, "clean"):
            return
        events = {str(event["event_id"]): event for event in told(self.clean.store)}
        for key, (name, event_id, position) in self.model.items():
            event = events[event_id]
            assert (event["idempotency_key"], event["sequence_position"]) == (key, position)
            assert event["payload"] == {"namespace": name}
        assert audit_domain(self.clean.store, "catalog") == []


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
