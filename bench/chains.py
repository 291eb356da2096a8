"""Chains to measure: a writer that holds the lock and publishes, timed only where a benchmark says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.harness import timed
from holdfast.chain import Artifact, Chain, Committed, Layout, ManifestDraft, Outcome, Run, chain_on, kv_layout
from holdfast.fencing import LockGuard
from holdfast.storage.objects import ObjectStore

__all__ = ["CONTENT", "Writer", "artifacts", "grow", "writer"]

CONTENT = b"a small file\n"
CHECKSUM = "sha256:67e9bbae2eb87fb7ba8c3c9fd5d0ec54b2b8a0b9ba2d6a9fb4cd3c0dcb1ea1a5"
LOCK_TTL_S = 3600.0


def artifacts(layout: Layout, paths: Sequence[str]) -> tuple[Artifact, ...]:
    """A manifest's entries for files that hold CONTENT, spread over the kinds the layout has."""
    kinds = list(layout.names.lists)
    return tuple(
        Artifact(path=path, byte_size=len(CONTENT), row_count=1, checksum=CHECKSUM, kind=kinds[number % len(kinds)])
        for number, path in enumerate(paths)
    )


class Writer:
    """Publishes snapshots of the same files again and again: what is measured is the commit, not the making of them."""

    def __init__(self, chain: Chain, guard: LockGuard, artifact_count: int) -> None:
        self.chain = chain
        self.guard = guard
        self._claim = f"{chain.layout.artifact_prefixes[0]}/shared"
        paths = [f"{self._claim}/part-{number:06d}" for number in range(artifact_count)]
        for path in paths:
            chain.store.put_new(path, CONTENT, durable=False)
        self.draft = ManifestDraft(artifacts=artifacts(chain.layout, paths))

    def begin(self) -> Run:
        return self.chain.begin_run(claims=(self._claim,))

    def publish(self, run: Run, draft: ManifestDraft | None = None) -> Committed:
        return require_committed(self.chain.publish(draft or self.draft, run=run, permit=self.chain.permit(self.guard)))

    def commit(self) -> Committed:
        return self.publish(self.begin())

    def timed_commit(self) -> tuple[float, float]:
        """One commit: the seconds of registering the run, and of publishing it."""
        runs: list[Run] = []
        begun = timed(lambda: runs.append(self.begin()))
        return begun, timed(lambda: self.publish(runs[0]))

    def commit_own_files(self, count: int, **tags: str) -> Committed:
        """One commit with files of its own, so that there is something to collect."""
        run = self.chain.begin_run()
        paths = [run.artifact_key(f"part-{number:06d}") for number in range(count)]
        for path in paths:
            self.chain.store.put_new(path, CONTENT, durable=False)
        return self.publish(run, ManifestDraft(artifacts=artifacts(self.chain.layout, paths), tags=tags))


def require_committed(outcome: Outcome) -> Committed:
    if not isinstance(outcome, Committed):
        raise TypeError(f"a benchmark without rivals was not committed: {outcome}")
    return outcome


@contextmanager
def writer(store: ObjectStore, *, artifact_count: int, layout: Layout | None = None) -> Iterator[Writer]:
    """A writer on a fresh chain, with the lock held."""
    chain = chain_on(store, layout or kv_layout(), by="bench")
    with chain.lock(operation="bench", ttl_s=LOCK_TTL_S) as guard:
        yield Writer(chain, guard, artifact_count)


def grow(one: Writer, commits: int) -> None:
    for _ in range(commits):
        one.commit()
