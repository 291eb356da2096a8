"""The JSON schema of a pipeline file, for editors: they complete keys, show what each is for, and mark what is wrong.

Made of the description that the reader uses too. What a schema cannot say stays with the reader: names that nobody
knows, cycles, SQL, parameters.
"""

from __future__ import annotations

from typing import Any

from holdfast.pipeline.file_fields import PIPELINE
from holdfast.pipeline.file_kinds import DOTTED, Settings

__all__ = ["pipeline_schema"]


def pipeline_schema() -> dict[str, Any]:
    """Draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdfast pipeline",
        "description": "Sources, Spark SQL and data sets; `holdfast pipeline check` says if they fit.",
        **PIPELINE.schema(),
        "$defs": {DOTTED: Settings(dotted=True).schema()},
    }
