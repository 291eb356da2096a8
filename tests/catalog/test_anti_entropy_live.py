"""Anti-entropy with real parts: a server that enforces its policy, a compactor's service, and the command itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.catalog import Workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.anti_entropy import AntiEntropy
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.cursor import CursorKeeper, read_cursor
from holdfast.catalog.layout import ledger_layout
from holdfast.catalog.remote_compactor import RemoteCompactor
from holdfast.service.compactor import CompactorService
from holdfast.storage import grant, scope
from holdfast.storage.capabilities import Reader
from tests.catalog.iam_server import Cloud, Discreet
from tests.catalog.test_iam_live import PLACE, As, bucket_as, cloud, opened
from tests.cli.support import Program
from tests.service.support import local_root, serving, until, workspace_on

__all__ = ["bucket_as", "cloud"]


@pytest.fixture
def front(cloud: Cloud) -> Iterator[Discreet]:
    """Answers as S3 does where an object is missing."""
    found = Discreet(cloud, seeing={"admin"})
    yield found
    found.stop()


def tell(workspace: Workspace, *targets: str) -> list[str]:
    ledger = workspace.ledger("lineage")
    said = [p.LineageEdgesAdded(edges=(p.Edge(source="raw", target=target),)) for target in targets]
    return [ledger.append(one).path for one in said]


def id_of(path: str) -> str:
    return ledger_layout("lineage").parse_event_key(path) or ""


@pytest.mark.server
def test_the_policy_of_the_principal_is_enough_for_the_job(
    cloud: Cloud, bucket_as: As, front: Discreet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C18, C9, C10: on a server that lets it list the ledger and read the state and no more, and does not say that
    something is missing to who may not list there."""
    admin = Workspace(root=scope(bucket_as("admin"), PLACE.root), tenant=PLACE.tenant, name=PLACE.workspace)
    admin.initialize()
    paths = tell(admin, "a", "b", "c")
    told: list[tuple[list[str], str | None]] = []

    def notify(domain: str, missed: Sequence[str], cursor: str | None) -> None:
        assert domain == "lineage"
        told.append((list(missed), cursor))

    environment = cloud.environment("compactor-antientropy", endpoint=front.endpoint)
    watch = PLACE.scoped(opened(environment, monkeypatch))
    job = AntiEntropy("lineage", rights=grant(watch, "compactor-antientropy"), notify=notify, settle_s=0)
    job.round()  # there is neither a cursor nor a state
    assert told == [(paths, id_of(paths[2]))]
    Compactor(admin, "lineage").compact([paths[1]])
    told.clear()
    job.round()
    assert told == [([paths[0], paths[2]], id_of(paths[2]))]
    fast = grant(admin.store, "compactor-fastpath")
    CursorKeeper(fast.manifest, fast.read).advance("lineage", id_of(paths[2]))
    told.clear()
    assert job.round().events == 0
    assert told == []


def test_the_command_tells_a_service_which_keeps_the_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C18: events that nobody told, found by the command, folded by a compactor on a real socket; then nothing is."""
    workspace = workspace_on(local_root(tmp_path / "root"))
    workspace.initialize()
    place = str(tmp_path / "root" / workspace.tenant / workspace.name)
    paths = tell(workspace, "a", "b")
    holdfast = Program(monkeypatch)
    with serving(CompactorService(workspace)) as url:
        words = ("catalog", "anti-entropy", place, "--compactor", url, "--settle", "0", "--json")
        done = holdfast(*words).data
        assert [(one["domain"], one["told"]) for one in done["domains"]] == [
            ("catalog", 0), ("lineage", 2), ("executions", 0),
        ]  # fmt: skip
        remote = RemoteCompactor(url, tenant=workspace.tenant, workspace=workspace.name)
        until(lambda: remote.cursor("lineage") == id_of(paths[1]))
        assert [one["events"] for one in holdfast(*words).data["domains"]] == [0, 0, 0]
    found = read_cursor(Reader(workspace.store), "lineage")
    assert found is not None
    assert found.event_id == id_of(paths[1])
    assert workspace.domain("lineage").verify() == []


def test_the_command_folds_here_without_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C18: once, for all domains or some; what was missed is folded when it ends."""
    workspace = workspace_on(local_root(tmp_path / "root"))
    workspace.initialize()
    place = str(tmp_path / "root" / workspace.tenant / workspace.name)
    tell(workspace, "a", "b")
    holdfast = Program(monkeypatch)
    said = holdfast("catalog", "anti-entropy", place, "--domain", "lineage", "--once", "--settle", "0").out
    assert "2 events told again." in said
    assert "catalog " not in said
    again = holdfast("catalog", "anti-entropy", place, "--all", "--json").data["domains"]
    assert [(one["domain"], one["events"], one["told"]) for one in again] == [
        ("catalog", 0, 0), ("lineage", 2, 0), ("executions", 0, 0), ("orchestration", 0, 0),
    ]  # fmt: skip


def test_rounds_go_on_until_the_job_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C18: a round that fails for now is said, and the next one comes; other errors end the job."""
    workspace = workspace_on(local_root(tmp_path / "root"))
    workspace.initialize()
    place = str(tmp_path / "root" / workspace.tenant / workspace.name)
    tell(workspace, "a")
    slept: list[float] = []
    held = workspace.domain("lineage").lock()

    def sleep(_: object, seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            held.release()
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.clock.SystemClock.sleep", sleep)
    result = Program(monkeypatch)("catalog", "anti-entropy", place, "--every", "30", code=130)
    assert slept == [30.0, 30.0]
    assert "lineage: " in result.err
    assert "held by" in result.err
    assert result.out.count("looked through to") == 2
    assert "1 event told again." in result.out


@pytest.mark.parametrize(
    "words, advice",
    [
        (("--once", "--every", "5"), "leave one of --once and --every out"),
        (("--every", "0"), "use more than 0"),
        (("--settle", "-1"), "0 seconds or more"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], advice: str
) -> None:
    """C18: before anything is listed, in one line."""
    workspace = workspace_on(local_root(tmp_path / "root"))
    workspace.initialize()
    place = str(tmp_path / "root" / workspace.tenant / workspace.name)
    assert advice in Program(monkeypatch).fails("catalog", "anti-entropy", place, *words, code=2)
