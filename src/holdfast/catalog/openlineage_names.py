"""What OpenLineage calls the things of a workspace (C29).

A data set in storage is called by where it is, so that other tools that read or write it mean the same: the store is
the namespace (`s3://bucket`, or `file` for a path) and the path its name. A table that has no place is named in the
workspace, which is also the namespace of its jobs. Run ids must be UUIDs; ours are derived from the run's own id, so
whoever tells of a run calls it the same, at any time.
"""

from __future__ import annotations

from uuid import UUID, uuid5

from holdfast.catalog.workspace import Workspace

__all__ = ["PRODUCER", "job_namespace", "place_name", "run_uuid"]

PRODUCER = "urn:holdfast:catalog"
"""Who says so."""
_RUNS = UUID("6f1d3f0e-6a2b-5c53-9d0b-3f6f4f0b8d11")
"""The space that run ids are derived in: never to be changed, or every run would become another."""

_WITH_CONTAINER = ("abfs", "abfss", "wasb", "wasbs")
"""Where what stands before @ is a container."""


def job_namespace(workspace: Workspace) -> str:
    """`holdfast://tenant/workspace`: what schedules the jobs of a workspace, wherever it is stored."""
    return f"holdfast://{workspace.tenant}/{workspace.name}"


def run_uuid(workspace: Workspace, *words: str) -> str:
    """The same words in the same workspace always give the same id."""
    return str(uuid5(_RUNS, "\x00".join((workspace.tenant, workspace.name, *words))))


def place_name(url: str) -> tuple[str, str] | None:
    """Namespace and name of what is stored at a URL or an absolute path; None for what is neither."""
    if url.startswith("/"):
        return "file", url.rstrip("/") or "/"
    scheme, mark, rest = url.partition("://")
    if not mark or not scheme:
        return None
    host, _, path = rest.partition("/")
    path = path.strip("/")
    if scheme == "file":
        return (f"file://{host}" if host else "file"), f"/{path}"
    if scheme not in _WITH_CONTAINER:
        host = host.rpartition("@")[2]  # a user and password are no part of a name
    return f"{scheme}://{host}", path or "/"
