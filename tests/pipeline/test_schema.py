"""The JSON schema and the reader agree: both are made of one description."""

from __future__ import annotations

import copy
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from holdfast.catalog.layout import dataset_prefix
from holdfast.errors import BadInput
from holdfast.pipeline.file_fields import DATASET_NAME, PIPELINE
from holdfast.pipeline.schema import pipeline_schema
from tests.pipeline.golden import BAD, FOLDER, GOOD

VALIDATOR = Draft202012Validator(pipeline_schema())
# What a schema cannot say: names, circles, SQL and parameters. And of TOML that cannot be read there is nothing to ask.
ONLY_THE_READER = {"names", "circle", "sql"}
NO_TOML = {"syntax", "twice", "end", "latin"}


def as_editors_see(value: Any) -> Any:
    """Dates are text to a JSON schema."""
    if isinstance(value, dict):
        return {key: as_editors_see(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_editors_see(inner) for inner in value]
    return value.isoformat() if isinstance(value, date) else value


def document(path: Path) -> dict[str, Any]:
    found = as_editors_see(tomllib.loads(path.read_text(encoding="utf-8")))
    assert isinstance(found, dict)
    return found


def test_the_schema_is_one() -> None:
    """C30: draft 2020-12."""
    Draft202012Validator.check_schema(pipeline_schema())
    assert pipeline_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_good_file_is_good_to_an_editor(path: Path) -> None:
    """C30: what the reader reads, the schema allows."""
    assert [one.message for one in VALIDATOR.iter_errors(document(path))] == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_every_bad_file_is_refused_by_both_or_for_what_a_schema_cannot_say(path: Path) -> None:
    """C30: an editor marks what has the wrong shape."""
    if path.stem not in NO_TOML:
        assert VALIDATOR.is_valid(document(path)) == (path.stem in ONLY_THE_READER)


def test_of_keys_that_exclude_each_other_an_editor_takes_one() -> None:
    """C30: `sql` or `file`, not both and not none."""
    good = document(FOLDER / "good" / "all-keys.toml")
    for step, is_good in (({"sql": "x"}, True), ({"file": "x"}, True), ({"sql": "x", "file": "x"}, False), ({}, False)):
        assert VALIDATOR.is_valid({**good, "steps": {"a": step}}) == is_good


def test_every_key_of_the_description_is_in_the_schema_and_in_a_golden_file() -> None:
    """C30: no key without a proof that it is read."""
    used: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            used.update(value)
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect(document(FOLDER / "good" / "all-keys.toml"))
    described: set[str] = set()

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            for name, inner in schema.get("properties", {}).items():
                assert inner["description"], name
                described.add(name)
            for inner in schema.values():
                walk(inner)
        elif isinstance(schema, list):
            for inner in schema:
                walk(inner)

    walk(pipeline_schema())
    assert described >= {one.name for one in PIPELINE.fields}
    assert described - used == set()


# -- any change to a good file -----------------------------------------------------------------------------------------

JUNK = st.sampled_from([None, "", "x", "kv", "orders", 0, 1, -1, 1.5, True, [], ["a"], ["a", "a"], [1], {}, {"a": 1},
                        {"min": 1}, "max(a)", "a=b", 100_001])  # fmt: skip


def places(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [where] if where else []
    if isinstance(value, dict):
        for key in value:
            found += places(value[key], (*where, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*where, index))
    return found


@given(st.data())
def test_reader_and_schema_judge_any_change_alike(data: st.DataObject) -> None:
    """C30: take a value away, replace it, or add a key: both refuse it, or neither does."""
    whole = document(FOLDER / "good" / "all-keys.toml")
    changed = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(1, 2))):
        where = data.draw(st.sampled_from(places(changed)))
        inside: Any = changed
        for key in where[:-1]:
            inside = inside[key]
        junk = data.draw(JUNK)
        extra = data.draw(st.sampled_from(["", "shard", "nodes", "min", "path", "version"]))
        if extra and isinstance(inside, dict):
            inside[extra] = "x" if junk is None else copy.deepcopy(junk)
        elif junk is None:
            del inside[where[-1]]
        else:
            inside[where[-1]] = copy.deepcopy(junk)
        if not places(changed):
            break
    said = [str(one) for one in PIPELINE.problems(changed, ())]
    wrong = [f"{list(one.absolute_path)}: {one.message}" for one in VALIDATOR.iter_errors(changed)]
    assert bool(said) == bool(wrong), (said, wrong)


@given(st.text(st.sampled_from("aZ0._-/ é\n"), max_size=4) | st.sampled_from(["a" * 128, "a" * 129, "..", "a\n"]))
def test_names_of_data_sets_are_those_that_a_workspace_takes(name: str) -> None:
    """What the file allows can be published."""
    try:
        dataset_prefix(name)
        is_name = True
    except BadInput:
        is_name = False
    assert (list(DATASET_NAME.problems(name, ("datasets", name))) == []) == is_name
