"""The Spark of the tests, and the program, where a test needs them."""

from __future__ import annotations

from tests.cli.conftest import holdfast
from tests.spark.conftest import spark

__all__ = ["holdfast", "spark"]
