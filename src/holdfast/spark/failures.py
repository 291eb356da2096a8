"""From what Spark says about a failed job to one line that names the shard and the cause (K7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import orjson

import holdfast.errors
from holdfast.errors import BuildFailed, HoldfastError

__all__ = ["Failure", "ShardFailed", "failure_of_job"]

_MARK = "holdfast-shard-failed:"
_LINE_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a shard was not written."""

    shard: int
    kind: str
    """The class of the error."""
    message: str

    @classmethod
    def of(cls, shard: int, error: BaseException) -> Self:
        lines = str(error).splitlines() or [""]
        return cls(shard=shard, kind=type(error).__name__, message=lines[0][:_LINE_MAX])

    def encode(self) -> bytes:
        """How a failure travels from an executor."""
        return orjson.dumps({"shard": self.shard, "kind": self.kind, "message": self.message})

    @classmethod
    def decode(cls, data: bytes | str) -> Self:
        found = orjson.loads(data)
        return cls(shard=found["shard"], kind=found["kind"], message=found["message"])

    def error(self) -> HoldfastError:
        """The same error on the driver, if it is one of ours that takes a message; BuildFailed otherwise."""
        text = f"nothing was published: shard {self.shard}: {self.message.removeprefix('nothing was published: ')}"
        found = getattr(holdfast.errors, self.kind, None)
        if isinstance(found, type) and issubclass(found, HoldfastError) and "__init__" not in vars(found):
            return found(text)
        return BuildFailed(f"nothing was published: shard {self.shard}: {self.kind}: {self.message}")


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
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt|Exit)\b.*:", line)]
    reasons = [line for line in lines if "most recent failure" in line or "ExecutorLostFailure" in line]
    for found in (python[-1:], reasons[:1], lines[:1]):
        if found:
            return found[0][:_LINE_MAX]
    return type(text).__name__
