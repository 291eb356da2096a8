"""The program as tests call it, and chains to call it on."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdfast.chain import Artifact, Chain, Committed, InputPin, ManifestDraft, chain_on, layout_named
from holdfast.cli.main import main
from holdfast.storage import LocalStore
from tests.house.source import SOURCE

START = datetime(2026, 3, 14, 10, 30, tzinfo=UTC)


def environment() -> dict[str, str]:
    """For a program of its own: it finds the sources wherever it stands."""
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


class StepClock:
    """An hour passes whenever a test says so."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)

    def step(self, hours: float = 1) -> None:
        self.moment += timedelta(hours=hours)


@dataclass(frozen=True)
class Result:
    """What one call of the program said."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON document."""
        return json.loads(self.out)


class Program:
    """`holdfast`, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, *words: object, code: int = 0) -> Result:
        out, err = StringIO(), StringIO()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            answer = main([str(word) for word in words])
        result = Result(answer, out.getvalue(), err.getvalue())
        assert answer == code, result
        return result

    def fails(self, *words: object, code: int) -> str:
        """The one line that a failing call says, and nothing else."""
        result = self(*words, code=code)
        assert result.out == ""
        assert result.err.startswith("error: "), result.err
        assert result.err.count("\n") == 1, result.err
        assert "Traceback" not in result.err
        return result.err


class DataSet:
    """A chain on local files with a clock of its own."""

    def __init__(self, folder: Path, layout: str = "kv") -> None:
        self.folder = folder
        self.clock = StepClock()
        self.chain: Chain = chain_on(
            LocalStore(folder, durable=False), layout_named(layout), by="tester", clock=self.clock
        )

    def __str__(self) -> str:
        return str(self.folder)

    def publish(
        self,
        run_id: str,
        *,
        rows: int = 10,
        inputs: tuple[InputPin, ...] = (),
        tags: dict[str, str] | None = None,
        kind: str = "artifact",
    ) -> Committed:
        """One snapshot of one file."""
        with self.chain.lock() as guard:
            run = self.chain.begin_run(run_id)
            data = f"{run_id}\n".encode() * rows
            info = self.chain.store.upload(run.artifact_key("part-0"), [data])
            checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
            artifact = Artifact(path=info.key, byte_size=info.size, row_count=rows, checksum=checksum, kind=kind)
            draft = ManifestDraft(artifacts=(artifact,), inputs=inputs, tags=tags or {})
            outcome = self.chain.publish(draft, run=run, permit=self.chain.permit(guard))
        assert isinstance(outcome, Committed)
        self.clock.step()
        return outcome

    def refs(self) -> list[str]:
        """Newest first."""
        return [one.ref for one in self.chain.list_manifests(100)]

    def listing(self) -> dict[str, str]:
        """Every file with its content's hash: equal before and after means that nothing was changed."""
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }
