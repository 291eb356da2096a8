"""What an OpenLineage run event must look like, from two sides.

`EVENT` says in our own words which fields the specification asks for. `facet_problems` holds each facet against the
class that OpenLineage's Python client generates from the published schema of the version that the facet names.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import attr
import jsonschema
from openlineage.client import generated

__all__ = ["event_problems", "facet_problems"]

_TEXT = {"type": "string", "minLength": 1}
_UUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
_FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {
            "_producer": {"type": "string", "pattern": "^[a-z]+:"},
            "_schemaURL": {"type": "string", "pattern": "^https://openlineage.io/spec/facets/.*#/\\$defs/"},
        },
    },
}
_DATASETS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {
            "namespace": _TEXT, "name": _TEXT, "facets": _FACETS, "inputFacets": _FACETS, "outputFacets": _FACETS,
        },
    },
}  # fmt: skip
EVENT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["eventTime", "eventType", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventTime": {"type": "string", "pattern": "^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d+Z$"},
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "producer": {"type": "string", "pattern": "^[a-z]+:"},
        "schemaURL": {"type": "string", "pattern": "OpenLineage.json#/\\$defs/RunEvent$"},
        "run": {"type": "object", "required": ["runId"], "properties": {"runId": _UUID, "facets": _FACETS}},
        "job": {
            "type": "object",
            "required": ["namespace", "name"],
            "properties": {"namespace": _TEXT, "name": _TEXT, "facets": _FACETS},
        },
        "inputs": _DATASETS,
        "outputs": _DATASETS,
    },
    "additionalProperties": False,
}


def event_problems(event: dict[str, Any]) -> list[str]:
    checker = jsonschema.Draft202012Validator(EVENT)
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(event)] + facet_problems(event)


def facet_problems(event: dict[str, Any]) -> list[str]:
    """Facets of no published form, with fields that it does not have, or without those that it asks for."""
    classes = {
        vars(kind)["_get_schema"](): kind
        for module in pkgutil.iter_modules(generated.__path__)
        for kind in vars(importlib.import_module(f"{generated.__name__}.{module.name}")).values()
        if isinstance(kind, type) and attr.has(kind) and "_get_schema" in vars(kind)
    }
    problems = []
    for name, facet in _facets(event):
        kind = classes.get(facet["_schemaURL"])
        if kind is None:
            problems.append(f"{name}: {facet['_schemaURL']} is not a published form")
            continue
        fields = {one.name: one for one in attr.fields(kind)}
        problems += [f"{name}: has {extra!r}" for extra in facet.keys() - fields.keys()]
        required = {one for one, field in fields.items() if field.default is attr.NOTHING}
        problems += [f"{name}: lacks {one!r}" for one in required - facet.keys()]
    return problems


def _facets(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    holders = [event["run"], event["job"], *event.get("inputs", []), *event.get("outputs", [])]
    for holder in holders:
        for where in ("facets", "inputFacets", "outputFacets"):
            yield from holder.get(where, {}).items()
