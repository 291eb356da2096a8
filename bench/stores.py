"""What one request costs on the stores that need no network, beside obstore's local store where it has the verb."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from obstore.store import LocalStore as PlainLocalStore

from bench.harness import Samples, Settings, interleave, timed
from bench.report import Report
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import ObjectStore

CONTENT = bytes(range(256)) * 16
BATCH = 20
VERBS = ("put_new", "swap", "get", "head", "get_if_changed")


def run(settings: Settings) -> Report:
    plain = settings.memory_disk / "plain"
    plain.mkdir()
    stores: dict[str, ObjectStore] = {
        "memory": MemoryStore(),
        "file, no fsync, memory disk": LocalStore(settings.memory_disk / "file", durable=False),
        "file, fsync, disk": LocalStore(settings.disk / "file"),
    }
    report = Report(
        name="stores",
        about=f"requests per second, objects of {len(CONTENT) // 1024} KiB, one thread",
        columns=("", *VERBS),
    )
    actions = [_action(name, store) for name, store in stores.items()] + [_plain_action("obstore, memory disk", plain)]
    samples = interleave(settings.pick(60, 15), actions)
    for name in (*stores, "obstore, memory disk"):
        rates = {verb: _rate(samples.get(f"{name} {verb}")) for verb in VERBS}
        report.rows.append((name, *("-" if rate is None else f"{rate:,.0f}" for rate in rates.values())))
        report.figures |= {f"{name} {verb} per s": rate for verb, rate in rates.items() if rate is not None}
    report.notes.append("obstore's local store has no conditional replace and no conditional read worth comparing")
    return report


def _rate(found: Samples | None) -> float | None:
    return None if found is None else BATCH / found.median


def _batch(verbs: dict[str, Callable[[], object]], name: str) -> Callable[[], dict[str, float]]:
    return lambda: {f"{name} {verb}": timed(partial(_repeat, call)) for verb, call in verbs.items()}


def _repeat(verb: Callable[[], object]) -> None:
    for _ in range(BATCH):
        verb()


def _action(name: str, store: ObjectStore) -> Callable[[], dict[str, float]]:
    version = store.put_new("current/pointer", CONTENT)
    count = 0

    def put_new() -> None:
        nonlocal count
        count += 1
        store.put_new(f"created/{count:08d}", CONTENT)

    def swap() -> None:
        nonlocal version
        version = store.swap("current/pointer", CONTENT, expected=version)

    verbs: dict[str, Callable[[], object]] = {
        "put_new": put_new,
        "swap": swap,
        "get": lambda: store.get("current/pointer"),
        "head": lambda: store.head("current/pointer"),
        "get_if_changed": lambda: store.get_if_changed("current/pointer", version),
    }
    return _batch(verbs, name)


def _plain_action(name: str, folder: Path) -> Callable[[], dict[str, float]]:
    store = PlainLocalStore(folder, mkdir=True)
    store.put("current/pointer", CONTENT)
    count = 0

    def put_new() -> None:
        nonlocal count
        count += 1
        store.put(f"created/{count:08d}", CONTENT, mode="create")

    verbs: dict[str, Callable[[], object]] = {
        "put_new": put_new,
        "get": lambda: bytes(store.get("current/pointer").bytes()),
        "head": lambda: store.head("current/pointer"),
    }
    return _batch(verbs, name)
