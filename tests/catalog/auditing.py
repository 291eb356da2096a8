"""The rules of a ledger, looked at on the stored bytes, without the code that keeps them. And events to append."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import orjson

from holdfast.catalog import LEDGER_DOMAINS, Workspace
from holdfast.catalog.payloads import NamespaceCreated
from holdfast.chain import Committed, ManifestDraft
from holdfast.storage import ObjectStore


def said(name: str, description: str = "") -> NamespaceCreated:
    """A small event."""
    return NamespaceCreated(namespace=name, description=description)


def keys_below(store: ObjectStore, prefix: str) -> list[str]:
    return [info.key for page in store.list(prefix) for info in page]


def told(store: ObjectStore, domain: str = "catalog") -> list[dict[str, object]]:
    """Every event of a ledger, in the order of its files."""
    return [orjson.loads(store.get(key).data) for key in sorted(keys_below(store, f"ledger/{domain}"))]


def audit(store: ObjectStore) -> list[str]:
    """Every broken rule of every ledger of a workspace."""
    return [problem for domain in LEDGER_DOMAINS for problem in audit_domain(store, domain)]


def audit_domain(store: ObjectStore, domain: str) -> list[str]:
    problems: list[str] = []
    keys = sorted(keys_below(store, f"ledger/{domain}"))
    claims = {key: store.get(key).data for key in keys_below(store, f"ledger/claims/{domain}")}
    events = {key: store.get(key).data for key in keys}
    decoded = {key: orjson.loads(data) for key, data in events.items()}
    for key, event in decoded.items():
        if key != f"ledger/{domain}/{event['event_id']}.json":
            problems.append(f"{key} says that it is {event['event_id']}")
        claim = f"ledger/claims/{domain}/{hashlib.sha256(event['idempotency_key'].encode()).hexdigest()}.json"
        if claims.get(claim) != events[key]:
            problems.append(f"{key} is not what its claim {claim} holds")
    positions = [decoded[key]["sequence_position"] for key in keys]
    problems += [f"position {second} comes after {first}" for first, second in pairwise(positions) if second <= first]
    claimed = [orjson.loads(data) for data in claims.values()]
    for name in ("sequence_position", "event_id"):
        if len({claim[name] for claim in claimed}) < len(claimed):
            problems.append(f"two claims have the same {name}")
    counter = orjson.loads(store.get(f"locks/{domain}.positions.json").data)
    problems += [f"{claim['event_id']} is above the counter" for claim in claimed if not _is_below(claim, counter)]
    return problems


def _is_below(claim: dict[str, object], counter: dict[str, object]) -> bool:
    position, following = claim["sequence_position"], counter["next"]
    assert isinstance(position, int)
    assert isinstance(following, int)
    return position < following and str(claim["event_id"]) <= str(counter["last_id"])


def publish_watermark(
    workspace: Workspace, position: int, event_id: str | None = None, *, domain: str = "catalog"
) -> None:
    """What a compactor does at the end: publish a manifest that says how far it has folded."""
    chain = workspace.domain(domain)
    payload: dict[str, object] = {"position_watermark": position}
    if event_id is not None:
        payload["watermark_event_id"] = event_id
    with chain.lock(operation="compact") as guard:
        run = chain.begin_run()
        outcome = chain.publish(ManifestDraft(payload=payload), run=run, permit=chain.permit(guard))
    assert isinstance(outcome, Committed), outcome
