"""A compactor that answers on a real socket, in this process, and workspaces for it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.catalog import Workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.fold import alive
from holdfast.catalog.payload import Payload
from holdfast.catalog.reading import read_tables
from holdfast.service.compactor import CompactorService
from holdfast.service.process import Listen, Server
from holdfast.service.tokens import Tokens
from holdfast.storage import LocalStore, ObjectStore

WAIT_MAX_S = 60.0
ULID = "01M7H8H6Z2G4GEWKD5CBMBR2J5"


class Answer(NamedTuple):
    status: int
    document: Any
    headers: Mapping[str, str]


def call(
    url: str,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str | None = None,
    content_type: str = "application/json",
) -> Answer:
    """One request as anybody could make it. Bytes are sent as they are."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=WAIT_MAX_S)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = content_type
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, body=data, headers=headers)
        response = connection.getresponse()
        text = response.read().decode()
        is_json = (response.getheader("content-type") or "").startswith("application/json")
        return Answer(response.status, json.loads(text) if is_json else text, dict(response.getheaders()))
    finally:
        connection.close()


@contextmanager
def serving(service: CompactorService, *, tokens: Tokens | None = None, listen: Listen | None = None) -> Iterator[str]:
    """The address of the service, for as long as the block lasts."""
    ready = threading.Event()
    server = Server(service, tokens=tokens, listen=listen, ready=lambda _: ready.set())
    thread = threading.Thread(target=server.serve_here, name="server")
    thread.start()
    try:
        assert ready.wait(WAIT_MAX_S)
        yield server.url
    finally:
        server.should_exit = True
        thread.join(WAIT_MAX_S)
        assert not thread.is_alive()


def until(said: Callable[[], bool]) -> None:
    """Wait for something that must come to pass."""
    pause = threading.Event()
    for _ in range(int(WAIT_MAX_S / 0.01)):
        if said():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to pass")


def workspace_on(root: ObjectStore, name: str = "prod", by: str = "tests") -> Workspace:
    return Workspace(root=root, tenant="acme", name=name, by=by)


def local_root(folder: object) -> LocalStore:
    """Files are not synced to disk: no test here cuts the power."""
    return LocalStore(str(folder), durable=False)


def edge(number: int) -> p.LineageEdgesAdded:
    return p.LineageEdgesAdded(edges=(p.Edge(source=f"s{number}", target=f"t{number}"),))


def table(name: str) -> p.TableRegistered:
    return p.TableRegistered(namespace="n", table=name)


def tell(workspace: Workspace, *said: Payload) -> list[str]:
    """The paths of these events."""
    return [workspace.ledger(one.DOMAIN).append(one).path for one in said]


def state_of(workspace: Workspace, domain: str) -> DomainState:
    return DomainState.of_manifest(domain, workspace.domain(domain).load_current())


def tables_of(workspace: Workspace) -> list[str]:
    rows = alive(read_tables(workspace, "catalog", ["tables"])["tables"])
    return [str(name) for name in rows.column("table").to_pylist()]


def edges_of(workspace: Workspace) -> set[str]:
    rows = alive(read_tables(workspace, "lineage", ["edges"])["edges"])
    return {str(name) for name in rows.column("source").to_pylist()}
