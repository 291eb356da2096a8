"""100,000 manifests, listed by page in constant memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from holdfast.chain import kv_layout
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.records import SqlRecords
from holdfast.chain.sql.url import parse_sql_url
from holdfast.storage.objects import ObjectInfo

MANIFESTS = 100_000
_MIB = 1024 * 1024

# One statement, so that the rows are there in seconds.
FILL = """
INSERT INTO holdfast_manifests (chain, run_id, name, payload, content_type, created_at, manifest_id, epoch,
    fencing_token, commit_ulid, parent_hash, content_hash, data)
SELECT 'users', 'run-' || n, 'manifests/2026-03-14T10:30:00.' || substr('000000' || n, -6) || 'Z_run_id=run-' || n
    || '/manifest', '{}', 'application/json', '2026-03-14T10:30:00.000000Z', n, 1, 1, '', NULL, 'sha256:' || n, 'x'
FROM {numbers}
"""
NUMBERS = {
    "sqlite": (
        "(WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < 99999) "
        "SELECT n FROM counted) AS numbers"
    ),
    "postgresql": "generate_series(0, 99999) AS numbers(n)",
}


def _fill(url: str) -> None:
    database = database_at(parse_sql_url(url))
    statement = FILL.replace("{numbers}", NUMBERS[database.dialect.kind])
    if database.dialect.kind == "postgresql":
        statement = statement.replace("substr('000000' || n, -6)", "lpad(n::text, 6, '0')")
        statement = statement.replace("'{}'", "'{}'::jsonb").replace("NULL, 'sha256", "NULL, 'sha256")
        statement = statement.replace("'2026-03-14T10:30:00.000000Z', n", "'2026-03-14T10:30:00Z'::timestamptz, n")
        statement = statement.replace("|| n, 'x'", "|| n, 'x'::bytea")
    database.write(lambda tx: tx.run(statement))


@pytest.mark.slow
def test_a_hundred_thousand_manifests_are_listed_in_constant_memory(database_url: str) -> None:
    """S34: every one of 100,000 in key order, one page at a time, in no more memory than a few pages need."""
    _fill(database_url)
    records = SqlRecords(f"{database_url}?chain=users", kv_layout())

    def pages() -> Iterator[list[ObjectInfo]]:
        return records.list(kv_layout().manifest_prefix, page_size=500)

    next(pages())  # connections and statements are made once
    tracemalloc.start()
    try:
        seen, last, largest = 0, "", 0
        for page in pages():
            assert page[0].key > last
            assert len(page) <= 500
            seen, last = seen + len(page), page[-1].key
            largest = max(largest, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert seen == MANIFESTS
    assert largest < 4 * _MIB, f"{largest / _MIB:.1f} MiB for pages of 500"
    tail = [info.key for page in records.list("manifests", after=last[:30], page_size=7) for info in page]
    assert tail[-1] == last
    assert [len(page) for page in records.list("manifests", after=tail[-11], page_size=7)] == [7, 3]
