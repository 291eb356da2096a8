"""From a URL to a store.

Credentials and endpoints come from the clouds' own environment variables, never from the URL.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.clock import Clock
from holdfast.errors import BadInput
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import ObjectStore
from holdfast.storage.scope import scope

__all__ = ["open_store"]

_CLOUDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az"}
_HELP = "use file://, memory://, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or a plain path"


def open_store(url: str | os.PathLike[str], *, durable: bool = True, clock: Clock | None = None) -> ObjectStore:
    """The store at a URL or plain path. Nothing is read, written or connected to yet.

    `durable=False` leaves out the syncs of a local store; other stores have no such choice.
    """
    text = os.fspath(url)
    if not text:
        raise BadInput(f"an empty URL names no store: {_HELP}")
    if "://" not in text:
        return LocalStore(Path(text).expanduser(), durable, clock=clock)
    parts = urlsplit(text)
    if parts.username is not None or parts.password is not None:
        raise BadInput("a store URL must not hold credentials: set them in the cloud's own environment variables")
    if parts.query or parts.fragment:
        raise BadInput(f"a store URL has no query or fragment: {parts.scheme}://{parts.netloc}{parts.path}")
    if parts.scheme == "file":
        return _open_file(parts.netloc, unquote(parts.path), durable, clock)
    if parts.scheme == "memory":
        return _open_memory(parts.netloc, parts.path, clock)
    if parts.scheme in _CLOUDS:
        return _open_cloud(_CLOUDS[parts.scheme], parts.netloc, parts.path)
    raise BadInput(f"unknown kind of store {parts.scheme!r} in {text!r}: {_HELP}")


def _open_file(host: str, path: str, durable: bool, clock: Clock | None) -> ObjectStore:
    if host not in {"", "localhost"}:
        raise BadInput(f"file:// needs three slashes before an absolute path; {host!r} would be another machine")
    if not path.startswith("/"):
        raise BadInput("file:// needs an absolute path, as in file:///srv/holdfast")
    return LocalStore(path, durable, clock=clock)


def _open_memory(name: str, path: str, clock: Clock | None) -> ObjectStore:
    if not name and path.strip("/"):
        raise BadInput("memory:// needs a name before the first slash, as in memory://scratch")
    return scope(MemoryStore(name or None, clock=clock), path.strip("/"))


def _open_cloud(scheme: str, bucket: str, path: str) -> ObjectStore:
    if not bucket:
        raise BadInput(f"{scheme}:// needs a bucket, as in {scheme}://bucket/prefix")
    from holdfast.storage.cloud import CloudStore

    return scope(CloudStore(scheme=scheme, bucket=bucket), path.strip("/"))
