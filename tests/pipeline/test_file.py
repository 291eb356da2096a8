"""Pipeline files: what is read, and what is said of what cannot be."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.errors import BadInput, BadPipeline, NotFound
from holdfast.pipeline import (
    DatasetSource,
    FileSource,
    GraphDataset,
    KvDataset,
    NotNull,
    Range,
    RowChange,
    RowCount,
    TableDataset,
    Unique,
)
from holdfast.pipeline.file import inspect_pipeline, read_pipeline
from holdfast.pipeline.file_build import build_pipeline, document_of
from holdfast.pipeline.file_new import first_file
from tests.pipeline.golden import BAD, FOLDER, GOOD, plan_path, planned, said, said_path


def name_of(path: Path) -> str:
    return path.stem


def write(folder: Path, text: str, name: str = "pipeline.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def messages(path: Path) -> list[str]:
    """Each with its line, without the file."""
    return [f"{one.line}: {one.message}" for one in inspect_pipeline(path).problems]


@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_files_of_the_first_version_have_the_plans_they_always_had(path: Path) -> None:
    """C30: a pipeline file is sources, SQL and data sets; its plan, and so its fingerprint, is the same for ever."""
    assert planned(path) == json.loads(plan_path(path).read_text(encoding="utf-8"))
    assert inspect_pipeline(path).problems == ()


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_everything_that_is_wrong_with_a_file_is_said_at_once_with_its_line(path: Path) -> None:
    """C30: unknown keys, types, missing fields, names, circles, SQL, checks, parameters and TOML, by line."""
    assert said(path) == said_path(path).read_text(encoding="utf-8").splitlines()
    with pytest.raises(BadPipeline) as raised:
        read_pipeline(path)
    assert len(raised.value.problems) == len(said(path))


def test_every_key_becomes_what_it_says() -> None:
    """C30: the file says the same as the values in Python."""
    read = read_pipeline(FOLDER / "good" / "all-keys.toml")
    assert (read.name, read.description, read.owner, read.namespace, read.workspace) == (
        "all-keys_1.0", "Every key of the format.", "data@example.com", "shop", "s3://bucket/lake/acme/prod",
    )  # fmt: skip
    assert read.spark == {
        "spark.sql.shuffle.partitions": "8", "spark.sql.ansi.enabled": "true", "spark.app.name": "all of 2026-11-15",
        "spark.sql.variable.substitute": "false",
    }  # fmt: skip
    assert read.sources == (
        FileSource(
            name="orders", path="data/2026-11-15/*.csv", format="csv",
            options={"header": "true", "sep": ";", "escape.mark": "${plain}"},
            schema="id BIGINT, user_id BIGINT, price DOUBLE",
        ),
        FileSource(name="events", path="s3://bucket/events/"),
        DatasetSource(name="users", dataset="users"),
        DatasetSource(name="users_then", dataset="users", version=3),
        DatasetSource(name="users_stable", dataset="users", tag="release=lake"),
        DatasetSource(name="users_named", dataset="users", ref="manifests/00000001.json"),
        DatasetSource(name="calls", dataset="code", part="edges"),
    )  # fmt: skip
    assert read.datasets == (
        KvDataset(
            name="totals", rows="totals", key=("user_id", "strict"), shards=8, on_duplicate="max(total)",
            description="By user.", owner="shop@example.com",
            tags={"day": "2026-11-15", "final": "true", "turn": "1"},
            checks=(
                NotNull(columns=("user_id", "total")),
                NotNull(columns=("user_id",)),
                Unique(columns=("user_id",)),
                Range(column="total", least=0, most=1e9),
                Range(column="last_day", least="2020-01-01", most="2030-01-01"),
                RowCount(least=1, most=100),
                RowChange(fewer=0.2, more=0.5),
            ),
        ),
        KvDataset(
            name="totals-by-rows", rows="totals", key=("user_id",), rows_per_shard=1_000_000, on_duplicate="last"
        ),
        GraphDataset(
            name="code.copy", nodes="nodes", edges="edges", dangling="keep",
            checks=(NotNull(columns=("semantic_id",)),), edge_checks=(RowCount(least=0),),
        ),
        TableDataset(name="paid", rows="PAID", files=4),
    )  # fmt: skip


@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_what_is_read_can_be_said_again(path: Path) -> None:
    """Values and words are the same thing: nothing of a file is lost on the way to a Pipeline."""
    read = read_pipeline(path)
    again = build_pipeline(document_of(read), folder=read.folder)
    assert (again.sources, again.datasets, again.spark) == (read.sources, read.datasets, read.spark)
    assert [(one.name, one.sql, one.description) for one in again.steps] == [
        (one.name, one.sql, one.description) for one in read.steps
    ]


def test_what_nobody_uses_is_a_warning_and_stops_nobody(tmp_path: Path) -> None:
    """C30: a step and a source that no data set needs, and a snapshot that this very pipeline replaces."""
    path = write(tmp_path, '''\
name = "warned"
[sources.a]
path = "a"
[sources.b]
path = "b"
[sources.before]
dataset = "all"
[steps.x]
sql = "SELECT * FROM b"
[steps.y]
sql = "SELECT * FROM x"
[steps.z]
sql = """
SELECT * FROM a
JOIN before ON x = '$${y}'
"""
[datasets.all]
kind = "table"
from = "Z"
''')  # fmt: skip
    assert [f"{one.line}: {one.message}" for one in inspect_pipeline(path).warnings] == [
        "4: no data set needs source 'b': it is not read",
        "7: source 'before' is the snapshot of 'all' from before the run",
        "8: no data set needs step 'x': it is not made",
        "10: no data set needs step 'y': it is not made",
        "15: Spark would replace the plain ${…} itself: [spark] spark.sql.variable.substitute = false keeps it",
    ]
    assert read_pipeline(path).name == "warned"


def test_a_mistake_is_not_said_twice(tmp_path: Path) -> None:
    """A step with a wrong shape still has its name, a misspelled key is not missing too, and warnings wait."""
    path = write(tmp_path, """\
name = "once"
[sources.unused]
path = "a"
[steps.a]
sqll = "SELECT 1"
[steps.b]
sql = "SELECT x FROM a"
[datasets.all]
kind = "kv"
from = "b"
kye = "x"
shards = 1
""")  # fmt: skip
    assert messages(path) == [
        "5: unknown key 'sqll' in a step: did you mean 'sql'?",
        "11: unknown key 'kye' in a kv data set: did you mean 'key'?",
    ]


def test_a_source_of_the_wrong_shape_still_has_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, 'name = "p"\nsources.a = "a.csv"\n[datasets.d]\nkind = "table"\nfrom = "a"\n')
    assert messages(path) == ["2: 'a' should be a table, not the text 'a.csv': write [sources.a]"]


def test_a_wrong_check_does_not_hide_the_next_one(tmp_path: Path) -> None:
    """Problems keep their place in a list."""
    path = write(tmp_path, """\
name = "checks"
[steps.a]
sql = "SELECT 1 AS x"
[datasets.all]
kind = "table"
from = "a"
checks = [
  {uniqe = "x"},
  {unique = "y"},
]
""")  # fmt: skip
    assert messages(path) == [
        "8: unknown key 'uniqe' in a check: did you mean 'unique'?",
        "9: the check is of 'y', which step 'a' does not give: there is x",
    ]


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there is no file .*gone\.toml"):
        read_pipeline(tmp_path / "gone.toml")
    with pytest.raises(BadInput, match="cannot be read"):
        read_pipeline(tmp_path)


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    text = (FOLDER / "good" / "odd-spelling.toml").read_text(encoding="utf-8").replace("\n", "\r\n")
    path = tmp_path / "odd-spelling.toml"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert planned(path)["tasks"] == planned(FOLDER / "good" / "odd-spelling.toml")["tasks"]


def test_the_first_file_is_right(tmp_path: Path) -> None:
    """C30: what `holdfast pipeline new` writes has no problem."""
    path = write(tmp_path, first_file("mine", "pipeline.toml"))
    assert inspect_pipeline(path).problems == ()


def test_an_error_with_many_problems_travels_and_prints_one_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C30: `pipeline.toml:12: …`, one a line, wherever a pipeline is read by the program."""
    monkeypatch.setattr("holdfast.cli.main.cli.main", lambda **_: read_pipeline(FOLDER / "bad" / "circle.toml"))
    assert main([]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("circle.toml:")[2][:3] for line in lines[:2]] == ["7: ", "13:"]
    assert lines[2].startswith("error: nothing was run; fix the 2 problems of ")
    error = BadPipeline("it", "one", "two")
    assert str(pickle.loads(pickle.dumps(error))) == "it has 2 problems: one | two"
