"""The compactor's numbers in the text that Prometheus reads. No label holds anything that a caller has sent."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.service.compactor import DomainStatus
from holdfast.service.metrics import COUNTERS

__all__ = ["exposition"]

_GAUGES = {
    "waiting": "Notified events that wait to be folded.",
    "capacity": "How many may.",
    "position": "The highest position that is folded.",
    "pending_lag": "Events that are in the ledger and not folded.",
    "in_trouble": "1 if the newest fold of what was notified failed.",
}


def exposition(status: Mapping[str, DomainStatus], requests: Mapping[tuple[str, int], int]) -> str:
    """All of it, in a stable order."""
    lines: list[str] = []

    def family(name: str, kind: str, words: str, samples: Mapping[str, float]) -> None:
        if samples:
            lines.extend([f"# HELP {name} {words}", f"# TYPE {name} {kind}"])
            lines.extend(f"{name}{labels} {value:g}" for labels, value in samples.items())

    for name, words in _GAUGES.items():
        found = {_label(domain): value for domain, one in status.items() if (value := _gauge(one, name)) is not None}
        family(f"holdfast_compactor_{name}", "gauge", words, found)
    for name, words in COUNTERS.items():
        counts = {_label(domain): float(one.counts[name]) for domain, one in status.items()}
        family(f"holdfast_compactor_{name}_total", "counter", words, counts)
    answered = {f'{{route="{route}",status="{code}"}}': float(n) for (route, code), n in sorted(requests.items())}
    family("holdfast_compactor_requests_total", "counter", "Answers, by address and status.", answered)
    return "\n".join(lines) + "\n"


def _label(domain: str) -> str:
    return f'{{domain="{domain}"}}'


def _gauge(one: DomainStatus, name: str) -> float | None:
    if name == "in_trouble":
        return float(one.trouble is not None)
    value: int | None = getattr(one, name)
    return None if value is None else float(value)
