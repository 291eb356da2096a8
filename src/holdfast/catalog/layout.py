"""Where things of a workspace are: the only module of the catalog that spells or parses a key (C1).

    {root}/{tenant}/{workspace}/
        ledger/{domain}/{ULID}.json            events, written once (C12)
        ledger/claims/{domain}/{SHA-256}.json  who said this first: the same bytes as the event (C13)
        locks/{domain}.positions.json          the counter of a domain's ledger (C14)
        locks/runs/{run}.json                  who works on a run of a pipeline (C32)
        locks/, manifests/, state/, l0/        the domain chains, see `holdfast.chain.layout`
        manifests/anti-entropy/{domain}.json   how far the ledger was looked through for what was missed (C18)
        manifests/{domain}.compactor.lock.json the lock of a compactor that nobody lends one
        datasets/{name}/                       key-value and graph chains

Keys here are relative to the workspace; `workspace_prefix` is what puts it below the root.

Older forms are superseded, and no name of a tenant can spell them. They are only read, by `migrate.py`:

    {root}/tenant={tenant}/
        _catalog/                              manifests/, state/ and l0/, as in a workspace; a tenant had only one
        _events/{domain}/{ULID}.json           its ledger, without claims
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from holdfast.chain.ids import is_ulid
from holdfast.chain.layout import Layout, domain_layout, orchestration_layout
from holdfast.errors import BadInput

__all__ = [
    "DATASETS_PREFIX",
    "LEDGER_DOMAINS",
    "LedgerLayout",
    "SupersededLedger",
    "check_name",
    "compactor_lock_key",
    "cursor_key",
    "dataset_prefix",
    "ledger_layout",
    "parse_dataset_url",
    "run_lock_key",
    "superseded_prefixes",
    "workspace_prefix",
]

LEDGER_DOMAINS = ("catalog", "lineage", "executions", "orchestration")
"""The domains that are told by events. `search` is not: it is built again from what the catalog says."""
DATASETS_PREFIX = "datasets"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DATASET = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_LEDGER, _CLAIMS, _LOCKS, _MANIFESTS = "ledger", "claims", "locks", "manifests"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLayout:
    """The keys of one domain's ledger."""

    domain: str
    chain: Layout
    """Where the domain's state is published: it says how far the ledger is folded."""

    @property
    def event_prefix(self) -> str:
        return f"{_LEDGER}/{self.domain}"

    def event_key(self, event_id: str) -> str:
        """Where the event of this id is."""
        if not is_ulid(event_id):
            raise BadInput(f"{event_id!r} is not an event id; it is a ULID of 26 characters")
        return f"{self.event_prefix}/{event_id}.json"

    def parse_event_key(self, key: str) -> str | None:
        """The event's id; None for a key that is no event of this ledger: another spelling of one is none either."""
        event_id = key.removeprefix(f"{self.event_prefix}/").removesuffix(".json")
        return event_id if key == f"{self.event_prefix}/{event_id}.json" and is_ulid(event_id) else None

    def is_in_ledger(self, key: str) -> bool:
        """Whether a key lies where this domain's events are, whatever it is."""
        return key.startswith(f"{self.event_prefix}/")

    @property
    def claim_prefix(self) -> str:
        return f"{_LEDGER}/{_CLAIMS}/{self.domain}"

    def claim_key(self, idempotency_key: str) -> str:
        """Where whoever appends with this idempotency key meets whoever did before, whatever characters it has."""
        return f"{self.claim_prefix}/{hashlib.sha256(idempotency_key.encode()).hexdigest()}.json"

    @property
    def positions_key(self) -> str:
        """The counter. It is below `locks/` because it is swapped, and nothing in the ledger ever is."""
        return f"{_LOCKS}/{self.domain}.positions.json"


def ledger_layout(domain: str) -> LedgerLayout:
    """The ledger of a domain."""
    if domain not in LEDGER_DOMAINS:
        raise BadInput(f"{domain!r} has no ledger; the domains with one are {', '.join(LEDGER_DOMAINS)}")
    chain = orchestration_layout() if domain == "orchestration" else domain_layout(domain)
    return LedgerLayout(domain=domain, chain=chain)


def cursor_key(domain: str) -> str:
    """How far anti-entropy has looked through a domain's ledger. Below `manifests/`, which the compactor may swap."""
    return f"{_MANIFESTS}/anti-entropy/{ledger_layout(domain).domain}.json"


def compactor_lock_key(domain: str) -> str:
    """The lock of a compactor that folds what it was notified of. It may write no lock of the API's (C8)."""
    return f"{_MANIFESTS}/{ledger_layout(domain).domain}.compactor.lock.json"


def check_name(name: str, what: str) -> str:
    """The name of a tenant or a workspace. It becomes a folder, and must be one on every store and file system."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{what} name {name!r}: use 1 to 63 lower-case letters, digits, _ or -, starting with a letter or digit"
        )
    return name


def workspace_prefix(tenant: str, workspace: str) -> str:
    """The folder of a workspace below the root."""
    return f"{check_name(tenant, 'tenant')}/{check_name(workspace, 'workspace')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededLedger(LedgerLayout):
    """A ledger as it lies below `tenant={tenant}/_events/`."""

    @property
    def event_prefix(self) -> str:
        return self.domain

    @property
    def claim_prefix(self) -> str:
        return f"{_CLAIMS}/{self.domain}"


def superseded_prefixes(tenant: str) -> tuple[str, str]:
    """Where a tenant's catalog and its events lay before there were workspaces."""
    folder = f"tenant={check_name(tenant, 'tenant')}"
    return f"{folder}/_catalog", f"{folder}/_events"


def dataset_prefix(name: str) -> str:
    """The folder of a data set inside its workspace."""
    if not _DATASET.fullmatch(name):
        raise BadInput(
            f"data set name {name!r}: use 1 to 128 lower-case letters, digits, . _ or -, starting with a letter or "
            "digit"
        )
    return f"{DATASETS_PREFIX}/{name}"


def run_lock_key(run: str) -> str:
    """The lock of a run of a pipeline: one runner at a time goes on with it."""
    if not _RUN.fullmatch(run):
        raise BadInput(f"run {run!r}: use 1 to 100 letters, digits, . _ or -, starting with a letter or digit")
    return f"{_LOCKS}/runs/{run}.json"


def parse_dataset_url(url: str) -> tuple[str, str, str, str] | None:
    """Root, tenant, workspace and name of the data set that lies at a URL; None where none of a workspace does."""
    parts = url.rsplit("/", 4)
    if len(parts) < 5 or parts[3] != DATASETS_PREFIX or not parts[0] or parts[0].endswith(("/", ":")):
        return None
    root, tenant, workspace, _, name = parts
    if not (_NAME.fullmatch(tenant) and _NAME.fullmatch(workspace) and _DATASET.fullmatch(name)):
        return None
    return root, tenant, workspace, name
