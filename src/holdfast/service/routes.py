"""The addresses of the compactor.

    POST /compact   {"domain", "paths", "ticket"?}   fold now: 200, and what became visible
    POST /notify    {"domain", "paths", "cursor"?}   fold soon: 202, or 429 if there is no room
    GET  /cursor/D                                   how far anti-entropy has looked through D's ledger
    GET  /metrics                                    numbers for Prometheus
    GET  /health                                     200 while it serves; no token needed

What a caller sends is checked by hand and bounded before it is read. A ticket is never repeated, neither in an answer
nor in a log line: whoever has it can publish.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from holdfast.catalog.compactor import Compaction
from holdfast.errors import BadInput, HoldfastError, LimitReached
from holdfast.service.answers import document_of, retry_after_of, status_of
from holdfast.service.compactor import CompactorService
from holdfast.service.exposition import exposition
from holdfast.service.gate import Gatekeeper, Requests
from holdfast.service.tokens import Tokens

__all__ = ["make_app"]

BODY_BYTES_MAX = 1 << 20
"""As many paths as one call may have fit twice."""
BODY_WAIT_S = 30.0

_log = logging.getLogger("holdfast.compactor")


def make_app(
    service: CompactorService, tokens: Tokens | None, *, stopped: Callable[[int], None] = lambda _: None
) -> Gatekeeper:
    """The application; it starts and stops the service. Without tokens everybody is let in."""
    requests = Requests()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        stopped(await run_in_threadpool(service.stop))

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/compact")
    async def compact(request: Request) -> Response:
        body = await _body(request, service, {"ticket"})
        ticket = _text(body, "ticket")
        done = await asyncio.wrap_future(service.compact(_domain(body), _paths(body), ticket=ticket))
        return JSONResponse(compaction_document(_domain(body), done))

    @app.post("/notify")
    async def notify(request: Request) -> Response:
        body = await _body(request, service, {"cursor"})
        domain, cursor = _domain(body), _cursor(body)
        offered = service.notify(domain, _paths(body), cursor=cursor)
        told = {"accepted": offered.accepted, "known": offered.known, "waiting": offered.waiting}
        return JSONResponse({"domain": domain, **told}, status_code=202)

    @app.get("/cursor/{domain}")
    async def cursor(domain: str) -> Response:
        found = await run_in_threadpool(service.cursor, domain)
        return JSONResponse({"domain": domain, "event_id": None if found is None else found.event_id})

    @app.get("/metrics")
    async def metrics() -> Response:
        status = await run_in_threadpool(service.status)
        return PlainTextResponse(exposition(status, requests.snapshot()), media_type="text/plain; version=0.0.4")

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "degraded" if service.troubles() else "ok"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _failure(request, error)

    @app.exception_handler(HoldfastError)
    async def refused(request: Request, error: Exception) -> Response:
        return _failure(request, error)

    @app.exception_handler(HTTPException)
    async def lost(request: Request, error: Exception) -> Response:
        return _failure(request, error)

    return Gatekeeper(app, tokens=tokens, requests=requests)


def compaction_document(domain: str, done: Compaction) -> dict[str, object]:
    """What a compaction did, as the client reads it."""
    return {
        "domain": domain,
        "published": done.published,
        "manifest_version": done.manifest_id,
        "commit_ulid": done.commit_ulid,
        "snapshot_version": done.snapshot_version,
        "watermark": {"position": done.watermark.position, "event_id": done.watermark.event_id},
        "events": done.events,
        "quarantined": done.quarantined,
        "merged": list(done.merged),
    }


def _failure(request: Request, error: Exception) -> Response:
    where = f"{request.method} {request.url.path}"
    if isinstance(error, _Malformed):
        return JSONResponse({"error": "BadBody", "message": error.detail}, status_code=error.status_code)
    if isinstance(error, HTTPException):
        words = (
            f"there is no {where}; the addresses are POST /compact and /notify, GET /cursor/DOMAIN, /metrics, /health"
        )
        return JSONResponse(
            {"error": "NoSuchAddress", "message": words}, status_code=error.status_code, headers=error.headers
        )
    status, document = status_of(error), document_of(error)
    if status >= 500:
        _log.error("%s: %d %s: %s", where, status, document["error"], document["message"])
    else:
        _log.info("%s: %d %s: %s", where, status, document["error"], document["message"])
    wait = retry_after_of(error)
    return JSONResponse(document, status_code=status, headers=None if wait is None else {"Retry-After": str(wait)})


# -- what a caller has sent -------------------------------------------------------------------------------------------


class _Malformed(HTTPException):
    """The body is not what the address takes."""


async def _body(request: Request, service: CompactorService, more: set[str]) -> dict[str, Any]:
    """The body, a JSON object of known fields, of this workspace."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a web page cannot send this to another site without asking that first
        raise _Malformed(415, "the body should be sent as application/json")
    try:
        data = await asyncio.wait_for(_bytes(request), BODY_WAIT_S)
    except TimeoutError:
        raise _Malformed(408, f"the body did not arrive in {BODY_WAIT_S:g} s; send it again") from None
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise _Malformed(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise _Malformed(400, "the body should be a JSON object")
    unknown = sorted(set(found) - {"domain", "paths", "tenant", "workspace"} - more)
    if unknown:
        raise BadInput(f"the field {unknown[0]!r} is not known here; check how it is spelled")
    service.require(tenant=_text(found, "tenant"), workspace=_text(found, "workspace"))
    return found


async def _bytes(request: Request) -> bytes:
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdigit() and int(said) > BODY_BYTES_MAX:
        raise LimitReached(f"a body of {int(said)} bytes is larger than {BODY_BYTES_MAX}; tell fewer paths at a time")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise LimitReached(f"the body is larger than {BODY_BYTES_MAX} bytes; tell fewer paths at a time")
    return bytes(data)


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"the field {name!r} should be text, not {type(value).__name__}")
    return value


def _domain(body: dict[str, Any]) -> str:
    domain = _text(body, "domain")
    if domain is None:
        raise BadInput("the field 'domain' is missing; give catalog, lineage or executions")
    return domain


def _paths(body: dict[str, Any]) -> list[str]:
    paths = body.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadInput("the field 'paths' should be a list of text, the paths of events")
    return paths


def _cursor(body: dict[str, Any]) -> str | None:
    """The cursor: an event id, as text or as an object that names its domain too."""
    value = body.get("cursor")
    if isinstance(value, dict):
        if set(value) - {"domain", "event_id"} or value.get("domain", body.get("domain")) != body.get("domain"):
            raise BadInput("the field 'cursor' should hold an event_id of the same domain")
        value = value.get("event_id")
    if value is not None and not isinstance(value, str):
        raise BadInput("the field 'cursor' should hold an event_id, which is text")
    return value
