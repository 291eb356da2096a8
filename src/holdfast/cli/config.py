"""Settings: from flags, then `HOLDFAST_*` in the environment, then the nearest `holdfast.toml` upwards (K24).

    chain = "s3://bucket/team/datasets/users"   # HOLDFAST_CHAIN: the chain of commands that are given no URL
    workspace = "s3://bucket/lake/acme/prod"    # HOLDFAST_WORKSPACE: the workspace of `catalog` commands given none
    manifests = "postgresql://db/lake"          # HOLDFAST_MANIFESTS: the database with the records, if they are in one
    by = "nightly"                              # HOLDFAST_BY: who the log of moves says it was
    retention = 10                              # HOLDFAST_RETENTION: snapshots that `gc collect` keeps
    grace = "7d"                                # HOLDFAST_GRACE: how long `gc purge` waits
    mode = "direct"                             # HOLDFAST_MODE: how `get` reads data, direct or cached
    cache = "/var/cache/holdfast"               # HOLDFAST_CACHE: where `get --cached` keeps files of other machines
    compactor = "https://compactor:8765"        # HOLDFAST_COMPACTOR: who folds what `catalog` commands tell
    compactor_tokens = "/etc/holdfast/tokens"   # HOLDFAST_COMPACTOR_TOKENS: the file of tokens it accepts

A relative path in the file starts at the file's folder. Tables of the file belong to others and are left alone.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.words import parse_duration
from holdfast.errors import BadInput

__all__ = ["FILE_NAME", "Settings", "load_settings"]

FILE_NAME = "holdfast.toml"
_NAMES = (
    "chain",
    "workspace",
    "manifests",
    "by",
    "retention",
    "grace",
    "mode",
    "cache",
    "compactor",
    "compactor_tokens",
)
MODES = ("direct", "cached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was configured; None where nothing was."""

    chain: str | None = None
    workspace: str | None = None
    manifests: str | None = None
    by: str | None = None
    retention: int | None = None
    grace_s: float | None = None
    mode: str | None = None
    cache: str | None = None
    compactor: str | None = None
    compactor_tokens: str | None = None


def load_settings(*, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """What the environment says, and for the rest what the nearest file says."""
    environment = os.environ if environ is None else environ
    values, sources = _from_file(folder or Path.cwd())
    for name in _NAMES:
        variable = f"HOLDFAST_{name.upper()}"
        if text := environment.get(variable, ""):
            values[name], sources[name] = text, variable
    return Settings(
        chain=_text(values, sources, "chain"),
        workspace=_text(values, sources, "workspace"),
        manifests=_text(values, sources, "manifests"),
        by=_text(values, sources, "by"),
        retention=_number(values, sources, "retention"),
        grace_s=_duration(values, sources, "grace"),
        mode=_one_of(values, sources, "mode", MODES),
        cache=_text(values, sources, "cache"),
        compactor=_text(values, sources, "compactor"),
        compactor_tokens=_text(values, sources, "compactor_tokens"),
    )


def _from_file(folder: Path) -> tuple[dict[str, object], dict[str, str]]:
    path = next((place / FILE_NAME for place in (folder, *folder.parents) if (place / FILE_NAME).is_file()), None)
    if path is None:
        return {}, {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    values = {name: value for name, value in content.items() if not isinstance(value, dict)}
    unknown = sorted(set(values) - set(_NAMES))
    if unknown:
        raise BadInput(f"{path}: unknown setting {unknown[0]!r}; the settings are {', '.join(_NAMES)}")
    chain = values.get("chain")
    if isinstance(chain, str) and "://" not in chain:
        values["chain"] = str(path.parent / Path(chain).expanduser())
    workspace = values.get("workspace")
    if isinstance(workspace, str) and workspace and "://" not in workspace:
        values["workspace"] = str(path.parent / Path(workspace).expanduser())
    for name in ("cache", "compactor_tokens"):
        place = values.get(name)
        if isinstance(place, str) and place:
            values[name] = str(path.parent / Path(place).expanduser())
    manifests = values.get("manifests")
    if isinstance(manifests, str):
        from holdfast.chain.sql.url import relative_to

        values["manifests"] = relative_to(manifests, path.parent)
    return values, dict.fromkeys(values, str(path))


def _text(values: Mapping[str, object], sources: Mapping[str, str], name: str) -> str | None:
    value = values.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise BadInput(f"{sources[name]}: {name} should be text, not {value!r}")
    return value


def _one_of(
    values: Mapping[str, object], sources: Mapping[str, str], name: str, choices: tuple[str, ...]
) -> str | None:
    value = values.get(name)
    if value is not None and value not in choices:
        raise BadInput(f"{sources[name]}: {name} should be {' or '.join(choices)}, not {value!r}")
    return None if value is None else str(value)


def _number(values: Mapping[str, object], sources: Mapping[str, str], name: str) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str)
        or not str(value).isascii()
        or not str(value).isdigit()
    ):
        raise BadInput(f"{sources[name]}: {name} should be a whole number, not {value!r}")
    return int(value)


def _duration(values: Mapping[str, object], sources: Mapping[str, str], name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    return parse_duration(str(value), name=f"{sources[name]}: {name}")
