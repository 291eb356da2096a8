"""Writes the policies that a reviewer has read and agreed to; `test_iam_render.py` compares with them.

    python -m tests.catalog.iam_golden

Whoever changes a right sees in the difference of these files what it means in each cloud.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.catalog.iam import PRINCIPALS_ALL, Place
from holdfast.catalog.iam_render import PROVIDERS, PolicyFile, Provider, render_policies
from tests.catalog.iam_clouds import ACCOUNT, PROJECT

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "iam"
PLACE = Place(bucket="lake", root="hf", tenant="acme", workspace="prod")


def rendered() -> Iterator[tuple[Path, str]]:
    """Every golden file, as it would be written now."""
    for provider in PROVIDERS:
        yield from _files(GOLDEN / provider, provider)
    for provider in ("aws", "gcp"):
        yield from _files(GOLDEN / f"{provider}-see-missing", provider, see_missing=True)
    yield from _files(GOLDEN / "aws-write-once", "aws", write_once=True)


def _files(
    folder: Path, provider: Provider, *, see_missing: bool = False, write_once: bool = False
) -> Iterator[tuple[Path, str]]:
    project = PROJECT if provider == "gcp" else None
    account = ACCOUNT if provider == "azure" else None
    files: list[PolicyFile] = []
    for form in ("json", "terraform"):
        files += render_policies(
            provider, PLACE, principals=PRINCIPALS_ALL, form=form, project=project, storage_account=account,
            see_missing=see_missing, write_once=write_once,
        )  # fmt: skip
    yield from ((folder / file.name, file.text) for file in files)


def main() -> None:
    for path, text in rendered():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
