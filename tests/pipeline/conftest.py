"""The Spark of the tests, where a test needs it."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
