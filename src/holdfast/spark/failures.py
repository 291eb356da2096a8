"""From what Spark says about a failed job to one line that names the shard and the cause (K7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import orjson
from pyspark.errors import PySparkException

import holdfast.errors
from holdfast.errors import BuildFailed, HoldfastError

__all__ = ["SPARK_ERRORS", "Failure", "ShardFailed", "failure_of_job"]

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
"""What a job may fail with. A lost executor, above all, is none of PySpark's own errors but a bare one of the JVM."""
try:
    from py4j.protocol import Py4JError
except ImportError:  # the client of Spark Connect comes without it
    pass
else:
    SPARK_ERRORS += (Py4JError,)

_MARK = "holdfast-shard-failed:"
_LINE_MAX = 500
_PYTHON_ERROR = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit)\b.*:")
_REASON = re.compile("most recent failure|ExecutorLostFailure", re.IGNORECASE)
_JVM_CLASS = re.compile(r"^(: )?(org|java|scala)\.[\w.$]+: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a shard was not written."""

    shard: int
    kind: str
    """The class of the error."""
    message: str
    what: str = "shard"
    """What the number counts."""

    @classmethod
    def of(cls, shard: int, error: BaseException, *, what: str = "shard") -> Self:
        lines = str(error).splitlines() or [""]
        return cls(shard=shard, kind=type(error).__name__, message=lines[0][:_LINE_MAX], what=what)

    def encode(self) -> bytes:
        """How a failure travels from an executor."""
        return orjson.dumps({"shard": self.shard, "kind": self.kind, "message": self.message, "what": self.what})

    @classmethod
    def decode(cls, data: bytes | str) -> Self:
        found = orjson.loads(data)
        return cls(shard=found["shard"], kind=found["kind"], message=found["message"], what=found["what"])

    def error(self) -> HoldfastError:
        """The same error on the driver, if it is one of ours that takes a message; BuildFailed otherwise."""
        where = f"nothing was published: {self.what} {self.shard}"
        text = f"{where}: {self.message.removeprefix('nothing was published: ')}"
        found = getattr(holdfast.errors, self.kind, None)
        if isinstance(found, type) and issubclass(found, HoldfastError) and "__init__" not in vars(found):
            return found(text)
        return BuildFailed(f"{where}: {self.kind}: {self.message}")


class ShardFailed(Exception):
    """Ends a task so that Spark tries it again, with a line that the driver finds in whatever Spark makes of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(_MARK + failure.encode().decode())


def failure_of_job(error: BaseException) -> HoldfastError:
    """What a job's failure means, in one line."""
    text = str(error)
    marked = re.findall(re.escape(_MARK) + r"(\{.*\})", text)
    for found in reversed(marked):
        try:
            return Failure.decode(found).error()
        except (ValueError, KeyError, TypeError):
            continue
    return BuildFailed(f"nothing was published: Spark says: {_first_cause(text)}")


def _first_cause(text: str) -> str:
    """The most telling line of a Spark error: the last line of a Python traceback, or the reason that Spark gives."""
    lines = [line for raw in text.splitlines() if (line := _JVM_CLASS.sub("", raw.strip()))]
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    reasons = [line for line in lines if _REASON.search(line)]
    for found in (python[-1:], reasons[:1], lines[:1]):
        if found:
            return found[0][:_LINE_MAX]
    return "nothing"
