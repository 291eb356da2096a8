"""The client: an answer that is lost, late or strange never becomes a wrong one."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.catalog import Workspace
from holdfast.catalog.operations import Catalog
from holdfast.catalog.remote_compactor import RemoteCompactor
from holdfast.errors import BadInput, Damaged, StoreUnavailable
from holdfast.service.compactor import CompactorService
from holdfast.service.process import Listen
from holdfast.testing.clock import VirtualClock
from holdfast.testing.servers import free_port
from tests.service.support import ULID, edge, edges_of, serving, state_of, table, tables_of, tell, until

Handle = Callable[[int, bytes], bytes]
"""What is answered to a request, by its number: nothing closes the connection."""


@contextmanager
def answering(handle: Handle) -> Iterator[str]:
    """A server that answers each request as it is told, on a connection of its own."""
    listening = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def run() -> None:
        number = 0
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                if done.is_set():
                    return
                connection.settimeout(30)
                request = _request(connection)
                number += bool(request)
                if answer := handle(number, request):
                    connection.sendall(answer)

    thread = threading.Thread(target=run)
    thread.start()
    port = listening.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        done.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()
        listening.close()


def _request(connection: socket.socket) -> bytes:
    """One whole request."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += (more := connection.recv(65536))
        if not more:
            return b""
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def said(status: int, content: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content)


def forwarded(url: str, request: bytes) -> bytes:
    """What the real service answers to these bytes."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port)) as connection:
        connection.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        answer = b""
        while more := connection.recv(65536):
            answer += more
        return answer


def test_an_answer_that_was_lost_is_asked_for_again_and_told_once(workspace: Workspace, url: str) -> None:
    """C17, C23: the change was published and its answer lost, twice; its caller gets it, and there is one event."""

    def handle(number: int, request: bytes) -> bytes:
        answer = forwarded(url, request)
        return b"" if number % 3 else answer

    clock = VirtualClock()
    with answering(handle) as flaky:
        catalog = Catalog(workspace, RemoteCompactor(flaky, clock=clock))
        assert catalog.create_namespace("n").compaction.snapshot_version == 1
        assert catalog.register_table("n", "a").compaction.snapshot_version == 2
    assert tables_of(workspace) == ["a"]
    assert workspace.domain("catalog").verify() == []


def test_an_answer_that_is_cut_short_is_asked_for_again(workspace: Workspace, url: str) -> None:
    """C17: half of a document is none."""
    paths = tell(workspace, table("a"))
    with answering(lambda number, request: forwarded(url, request)[: -10 if number < 3 else None]) as flaky:
        done = RemoteCompactor(flaky, clock=VirtualClock()).compact(paths)
    assert (done.snapshot_version, done.events) == (1, 1)


def test_nobody_at_the_address_is_told_with_what_to_do() -> None:
    """C17: after a few attempts, each a little later than the one before."""
    clock = VirtualClock()
    before = clock.now()
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable, match=r"does not answer \(.*refused.*check its address.*safe"):
        RemoteCompactor(address, clock=clock).compact([f"ledger/catalog/{ULID}.json"])
    assert 0.5 < (clock.now() - before).total_seconds() < 5


@pytest.mark.parametrize(
    "answer, error, words",
    [
        (said(200, b"{}"), StoreUnavailable, "cannot be read"),
        (said(200, b"<p>hi</p>"), StoreUnavailable, "cannot be read"),
        (said(200, b"{}")[:-1], StoreUnavailable, "does not answer"),
        (said(200, b" " * (2 << 20)), StoreUnavailable, "does not answer"),
        (said(503, b"busy"), StoreUnavailable, "no answer of a compactor"),
        (said(302, b""), StoreUnavailable, "check the address"),
        (said(500, b'{"error":"Damaged"}'), StoreUnavailable, "no answer of a compactor"),
        (said(500, b'{"error":"Damaged","message":"x"}'), Damaged, "^x$"),
        (said(500, b'{"error":"annotations","message":"x"}'), StoreUnavailable, "failed: x"),
        (said(500, b'{"error":"CorruptRecord","message":"x","arguments":[1,2,3]}'), StoreUnavailable, "failed: x"),
        (b"SSH-2.0-OpenSSH\r\n", StoreUnavailable, "does not answer"),
    ],
    ids=lambda one: str(getattr(one, "__name__", one))[:60],
)
def test_what_is_no_answer_of_a_compactor_is_never_taken_for_one(
    answer: bytes, error: type[Exception], words: str
) -> None:
    """C17: a proxy's page, another server, a document that is cut or names what is no error of ours."""
    with answering(lambda *_: answer) as strange, pytest.raises(error, match=words):
        RemoteCompactor(strange, clock=VirtualClock()).compact([f"ledger/catalog/{ULID}.json"])


def test_a_connection_is_kept_and_one_that_was_closed_is_opened_again(workspace: Workspace) -> None:
    """C17: many calls, few connections; a service that was restarted is found again without an error."""
    port = free_port()
    remote = RemoteCompactor(f"http://127.0.0.1:{port}", clock=VirtualClock())
    opened = []
    connect = http.client.HTTPConnection.connect

    def counted(connection: http.client.HTTPConnection) -> None:
        opened.append(connection)
        connect(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "connect", counted)
        for number in range(2):
            with serving(CompactorService(workspace), listen=Listen(port=port)):
                for turn in range(3):
                    remote.compact(tell(workspace, table(f"t{number}-{turn}")))
    assert len(opened) == 2
    assert len(tables_of(workspace)) == 6
    remote.close()


@pytest.mark.parametrize(
    "address",
    ["compactor:8765", "ftp://x", "http://", "http://x:port", "http://x:99999", "http://x/?q=1", "http://x#y"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """C17: before anything is sent."""
    with pytest.raises(BadInput, match="no address of a compactor"):
        RemoteCompactor(address)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    """C17: addresses are shown in errors; tokens are not."""
    with pytest.raises(BadInput, match="give a token instead") as raised:
        RemoteCompactor("http://user:secret@127.0.0.1:1")
    assert "secret" not in str(raised.value)
    with pytest.raises(BadInput, match="characters that no token has") as raised:
        RemoteCompactor("http://127.0.0.1:1", token="secret\r\nX-Evil: 1").compact([])
    assert "secret" not in str(raised.value)


def test_a_service_that_stops_answers_what_was_begun_and_folds_what_waits(workspace: Workspace) -> None:
    """C18: nothing that was accepted before is lost by a stop."""
    paths = tell(workspace, *(edge(number) for number in range(20)))
    service = CompactorService(workspace)
    with serving(service) as url:
        for path in paths:
            RemoteCompactor(url).notify("lineage", [path])
    assert len(edges_of(workspace)) == 20
    with pytest.raises(StoreUnavailable, match="stops"):
        service.notify("lineage", paths)
    with pytest.raises(StoreUnavailable, match="cannot take this now"):
        service.compact("lineage", paths)


def test_what_cannot_be_folded_is_left_by_a_stop_and_folded_by_the_next(workspace: Workspace) -> None:
    """C18: a stop does not wait for a lock that somebody holds; what was left is told again by anti-entropy."""
    paths = tell(workspace, edge(1))
    service = CompactorService(workspace)
    service.start()
    with workspace.domain("lineage").lock():
        service.notify("lineage", paths)
        until(lambda: service.status()["lineage"].counts["conflicts"] > 0)
        assert service.stop() == 1
    with serving(CompactorService(workspace)) as url:
        RemoteCompactor(url).notify("lineage", paths)
        until(lambda: state_of(workspace, "lineage").snapshot_version == 1)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody has signed, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return paths


def test_tls_is_spoken_and_certificates_are_checked(workspace: Workspace, certificate: tuple[Path, Path]) -> None:
    """C17: with a certificate that is trusted all works; with one that is not, nothing is sent."""
    cert, key = certificate
    paths = tell(workspace, table("a"))
    with serving(CompactorService(workspace), listen=Listen(port=0, certificate=cert, key=key)) as url:
        assert url.startswith("https://")
        with pytest.raises(StoreUnavailable, match="certificate"):
            RemoteCompactor(url, clock=VirtualClock()).compact(paths)
        assert workspace.domain("catalog").current() is None
        context = ssl.create_default_context(cafile=str(cert))
        remote = RemoteCompactor(url, context=context, clock=VirtualClock())
        assert remote.compact(paths).published
        remote.close()
    assert tables_of(workspace) == ["a"]
