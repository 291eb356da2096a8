"""How many events may wait to be folded before the next one has to wait itself (C25).

`pending_lag = max(0, last written position - last folded position)`. At `hard` an append is rejected and told when to
come back; at `soft` it is accepted with a warning; below, it is accepted. Nothing is listed:

- The last folded position is in the domain's manifest (`watermark.py`).
- The last written one is between two numbers of the counter's record: what was given out, which a crash or a duplicate
  may have left unused, and what writers have reported. Only where the two lead to different answers are the newest
  events looked for by their ids. So unused positions never reject anybody: a crowd of failed appends cannot close the
  ledger for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.catalog.metrics import LedgerMetrics
from holdfast.catalog.watermark import Watermark, WatermarkReader
from holdfast.errors import BadInput, LedgerFull

__all__ = ["Admission", "Gate", "LagWarning", "Limits"]

_RETRY_FACTOR_MAX = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far the fold may be behind."""

    soft: int = 1_000
    hard: int = 10_000
    retry_after_s: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.soft <= self.hard:
            raise BadInput(f"limits need 1 <= soft <= hard, not {self.soft} and {self.hard}")
        if self.retry_after_s < 1:
            raise BadInput(f"retry_after_s should be at least 1, not {self.retry_after_s}")

    def retry_after(self, lag: int) -> int:
        """Seconds: the base at the limit, twice that at twice the limit, and so on; a minute with the defaults."""
        return self.retry_after_s * min(max(1, lag // self.hard), _RETRY_FACTOR_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagWarning:
    """The event was accepted, but the fold is behind. Slow down, and check that the compactor runs."""

    domain: str
    lag: int
    hard: int

    def __str__(self) -> str:
        return (
            f"{self.lag} events of the {self.domain!r} ledger wait to be folded; at {self.hard} appends are rejected: "
            "slow down, and check that the compactor runs"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """An append may go on."""

    watermark: Watermark
    written: int
    """The last written position, as far as anybody knows."""
    warning: LagWarning | None = None


class Gate:
    """Decides for one domain."""

    def __init__(self, domain: str, *, watermark: WatermarkReader, limits: Limits, metrics: LedgerMetrics) -> None:
        self._domain = domain
        self._watermark = watermark
        self._limits = limits
        self._metrics = metrics

    def admit(self, *, given: int, written: int, find_written: Callable[[], int], count: int = 1) -> Admission:
        """Let `count` appends in, or raise LedgerFull.

        `given` is the last position that was given out, `written` the last that is known to be written; `find_written`
        looks for a better answer between them, and is asked only where it matters.
        """
        mark = self._watermark.known()
        if given - mark.position >= self._limits.soft:
            mark = self._watermark.refresh()
        if self._level(given - mark.position) != self._level(written - mark.position):
            written = max(written, find_written())
        lag = max(0, written - mark.position)
        self._metrics.saw_lag(lag)
        level = self._level(lag)
        if level == 2:
            self._metrics.add("rejected", count)
            raise LedgerFull(self._domain, lag, self._limits.retry_after(lag))
        if level == 0:
            return Admission(watermark=mark, written=written)
        self._metrics.add("warned", count)
        warning = LagWarning(domain=self._domain, lag=lag, hard=self._limits.hard)
        return Admission(watermark=mark, written=written, warning=warning)

    def _level(self, lag: int) -> int:
        """0 accept, 1 accept with a warning, 2 reject."""
        return (lag >= self._limits.soft) + (lag >= self._limits.hard)
