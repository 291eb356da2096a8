"""What Spark says about SQL that it does not understand, in one line that says where and what may be meant instead."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import BadSql
from holdfast.spark.progress import is_connect

__all__ = ["SAID_MAX", "asked", "said", "untold"]

SAID_MAX = 400
_HEAD = "SELECT * FROM (\n"
"""A question can stand inside another, a command cannot: what would change anything is no question."""
_TAIL = "\n)"
_PLACE = re.compile(r"line (\d+),? pos (\d+)")
_KIND = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE = re.compile(r"\.?\s*SQLSTATE: \w+.*", re.DOTALL)
_NO_QUESTION = "this is no question: a step is one SELECT, WITH, VALUES, FROM or TABLE, and changes nothing"


def asked(session: SparkSession, sql: str, args: Mapping[str, object] | None, names: Sequence[str] = ()) -> DataFrame:
    """The answer to a question, not computed yet; BadSql if Spark does not understand it. `names` are what there is."""
    question = sql.rstrip().rstrip(";").rstrip()
    if not question:
        raise BadSql("there is no SQL")
    try:
        with untold():
            frame = session.sql(f"{_HEAD}{question}{_TAIL}", args=dict(args) if args else None)
            frame.schema  # noqa: B018 - over Spark Connect, only now is it looked at
    except ParseException as error:
        raise _syntax(session, question, error) from None
    except AnalysisException as error:
        raise _meaning(error, question, names) from None
    except PySparkException as error:
        raise BadSql(said(error)) from None
    return frame


def said(error: BaseException) -> str:
    """The sentence that Spark says, without its kind, its plan and its stack."""
    text = _STATE.sub("", _KIND.sub("", str(error).strip()))
    return (text.splitlines() or ["nothing"])[0].strip()[:SAID_MAX].rstrip(".")


@contextmanager
def untold() -> Iterator[None]:
    """PySpark writes errors of SQL to standard error by itself, stack and all. Whoever asks here gets an error."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addFilter(_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    del record
    return False


def _syntax(session: SparkSession, sql: str, error: ParseException) -> BadSql:
    """Asked again without what was put around it, where Spark can be asked to parse and to do nothing else."""
    if is_connect(session):
        line, column = _place(str(error), sql, inside=1)
        return BadSql(said(error), line=line, column=column)
    try:
        with untold():
            session._jsparkSession.sessionState().sqlParser().parsePlan(sql)  # noqa: SLF001 - there is no other way
    except ParseException as bare:
        line, column = _place(str(bare), sql, inside=0)
        return BadSql(said(bare), line=line, column=column)
    return BadSql(_NO_QUESTION)


def _meaning(error: AnalysisException, sql: str, names: Sequence[str]) -> BadSql:
    line, column = _place(str(error), sql, inside=1)
    about = error.getMessageParameters() or {}
    kind = error.getCondition() or ""
    if kind.startswith("UNRESOLVED_COLUMN"):
        reason = f"there is no column {about.get('objectName', '')}"
        nearest = about.get("proposal", "").split(",")[0].strip()
        return BadSql(reason, line=line, column=column, suggestion=nearest)
    if kind == "TABLE_OR_VIEW_NOT_FOUND":
        name = about.get("relationName", "")
        near = get_close_matches(name.strip("`"), names, 1)
        there = ", ".join(sorted(names)) or "none"
        reason = f"there is no source or step {name}" + ("" if near else f"; there are {there}")
        return BadSql(reason, line=line, column=column, suggestion=f"`{near[0]}`" if near else "")
    if kind == "UNBOUND_SQL_PARAMETER":
        return BadSql(f"no argument is given for :{about.get('name', '')}", line=line, column=column)
    return BadSql(said(error), line=line, column=column)


def _place(text: str, sql: str, *, inside: int) -> tuple[int, int]:
    """Line and column in the SQL that was given, from 1. What Spark sees behind its end is at its end."""
    found = _PLACE.search(text)
    if found is None:
        return 0, 0
    line, column = int(found[1]) - inside, int(found[2]) + 1
    lines = sql.splitlines()
    if line > len(lines):
        return len(lines), len(lines[-1]) + 1
    return (line, column) if line > 0 else (0, 0)
