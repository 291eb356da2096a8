"""Search: names, descriptions, columns and tags of everything in a workspace, ranked, with prefixes and typos (C27).

    refresh_search(workspace)                    # after the catalog has moved: publishes a new index
    search(workspace, "custmer orders")          # finds sales.customer_orders

The index is the `search` domain's state, published by the kernel like any other: it can be read as of a time, and it
says which snapshot of the catalog it was built from. Typos need the extra `catalog` (rapidfuzz).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.catalog.domain_state import encode_table
from holdfast.catalog.reading import read_tables
from holdfast.catalog.search_index import (
    CATALOG_TABLES,
    DOCUMENTS,
    POSTINGS,
    WORDS,
    SearchTables,
    build_index,
    words_in,
)
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Artifact, Committed, Manifest, ManifestDraft
from holdfast.codec import Fields
from holdfast.errors import BadInput, Conflict, CorruptRecord, CorruptShard, NotFound, ObjectNotFound
from holdfast.parquet_bytes import read_parquet
from holdfast.storage.capabilities import Reader

__all__ = ["Hit", "IndexBuilder", "SearchIndex", "build_here", "load_search", "refresh_search", "search"]

LIMIT_DEFAULT = 10
PREFIX_WORDS_MAX = 200
TYPO_WORDS_MAX = 50
_EXACT, _PREFIX, _TYPO = 1.0, 0.6, 0.4
_K1, _B = 1.2, 0.75

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Something that was found."""

    kind: str
    name: str
    description: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltFrom:
    """The snapshot of the catalog that an index was made from; None for an empty catalog."""

    manifest_id: int | None
    manifest_hash: str | None


class SearchIndex:
    """An index in memory. Any number of threads may ask."""

    def __init__(self, tables: SearchTables, built_from: BuiltFrom) -> None:
        self.built_from = built_from
        self._documents = tables.documents
        self._words: list[str] = tables.words.column("word").to_pylist()
        self._documents_of = tables.postings.column("document").to_numpy()
        self._weights = tables.postings.column("weight").to_numpy()
        self._starts = np.searchsorted(tables.postings.column("word").to_numpy(), np.arange(len(self._words) + 1))

    def __len__(self) -> int:
        return len(self._documents)

    @cached_property
    def _lengths(self) -> Scores:
        """How much each document says, relative to the mean."""
        sums: Scores = np.bincount(self._documents_of, weights=self._weights, minlength=len(self._documents)).astype(
            float
        )
        relative: Scores = sums / max(float(sums.mean()), 1e-9) if len(sums) else sums
        return relative

    def find(self, text: str, *, limit: int = LIMIT_DEFAULT, kind: str | None = None) -> list[Hit]:
        """The best first. Every word counts; the last may be the beginning of one, and each may have typos."""
        if limit < 1:
            raise BadInput(f"a limit of {limit} finds nothing; give 1 or more")
        words = words_in(pa.array([text], pa.string()))[0].to_pylist()
        if not words or not len(self._documents):
            return []
        scores = np.zeros(len(self._documents))
        matched = np.zeros(len(self._documents))
        for word in words:
            found = self._scores_of(word)
            scores += found
            matched += found > 0
        scores *= (matched / len(words)) ** 2  # who has all of the words comes before who has one of them often
        chosen = np.flatnonzero(scores > 0)
        if kind is not None:
            kinds = np.array(self._documents.column("kind").to_pylist(), object)
            chosen = chosen[kinds[chosen] == kind]
        order = chosen[np.lexsort((chosen, -scores[chosen]))][:limit]
        rows = self._documents.take(pa.array(order)).to_pylist()
        return [
            Hit(kind=row["kind"], name=row["name"], description=row["description"], score=round(float(score), 4))
            for row, score in zip(rows, scores[order].tolist(), strict=True)
        ]

    def _scores_of(self, word: str) -> Scores:
        """What each document gets for one word of the question: the best of its spellings."""
        best = np.zeros(len(self._documents))
        for number, quality in self._spellings(word).items():
            first, last = int(self._starts[number]), int(self._starts[number + 1])
            documents, weights = self._documents_of[first:last], self._weights[first:last]
            rarity = np.log1p((len(self._documents) - (last - first) + 0.5) / (last - first + 0.5))
            norm = _K1 * (1 - _B + _B * self._lengths[documents])
            np.maximum.at(best, documents, quality * rarity * weights * (_K1 + 1) / (weights + norm))
        return best

    def _spellings(self, word: str) -> dict[int, float]:
        """The words of the index that may be meant, and how well they fit."""
        found: dict[int, float] = {}
        place = bisect_left(self._words, word)
        if place < len(self._words) and self._words[place] == word:
            found[place] = _EXACT
        for number in range(place, min(len(self._words), place + PREFIX_WORDS_MAX)):
            if not self._words[number].startswith(word):
                break
            found.setdefault(number, _PREFIX * (len(word) / len(self._words[number])) ** 0.5)
        for number in _near(word, self._words):
            found.setdefault(number, _TYPO)
        return found


def search(
    workspace: Workspace, text: str, *, limit: int = LIMIT_DEFAULT, kind: str | None = None, at: datetime | None = None
) -> list[Hit]:
    """One question; for many, load the index once."""
    return load_search(workspace, at=at).find(text, limit=limit, kind=kind)


def load_search(workspace: Workspace, *, at: datetime | None = None) -> SearchIndex:
    """The index that is visible, or was at a time; NotFound if none was ever built."""
    chain = workspace.domain("search")
    manifest = (
        chain.load_current()
        if at is None
        else chain.load_manifest(chain.layout.ref_of(chain.find(at=at).manifest_path))
    )
    if manifest is None:
        raise NotFound("this workspace has no search index yet; run `refresh_search`, or wait for the compactor")
    return SearchIndex(_read_index(Reader(workspace.store), manifest), _built_from(manifest))


IndexBuilder = Callable[[Workspace, str | None], SearchTables]
"""Makes an index of a snapshot of the catalog, by its ref; of nothing at all without one."""


def build_here(workspace: Workspace, ref: str | None) -> SearchTables:
    """In this process."""
    return build_index(read_tables(workspace, "catalog", CATALOG_TABLES, ref=ref))


def refresh_search(workspace: Workspace, *, build: IndexBuilder = build_here) -> Committed | None:
    """Build the index anew if the catalog has moved since; None if it has not."""
    catalog = workspace.domain("catalog").current()
    source = BuiltFrom(
        manifest_id=None if catalog is None else catalog.manifest_id,
        manifest_hash=None if catalog is None else catalog.manifest_hash,
    )
    chain = workspace.domain("search")
    visible = chain.load_current()
    if visible is not None and _built_from(visible) == source:
        return None
    tables = build(workspace, None if catalog is None else catalog.ref)
    with chain.lock(operation="refresh search") as guard:
        run = chain.begin_run()
        artifacts = []
        for name, table in tables.by_name().items():
            path, data = run.artifact_key(f"{name}.parquet"), encode_table(table)
            chain.store.upload(path, [data])
            checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
            artifacts.append(
                Artifact(
                    path=path, byte_size=len(data), row_count=len(table), checksum=checksum, detail={"table": name}
                )
            )
        draft = ManifestDraft(
            artifacts=tuple(artifacts),
            payload={"catalog_manifest_id": source.manifest_id, "catalog_manifest_hash": source.manifest_hash},
        )
        outcome = chain.publish(draft, run=run, permit=chain.permit(guard), why="rebuilt", rebase=True)
    if not isinstance(outcome, Committed):
        raise Conflict(f"the search index was not published ({outcome}); refresh it again")
    return outcome


def _built_from(manifest: Manifest) -> BuiltFrom:
    fields = Fields(manifest.payload, key=f"manifest {manifest.manifest_id}")
    return BuiltFrom(
        manifest_id=fields.optional_number("catalog_manifest_id"),
        manifest_hash=fields.optional_text("catalog_manifest_hash"),
    )


def _read_index(store: Reader, manifest: Manifest) -> SearchTables:
    found: dict[str, pa.Table] = {}
    for artifact in manifest.artifacts:
        name = Fields(artifact.detail, key=artifact.path).text("table")
        found[name] = _read_file(store, artifact)
    if set(found) != {DOCUMENTS, WORDS, POSTINGS}:
        raise CorruptRecord(f"manifest {manifest.manifest_id}", f"an index has three tables, not {sorted(found)}")
    return SearchTables(documents=found[DOCUMENTS], words=found[WORDS], postings=found[POSTINGS])


def _read_file(store: Reader, artifact: Artifact) -> pa.Table:
    try:
        data = store.get(artifact.path).data
    except ObjectNotFound:
        raise CorruptShard(artifact.path, "it is missing") from None
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != artifact.checksum:
        raise CorruptShard(artifact.path, "its checksum is not what the manifest says")
    return read_parquet(data)


def _near(word: str, words: Sequence[str]) -> list[int]:
    """Words that differ by a slip of the fingers: one for short words, two for long ones, none for very short."""
    allowed = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
    if not allowed:
        return []
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    found = process.extract(word, words, scorer=OSA.distance, score_cutoff=allowed, limit=TYPO_WORDS_MAX)
    return [number for _, _, number in found]
