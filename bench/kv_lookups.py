"""Look-ups in a data set on this machine, one thread, warm, beside the same rows in SQLite, LMDB and SlateDB."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.harness import Samples, Settings, cpu_timed, interleave, timed
from bench.kv_engines import Engine, Key, LmdbEngine, SlateEngine, SqliteEngine, have
from bench.kv_rows import KEY, VALUE, KeyType, pick, table
from bench.report import Report, Target, duration, rate, ratio
from holdfast.chain import open_chain
from holdfast.kv import ShardedReader, publish_arrow

SHARDS = 8
TOGETHER = 1000
MANY = 100_000
OURS = "Holdfast"

PEER = {"get": 80_000.0, "multi_get": 84_000.0, "get_arrow": 84_000.0, "get_arrow, many": 84_000.0}
"""Keys a second of the peer itself (int64 keys, 8 shards), as it was seen on a busy machine."""
GOALS = {"get": 5.0, "multi_get": 20.0, "get_arrow": 40.0, "get_arrow, many": 40.0}
VERBS = ("get", "miss", "multi_get", "get_arrow", "get_arrow, many")


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What everybody is asked."""

    hits: list[Key]
    misses: list[Key]
    some: list[list[Key]]
    some_arrow: list[pa.Array]
    many_arrow: pa.Array

    @classmethod
    def of(cls, rows: int, kind: KeyType, count: int, many: int) -> Questions:
        hits = pick(count, rows, kind)
        starts = range(0, count, TOGETHER)
        return cls(
            hits=hits.to_pylist(),
            misses=pick(count, rows, kind, missing=True).to_pylist(),
            some=[hits.slice(start, TOGETHER).to_pylist() for start in starts],
            some_arrow=[hits.slice(start, TOGETHER) for start in starts],
            many_arrow=pick(many, rows, kind, seed=2),
        )


def run(settings: Settings) -> Report:
    report = Report(
        name="kv_lookups",
        about=f"keys per processor second, {SHARDS} shards, one thread, warm, best of some rounds in turns",
        columns=("", "get", "p50", "p99", "miss", "multi 1k", "arrow 1k", f"arrow {MANY // 1000}k"),
    )
    for rows in (20_000,) if settings.quick else (1_000_000, 5_000_000):
        for kind in KeyType:
            _compare(report, settings, rows, kind)
    report.notes += [
        "the others have no Arrow answer: what is shown is their multi-get, made into a table",
        "targets: beside the peer's own figures as seen (get 80,000/s, multi-get 84,000 keys/s): quoted,",
        "  by the clock on a busy machine, while ours are per processor second",
    ]
    return report


def _compare(report: Report, settings: Settings, rows: int, kind: KeyType) -> None:
    name = f"{rows / 1e6:g}M {kind}"
    folder = settings.disk / f"{rows}-{kind}"
    folder.mkdir()
    source = table(rows, kind)
    chain = open_chain(f"file://{folder / 'set'}", layout="kv")
    publish_arrow(chain, source, key=KEY, shards=SHARDS, value="binary")
    sqlite = SqliteEngine(folder, SHARDS, source.schema)
    sqlite.build(source)
    engines: list[Engine] = [sqlite.open()]
    if settings.peers and have("lmdb"):
        lmdb = LmdbEngine(folder / "rows.lmdb")
        lmdb.build(source)
        engines.append(lmdb.open())
    small = _slate(report, settings, folder, kind) if settings.peers and have("slatedb") and rows <= 1_000_000 else None
    del source
    count = settings.pick(20_000, 1000)
    questions = Questions.of(rows, kind, count, settings.pick(MANY, 2000))
    with ShardedReader.open(chain) as reader:
        found = _measure(settings, reader, engines, questions)
    for engine in engines:
        engine.close()
    for contestant in (OURS, *(engine.name for engine in engines)):
        _row(report, f"{name}: {contestant}", found, contestant)
    for engine in engines:
        cells = [ratio(found[f"{OURS} {verb}"] / found[f"{engine.name} {verb}"]) for verb in VERBS]
        report.rows.append((f"{name}: {OURS} / {engine.name}", cells[0], "", "", *cells[1:]))
        for verb in VERBS:
            report.figures[f"{name}: {OURS} / {engine.name} {verb}"] = (
                found[f"{OURS} {verb}"] / found[f"{engine.name} {verb}"]
            )
    if small is not None:
        report.rows.append(small)
    if kind is KeyType.INT64:
        report.targets += [
            Target(
                claim=f"{name}: {verb}, times the peer's own figure",
                value=found[f"{OURS} {verb}"] / PEER[verb],
                limit=goal,
                at_least=True,
            )
            for verb, goal in GOALS.items()
        ]


def _measure(
    settings: Settings, reader: ShardedReader, engines: Sequence[Engine], asked: Questions
) -> dict[str, float]:
    """Keys a second, by contestant and verb, and the p50 and p99 of one get in seconds."""
    reader.get_arrow(asked.many_arrow)  # every block is checked when it is first used: that is not what is measured
    ours = {
        "get": partial(_each, reader.get, asked.hits),
        "miss": partial(_each, reader.get, asked.misses),
        "multi_get": partial(_each, reader.multi_get, asked.some),
        "get_arrow": partial(_each, reader.get_arrow, asked.some_arrow),
        "get_arrow, many": partial(reader.get_arrow, asked.many_arrow),
    }
    actions = [partial(_action, OURS, ours), *(partial(_action, e.name, _verbs(e, asked)) for e in engines)]
    samples = interleave(settings.pick(9, 2), actions)
    found = {
        name: (len(asked.many_arrow) if name.endswith("many") else len(asked.hits)) / sample.best
        for name, sample in samples.items()
    }
    gets: list[tuple[str, Callable[[Key], object]]] = [(OURS, reader.get), *((e.name, e.get) for e in engines)]
    for name, get in gets:
        single = _singly(get, asked.hits)
        found |= {f"{name} p50": single.median, f"{name} p99": single.p99}
    return found


def _verbs(engine: Engine, asked: Questions) -> dict[str, Callable[[], object]]:
    return {
        "get": partial(_each, engine.get, asked.hits),
        "miss": partial(_each, engine.get, asked.misses),
        "multi_get": partial(_each, engine.multi_get, asked.some),
        "get_arrow": partial(_each, partial(_as_table, engine), asked.some_arrow),
        "get_arrow, many": partial(_as_table, engine, asked.many_arrow),
    }


def _as_table(engine: Engine, keys: pa.Array) -> pa.Table:
    """A table in the order of the keys, by somebody who has no better way."""
    listed = keys.to_pylist()
    found = engine.multi_get(listed)
    return pa.table({KEY: keys, VALUE: pa.array([found.get(key) for key in listed], pa.binary())})


def _action(name: str, verbs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    return {f"{name} {verb}": cpu_timed(work) for verb, work in verbs.items()}


def _each(call: Callable[..., object], arguments: Sequence[object]) -> None:
    for argument in arguments:
        call(argument)


def _singly(get: Callable[[Key], object], keys: Sequence[Key]) -> Samples:
    clock, seconds = time.perf_counter, []
    for key in keys:
        started = clock()
        get(key)
        seconds.append(clock() - started)
    return Samples(tuple(seconds))


def _row(report: Report, label: str, found: Mapping[str, float], name: str) -> None:
    rates = [found[f"{name} {verb}"] for verb in VERBS]
    p50, p99 = found[f"{name} p50"], found[f"{name} p99"]
    shown = list(map(rate, rates))
    report.rows.append((label, shown[0], duration(p50), duration(p99), *shown[1:]))
    report.figures |= {f"{label} {verb} per s": found for verb, found in zip(VERBS, rates, strict=True)}
    report.figures |= {f"{label} get p50 s": p50, f"{label} get p99 s": p99}


def _slate(report: Report, settings: Settings, folder: Path, kind: KeyType) -> tuple[str, ...]:
    """On fewer rows, as it takes its time; by the clock, as it works on threads of its own."""
    rows, count = settings.pick(100_000, 2000), settings.pick(2000, 100)
    engine = SlateEngine(folder / "slate")
    engine.build(table(rows, kind))
    engine.open()
    asked = Questions.of(rows, kind, count, count)
    samples = interleave(2, [lambda: {f" {verb}": timed(work) for verb, work in _verbs(engine, asked).items()}])
    single = _singly(engine.get, asked.hits)
    engine.close()
    label = f"{rows / 1e6:g}M {kind}: {engine.name}"
    rates = [count / samples[f" {verb}"].best for verb in VERBS]
    report.figures |= {f"{label} {verb} per s": found for verb, found in zip(VERBS, rates, strict=True)}
    shown = list(map(rate, rates))
    return (label, shown[0], duration(single.median), duration(single.p99), *shown[1:])
