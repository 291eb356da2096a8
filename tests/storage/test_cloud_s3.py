"""S3 keeps the contract, on two servers that share no code."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import BadInput, StoreDenied, StoreUnavailable
from holdfast.storage import ObjectStore, open_store
from holdfast.storage.cloud import CloudLimits, CloudStore
from holdfast.testing.servers import Server, free_port
from holdfast.testing.store_contract import ProcessStoreContract

pytestmark = pytest.mark.server

Opener = Callable[[Server, str], ObjectStore]


class TestMinistack(ProcessStoreContract):
    """The contract in full, with fifty racers."""

    same_bytes_new_version = False
    processes = 5

    @pytest.fixture
    def store(self, ministack: Server, open_on: Opener, bucket: str) -> ObjectStore:
        return open_on(ministack, f"s3://{bucket}/pre/fix")


@pytest.mark.slow
class TestSeaweedFs(ProcessStoreContract):
    """A second server: slow under many racers, and it lists folders before files that sort before them."""

    same_bytes_new_version = False
    racers = 8
    processes = 4
    rounds = 2
    ordered_listing = False
    forgets_empty_folders = False

    @pytest.fixture
    def store(self, seaweedfs: Server, open_on: Opener, bucket: str) -> ObjectStore:
        # This server sets disk space aside for every bucket, so the tests share one.
        return open_on(seaweedfs, f"s3://shared/{bucket}")


def test_wrong_credentials_are_denied(
    ministack: Server, open_on: Opener, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C10: what the server refuses is StoreDenied, for reads and writes, never "not found" or "unavailable"."""
    store = open_on(ministack, f"s3://{bucket}")
    store.put_new("a", b"one")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")
    stranger = open_store(f"s3://{bucket}")
    with pytest.raises(StoreDenied):
        stranger.get("a")
    with pytest.raises(StoreDenied):
        stranger.put_new("b", b"")


def test_a_store_that_does_not_answer_is_unavailable_after_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """S13: no answer is StoreUnavailable, and the limits end the attempts."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    limits = CloudLimits(retries_max=1, retry_window_s=1.0, connect_timeout_s=1.0, request_timeout_s=1.0)
    store = CloudStore(scheme="s3", bucket="nobody", limits=limits)
    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):
        store.put_new("a", b"")


def test_a_pickled_store_carries_no_credentials_and_no_client(ministack: Server, open_on: Opener, bucket: str) -> None:
    """C10: what travels to an executor is the bucket's name and the limits."""
    store = open_on(ministack, f"s3://{bucket}")
    store.put_new("a", b"one")
    pickled = pickle.dumps(store)
    assert ministack.environment["AWS_SECRET_ACCESS_KEY"].encode() not in pickled
    assert ministack.endpoint.encode() not in pickled
    assert pickle.loads(pickled).get("a").data == b"one"


def test_a_forked_child_is_told_instead_of_hanging(ministack: Server, open_on: Opener, bucket: str) -> None:
    """S13: the client cannot live through a fork, and says so."""
    store = open_on(ministack, f"s3://{bucket}")
    store.put_new("a", b"one")
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_read_in_child, args=(store, answers))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert "spawn" in answers.get()


def _read_in_child(store: ObjectStore, answers: multiprocessing.SimpleQueue[str]) -> None:
    try:
        store.get("a")
    except StoreUnavailable as error:
        answers.put(str(error))


def test_the_client_is_not_loaded_before_a_cloud_is_used() -> None:
    """S13: importing the storage layer, opening a URL and pickling the store load no cloud client."""
    script = (
        "import pickle, sys; from holdfast.storage import open_store; "
        "pickle.loads(pickle.dumps(open_store('s3://bucket/x'))); sys.exit('obstore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=_with_source(), check=False, timeout=60)
    assert done.returncode == 0


def _with_source() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "s3://",
        "s3:///prefix",
        "ftp://host/x",
        "s3://key:secret@bucket/x",
        "s3://bucket/x?secret=1",
        "file://host/x",
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    """C11: unknown schemes, missing buckets and credentials in a URL are bad input, and the secret is not repeated."""
    with pytest.raises(BadInput) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
