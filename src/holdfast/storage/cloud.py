"""S3, GCS and Azure, through one client library.

What the library does and what it means here:

- It retries by itself, conditional writes included: a conflict may be the echo of a write of our own (see `objects`).
- All of it is bounded: `CloudLimits` says how long one call can take at most, and its numbers travel with the store.
- It hangs in a forked child of a process that used it. Start processes with "spawn"; a fork is refused with a clear
  error.
- Credentials and endpoints come from the clouds' own variables (`AWS_*`, `GOOGLE_*`, `AZURE_*`), in each process anew:
  a pickled store carries none.

Versions: S3 and Azure compare ETags; GCS compares generations, so there a version holds both, and a listed one, which
has no generation, cannot be swapped against. Anything that is not a version of this store conflicts, `*` above all: as
a condition it would match everything.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from holdfast.errors import (
    AlreadyExists,
    BadInput,
    HoldfastError,
    ObjectNotFound,
    StoreDenied,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.storage import cloud_client as client
from holdfast.storage.cloud_client import CloudLimits, NotModified, Precondition, Translated
from holdfast.storage.keys import check_key, check_page_size, check_prefix, check_range
from holdfast.storage.objects import PAGE_SIZE_DEFAULT, AsyncObjectReader, ObjectInfo, StoredObject, Version

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutMode, UpdateVersion

    from holdfast.storage.cloud_client import Client

__all__ = ["AsyncCloudReader", "CloudLimits", "CloudStore"]

PART_BYTES = 8 * 1024 * 1024
"""What fits into one part is created by one conditional request."""

PARTS_IN_FLIGHT_MAX = 4
HEADS_IN_FLIGHT_MAX = 32
DELETE_BATCH_MAX = 1000

_GENERATION = re.compile(r"[0-9]{1,20}")


class CloudStore:
    """A bucket (or container). `scope` confines it to a prefix."""

    __slots__ = ("_bucket", "_client", "_limits", "_lock", "_scheme")

    conditional_writes_trusted = False
    """There are servers that ignore conditions: `holdfast.storage.probe` asks before the first write."""

    def __init__(self, *, scheme: str, bucket: str, limits: CloudLimits | None = None) -> None:
        if scheme not in {"s3", "gs", "az"}:
            raise BadInput(f"{scheme!r} is not a cloud store: use s3, gs or az")
        self._scheme = scheme
        self._bucket = bucket
        self._limits = limits or CloudLimits()
        self._lock = threading.Lock()
        self._client: Client | None = None

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self._bucket}"

    def __repr__(self) -> str:
        return f"CloudStore({self.url!r})"

    def __reduce__(self) -> tuple[Callable[..., CloudStore], tuple[str, str, CloudLimits]]:
        return _restore, (self._scheme, self._bucket, self._limits)

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        return self._put(key, data, "create", AlreadyExists(key))

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        condition = self._condition(expected)
        if condition is None:
            check_key(key)
            raise VersionConflict(key)
        return self._put(key, data, condition, VersionConflict(key))

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        """Small objects are created by one conditional request.

        Larger ones go up in parts, and no cloud's multipart upload is conditional through this client: the key is
        looked up first. That is enough because whoever uploads uses a key of its own, unique to the attempt.
        """
        check_key(key)
        parts = client.parts_of(chunks, PART_BYTES)
        first = next(parts, b"")
        second = next(parts, None)
        if second is None:
            self.put_new(key, first)
            return self.head(key)
        return self._upload_parts(key, first, second, parts)

    def get(self, key: str) -> StoredObject:
        import obstore

        path = check_key(key)
        with Translated(key):
            result = obstore.get(self._opened(), path)
            return self._stored(key, result.meta, result.bytes().to_bytes())

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        import obstore

        path = check_key(key)
        e_tag = client.e_tag_of(known)
        if e_tag is None:
            return self.get(key)
        try:
            with Translated(key):
                result = obstore.get(self._opened(), path, options={"if_none_match": e_tag})
                return self._stored(key, result.meta, result.bytes().to_bytes())
        except NotModified:
            return None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        import obstore

        if length == 0:
            self.head(key)
            return b""
        try:
            with Translated(key):
                return obstore.get_range(self._opened(), check_key(key), start=start, length=length).to_bytes()
        except StoreUnavailable:
            # A range behind the end is an error to servers, and indistinguishable from any other in the client.
            if start >= self.head(key).size:
                return b""
            raise

    def head(self, key: str) -> ObjectInfo:
        import obstore

        with Translated(key):
            return self._info(key, obstore.head(self._opened(), check_key(key)))

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        if len(keys) <= 1:
            return [self._head_or_none(key) for key in keys]
        self._opened()
        with ThreadPoolExecutor(max_workers=min(len(keys), HEADS_IN_FLIGHT_MAX)) as pool:
            return list(pool.map(self._head_or_none, keys))

    def list_folders(self, prefix: str) -> list[str]:
        import obstore

        folder = check_prefix(prefix)
        with Translated(folder):
            found = obstore.list_with_delimiter(self._opened(), folder or None)
            return sorted({common.rstrip("/").rpartition("/")[2] for common in found["common_prefixes"]})

    def delete(self, keys: Iterable[str]) -> None:
        doomed = [check_key(key) for key in keys]
        for start in range(0, len(doomed), DELETE_BATCH_MAX):
            self._delete_batch(doomed[start : start + DELETE_BATCH_MAX])

    def as_async(self) -> AsyncObjectReader:
        return AsyncCloudReader(self)

    def _pages(self, folder: str, after: str | None, page_size: int) -> Iterator[list[ObjectInfo]]:
        import obstore

        with Translated(folder):
            stream = obstore.list(self._opened(), folder or None, offset=after, chunk_size=page_size)
            for chunk in stream:
                page = [self._info(meta["path"], meta) for meta in chunk]
                if after is not None:
                    page = [info for info in page if info.key > after]
                page.sort(key=lambda info: info.key)
                if page:
                    yield page

    def _upload_parts(self, key: str, first: bytes, second: bytes, rest: Iterator[bytes]) -> ObjectInfo:
        import obstore

        try:
            is_there = self._head_or_none(key) is not None
        except StoreDenied:
            # S3 and GCS say so of objects that are not there too, to who may not list. One that is there and may not be
            # looked at belongs to nobody who uploads: what arrived is looked at below.
            is_there = False
        if is_there:
            raise AlreadyExists(key)
        failures: list[BaseException] = []
        sizes: list[int] = []

        def stream() -> Iterator[bytes]:
            try:
                for part in itertools.chain((first, second), rest):
                    sizes.append(len(part))
                    yield part
            except BaseException as error:
                # The client wraps what a source raises; whoever called wants to see their own exception.
                failures.append(error)
                raise

        try:
            with Translated(key):
                obstore.put(
                    self._opened(),
                    key,
                    stream(),
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT_MAX,
                )
        except HoldfastError:
            if failures:
                raise failures[0] from None
            raise
        if failures:
            raise failures[0]
        info = self.head(key)
        if info.size != sum(sizes):
            raise StoreUnavailable(f"{key!r}: {sum(sizes)} bytes were sent and {info.size} are there")
        return info

    def _put(self, key: str, data: bytes, mode: PutMode, conflict: HoldfastError) -> Version:
        import obstore

        path = check_key(key)
        try:
            with Translated(key):
                result = obstore.put(self._opened(), path, data, mode=mode, use_multipart=False)
        except (AlreadyExists, Precondition, ObjectNotFound) as error:
            # Servers disagree on how they say it: 404, 409 and 412 are one thing to us.
            raise conflict from error
        return self._version(key, result["e_tag"], result["version"])

    def _delete_batch(self, keys: Sequence[str]) -> None:
        import obstore

        try:
            with Translated(keys[0]):
                obstore.delete(self._opened(), list(keys))
        except ObjectNotFound:
            # Where one missing object ends the whole batch, each key is asked for on its own.
            for key in keys:
                try:
                    with Translated(key):
                        obstore.delete(self._opened(), key)
                except ObjectNotFound:
                    continue

    def _head_or_none(self, key: str) -> ObjectInfo | None:
        try:
            return self.head(key)
        except ObjectNotFound:
            return None

    def _opened(self) -> Client:
        """The client, made at first use: nothing connects before that, and a pickle carries none."""
        client.refuse_fork()
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._client = client.connect(self._scheme, self._bucket, self._limits)
        return self._client

    def _condition(self, version: Version) -> UpdateVersion | None:
        """What the store compares with, or None for what cannot be a version here."""
        e_tag = client.e_tag_of(version)
        generation = version.partition("|")[2]
        if e_tag is None:
            return None
        if self._scheme != "gs":
            return None if generation else {"e_tag": e_tag}
        return {"e_tag": e_tag, "version": generation} if _GENERATION.fullmatch(generation) else None

    def _version(self, key: str, e_tag: str | None, generation: str | None) -> Version:
        if not e_tag:
            raise StoreUnavailable(f"{key!r}: the store names no ETag, so versions cannot be told apart")
        quoted = client.quoted(e_tag)
        return Version(f"{quoted}|{generation or ''}" if self._scheme == "gs" else quoted)

    def _info(self, key: str, meta: ObjectMeta) -> ObjectInfo:
        version = self._version(key, meta["e_tag"], meta["version"])
        return ObjectInfo(key=key, size=meta["size"], version=version, modified_at=meta["last_modified"])

    def _stored(self, key: str, meta: ObjectMeta, data: bytes) -> StoredObject:
        return StoredObject(key=key, data=data, version=self._version(key, meta["e_tag"], meta["version"]))

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        """The order is the server's: byte order on S3, GCS and Azure, by their own documentation."""
        check_page_size(page_size)
        return self._pages(check_prefix(prefix), after, page_size)


def _restore(scheme: str, bucket: str, limits: CloudLimits) -> CloudStore:
    return CloudStore(scheme=scheme, bucket=bucket, limits=limits)


class AsyncCloudReader:
    """The read half, on the client's own async calls: no threads of ours."""

    __slots__ = ("_store",)

    def __init__(self, store: CloudStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    async def get(self, key: str) -> StoredObject:
        return await self._get(key, None)

    async def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        try:
            return await self._get(key, client.e_tag_of(known))
        except NotModified:
            return None

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        import obstore

        if length == 0:
            await self.head(key)
            return b""
        opened = self._store._opened()  # noqa: SLF001 - the other half of one store
        try:
            with Translated(key):
                found = await obstore.get_range_async(opened, check_key(key), start=start, length=length)
                return found.to_bytes()
        except StoreUnavailable:
            if start >= (await self.head(key)).size:
                return b""
            raise

    async def head(self, key: str) -> ObjectInfo:
        import obstore

        with Translated(key):
            meta = await obstore.head_async(self._store._opened(), check_key(key))  # noqa: SLF001
            return self._store._info(key, meta)  # noqa: SLF001

    async def _get(self, key: str, e_tag: str | None) -> StoredObject:
        import obstore

        path = check_key(key)
        with Translated(key):
            options: GetOptions | None = None if e_tag is None else {"if_none_match": e_tag}
            result = await obstore.get_async(self._store._opened(), path, options=options)  # noqa: SLF001
            data = await result.bytes_async()
            return self._store._stored(key, result.meta, data.to_bytes())  # noqa: SLF001
