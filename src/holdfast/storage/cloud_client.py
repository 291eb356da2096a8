"""Making the cloud client, and translating what it says. The only module that loads the client library, and lazily."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.errors import (
    AlreadyExists,
    BadInput,
    HoldfastError,
    InvalidKey,
    ObjectNotFound,
    StoreDenied,
    StoreUnavailable,
)
from holdfast.storage.objects import Version

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Client: TypeAlias = S3Store | GCSStore | AzureStore

__all__ = ["CloudLimits", "NotModified", "Precondition", "Translated", "connect", "e_tag_of", "parts_of", "quoted"]

_QUOTED = re.compile(r'"[\x21\x23-\x7e]{1,256}"')

# What the client says of a refused list or delete: it has exceptions of their own for other requests only.
_REFUSED = re.compile(r"Server returned non-2xx status code: 40[13]\b")

_VARIABLES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_FLAGS = ("allow_http", "allow_invalid_certificates")
_TEXTS = ("proxy_url", "proxy_ca_certificate", "proxy_excludes")

# The client's threads belong to the process that first used it, whatever store that was for.
_user_pids: list[int] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudLimits:
    """How long the client goes on. A call ends after at most `retry_window_s + request_timeout_s`."""

    connect_timeout_s: float = 5.0
    request_timeout_s: float = 120.0
    retries_max: int = 4
    retry_window_s: float = 60.0
    retry_pause_max_s: float = 5.0


class NotModified(HoldfastError):
    """The object is still at the known version. Never leaves the store."""


class Precondition(HoldfastError):
    """A condition did not hold. Never leaves the store: there it is a conflict."""


def connect(scheme: str, bucket: str, limits: CloudLimits) -> Client:
    """A client for a bucket, configured by the cloud's own environment variables. Does not touch the network."""
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    options: dict[str, Any] = {
        "client_options": {
            **_client_settings(_VARIABLES[scheme]),
            "connect_timeout": timedelta(seconds=limits.connect_timeout_s),
            "timeout": timedelta(seconds=limits.request_timeout_s),
        },
        "retry_config": {
            "max_retries": limits.retries_max,
            "retry_timeout": timedelta(seconds=limits.retry_window_s),
            "backoff": {"max_backoff": timedelta(seconds=limits.retry_pause_max_s)},
        },
    }
    try:
        if scheme == "s3":
            return S3Store(bucket, **options)
        if scheme == "gs":
            return GCSStore(bucket, **options)
        return AzureStore(bucket, **options)
    except (BaseError, ValueError) as error:
        raise BadInput(f"{scheme}://{bucket} cannot be opened: {_first_line(error)}") from error


def _client_settings(prefix: str) -> dict[str, str | bool]:
    """The client's own settings from the environment: it reads them by itself only while no option is given in code."""
    flags = {name: os.environ.get(f"{prefix}_{name.upper()}", "") for name in _FLAGS}
    texts = {name: os.environ.get(f"{prefix}_{name.upper()}", "") for name in _TEXTS}
    return {
        **{name: value.strip().lower() in {"1", "true", "yes", "on"} for name, value in flags.items() if value},
        **{name: value for name, value in texts.items() if value},
    }


def refuse_fork() -> None:
    """Say so instead of hanging: the client's threads do not exist in a forked child."""
    pid = os.getpid()
    if not _user_pids:
        _user_pids.append(pid)
    elif _user_pids[0] != pid:
        raise StoreUnavailable("the cloud client was used before this process was forked: start processes with 'spawn'")


class Translated:
    """Turns the client's exceptions into ours.

    A class, because a generator would cost more than a warm request's share.
    """

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, HoldfastError):
            return
        from obstore import exceptions

        if isinstance(error, (exceptions.BaseError, OSError)):
            raise _translation(exceptions, error, self._key) from error


def _translation(exceptions: ModuleType, error: BaseException, key: str) -> HoldfastError:
    # The client raises Python's own exception for a missing object, and documents its own: both are taken.
    if isinstance(error, (exceptions.NotFoundError, FileNotFoundError)):
        return ObjectNotFound(key)
    if isinstance(error, exceptions.AlreadyExistsError):
        return AlreadyExists(key)
    if isinstance(error, exceptions.PreconditionError):
        return Precondition(key)
    if isinstance(error, exceptions.NotModifiedError):
        return NotModified(key)
    refusals = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(error, refusals) or _REFUSED.search(_first_line(error)):
        return StoreDenied(f"{key!r}: {_first_line(error)}")
    if isinstance(error, exceptions.InvalidPathError):
        return InvalidKey(f"{key!r}: {_first_line(error)}")
    return StoreUnavailable(f"{key!r}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    """The client adds a dump of its internals below the first line."""
    return str(error).partition("\n")[0]


def quoted(e_tag: str) -> str:
    """ETags are compared as sent; some servers leave out the quotes."""
    return e_tag if e_tag.startswith(('"', "W/")) else f'"{e_tag}"'


def e_tag_of(version: Version) -> str | None:
    """The ETag in a version, or None where it cannot be one: `*` or a list would be a condition of another meaning."""
    e_tag = version.partition("|")[0]
    return e_tag if _QUOTED.fullmatch(e_tag) is not None else None


def parts_of(chunks: Iterable[bytes], part_bytes: int) -> Iterator[bytes]:
    """The same bytes in parts of exactly `part_bytes`, but for the last, holding at most one part and one chunk."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size < part_bytes:
            continue
        whole = memoryview(b"".join(held))
        start = 0
        while size - start >= part_bytes:
            yield bytes(whole[start : start + part_bytes])
            start += part_bytes
        held = [bytes(whole[start:])]
        size -= start
    if size:
        yield b"".join(held)
