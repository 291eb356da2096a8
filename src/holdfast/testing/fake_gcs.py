"""A small, faithful fake of Google Cloud Storage's XML API: what the cloud client uses, with its preconditions.

Faithful in what matters here: a generation per write that never repeats, `x-goog-if-generation-match` (0 is "must not
exist") decided under one lock, ETags made from the bytes, ranges, conditional reads, paged listings and multipart
uploads.
"""

from __future__ import annotations

import hashlib
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from holdfast.clock import Clock, SystemClock

__all__ = ["FakeGcs", "start_fake_gcs"]

_PAGE_MAX = 50
_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blob:
    data: bytes
    generation: int
    modified_at: datetime

    @property
    def e_tag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


@dataclass(slots=True, kw_only=True)
class _State:
    """All objects, under one lock."""

    clock: Clock
    lock: threading.Lock = field(default_factory=threading.Lock)
    blobs: dict[str, _Blob] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    generation: int = 1_700_000_000_000_000

    def put(self, path: str, data: bytes, match: str | None) -> _Blob | None:
        """Store the bytes if the generation matches; None says that it does not."""
        with self.lock:
            held = self.blobs.get(path)
            if match is not None and int(match) != (0 if held is None else held.generation):
                return None
            self.generation += 1
            blob = _Blob(data=data, generation=self.generation, modified_at=self.clock.now())
            self.blobs[path] = blob
            return blob


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Fifty racers connect at once; with the default of 5 some would wait for a retransmission.
    request_queue_size = 256

    def __init__(self, state: _State) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = state


class FakeGcs:
    """A running fake, in a thread of this process. Every bucket exists."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._server = _Server(_State(clock=clock or SystemClock()))
        self._thread = threading.Thread(target=self._server.serve_forever, name="fake-gcs", daemon=True)
        self._thread.start()

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that point the cloud's client here."""
        return {
            "GOOGLE_ALLOW_HTTP": "true",
            "GOOGLE_BASE_URL": f"http://127.0.0.1:{self._server.server_port}",
            # Any token will do: without one the client would ask a machine in the cloud for it.
            "GOOGLE_BEARER_TOKEN": "none-needed",
        }

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start_fake_gcs() -> FakeGcs:
    """Start the fake on a free loopback port."""
    return FakeGcs()


class _Handler(BaseHTTPRequestHandler):
    """One request. Method names are the base class's."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet: tests look at objects, not at logs."""

    def do_GET(self) -> None:
        path, query = self._target()
        if "/" not in path:
            self._list(path, query)
            return
        blob = self.server.state.blobs.get(path)
        if blob is None:
            self._answer(404)
        elif self.headers.get("If-None-Match") == blob.e_tag:
            self._answer(304, headers=_headers(blob))
        elif (wanted := self.headers.get("Range")) is not None:
            self._range(blob, wanted)
        else:
            self._answer(200, blob.data, _headers(blob))

    def do_HEAD(self) -> None:
        blob = self.server.state.blobs.get(self._target()[0])
        if blob is None:
            self._answer(404)
        else:
            self._answer(200, headers={**_headers(blob), "Content-Length": str(len(blob.data))})

    def do_PUT(self) -> None:
        path, query = self._target()
        data = self._body()
        state = self.server.state
        if "uploadId" in query:
            with state.lock:
                state.uploads[query["uploadId"]][int(query["partNumber"])] = data
            self._answer(200, headers={"ETag": f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'})
            return
        match = self.headers.get("x-goog-if-generation-match")
        if match is not None and not match.isdigit():
            self._answer(400)
            return
        blob = state.put(path, data, match)
        if blob is None:
            self._answer(412)
        else:
            self._answer(200, headers=_headers(blob))

    def do_POST(self) -> None:
        path, query = self._target()
        body = self._body()
        state = self.server.state
        bucket, _, key = path.partition("/")
        names = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key>"
        if "uploads" in query:
            with state.lock:
                state.generation += 1
                upload = f"upload-{state.generation}"
                state.uploads[upload] = {}
            self._xml("InitiateMultipartUploadResult", f"{names}<UploadId>{upload}</UploadId>")
            return
        with state.lock:
            parts = state.uploads.pop(query["uploadId"])
        listed = [int(found.text or "0") for found in ET.fromstring(body).iter() if _is(found, "PartNumber")]
        blob = state.put(path, b"".join(parts[number] for number in listed), None)
        # An upload without a condition always succeeds.
        e_tag = blob.e_tag if blob is not None else ""
        self._xml("CompleteMultipartUploadResult", f"{names}<ETag>{escape(e_tag)}</ETag>", blob)

    def do_DELETE(self) -> None:
        path, query = self._target()
        state = self.server.state
        with state.lock:
            if "uploadId" in query:
                found = state.uploads.pop(query["uploadId"], None) is not None
            else:
                found = state.blobs.pop(path, None) is not None
        self._answer(204 if found else 404)

    def _range(self, blob: _Blob, wanted: str) -> None:
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first)
        if start >= len(blob.data):
            self._answer(416, headers={"Content-Range": f"bytes */{len(blob.data)}"})
            return
        end = min(int(last), len(blob.data) - 1) if last else len(blob.data) - 1
        headers = {**_headers(blob), "Content-Range": f"bytes {start}-{end}/{len(blob.data)}"}
        self._answer(206, blob.data[start : end + 1], headers)

    def _list(self, bucket: str, query: Mapping[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        with self.server.state.lock:
            held = {path.partition("/")[2]: blob for path, blob in self.server.state.blobs.items() if _in(path, bucket)}
        entries: dict[str, str] = {}
        for key in sorted(held):
            if not key.startswith(prefix):
                continue
            folder, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if found:
                common = f"{prefix}{folder}{delimiter}"
                entries[common] = f"<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = _entry(key, held[key])
        names = sorted(name for name in entries if name > after)
        page, more = names[:_PAGE_MAX], len(names) > _PAGE_MAX
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        self._xml("ListBucketResult", "".join(entries[name] for name in page) + token)

    def _target(self) -> tuple[str, dict[str, str]]:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        return urllib.parse.unquote(parts.path).strip("/"), query

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _xml(self, root: str, inner: str, blob: _Blob | None = None) -> None:
        text = f'<?xml version="1.0" encoding="UTF-8"?><{root} xmlns="{_NAMESPACE}">{inner}</{root}>'
        self._answer(200, text.encode(), {} if blob is None else _headers(blob))

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        given = dict(headers or {})
        given.setdefault("Content-Length", str(len(body)))
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _headers(blob: _Blob) -> dict[str, str]:
    return {
        "ETag": blob.e_tag,
        "Last-Modified": format_datetime(blob.modified_at, usegmt=True),
        "x-goog-generation": str(blob.generation),
    }


def _entry(key: str, blob: _Blob) -> str:
    modified = blob.modified_at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    return (
        f"<Contents><Key>{escape(key)}</Key><Generation>{blob.generation}</Generation><LastModified>{modified}"
        f"</LastModified><ETag>{escape(blob.e_tag)}</ETag><Size>{len(blob.data)}</Size></Contents>"
    )


def _is(element: ET.Element, name: str) -> bool:
    return element.tag.rpartition("}")[2] == name


def _in(path: str, bucket: str) -> bool:
    return path.startswith(f"{bucket}/")
