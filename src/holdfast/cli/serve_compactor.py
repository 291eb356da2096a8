"""`holdfast serve compactor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, workspace_argument
from holdfast.cli.config import load_settings
from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Line, Part, View, make_output
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.service.tokens import Tokens

__all__ = ["command"]

_EXTRA = ("fastapi", "uvicorn", "starlette")
_TOKEN_VARIABLE = "HOLDFAST_COMPACTOR_TOKEN"
_file = click.Path(dir_okay=False, path_type=Path)


@click.command(name="compactor")
@workspace_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; other machines need tokens.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option(
    "--tokens-file",
    type=_file,
    metavar="FILE",
    help="Let in only who brings one of its tokens: one a line, read again when it changes. "
    "HOLDFAST_COMPACTOR_TOKENS names the file, HOLDFAST_COMPACTOR_TOKEN holds tokens themselves.",
)
@click.option("--tls-cert", type=_file, metavar="FILE", help="Speak HTTPS with this certificate (PEM).")
@click.option("--tls-key", type=_file, metavar="FILE", help="The certificate's key (PEM).")
@click.option(
    "--queue",
    default=100_000,
    show_default=True,
    type=click.IntRange(1, 10_000_000),
    help="How many notified events of a domain may wait.",
)
@by_option
@json_option
def command(
    url: str | None,
    host: str,
    port: int,
    tokens_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    queue: int,
    by: str | None,
    as_json: bool,
) -> None:
    """Fold and publish a workspace's catalog for others.

    Who writes events needs no right to publish: it tells this service their paths. POST /compact folds now, under the
    caller's lock; POST /notify folds soon. GET /health, /metrics and /cursor/DOMAIN tell how it does. It uses no more
    rights than `holdfast iam render --principal compactor-fastpath` gives, and lists nothing.

    SIGTERM ends it well: what was begun is finished. Log lines are on stderr, as JSON with --json.

    JSON, once it answers: url, domains, authenticated.

    \b
    Examples:
      holdfast serve compactor ./lake/acme/prod
      holdfast serve compactor s3://bucket/lake/acme/prod --host 0.0.0.0 --tokens-file /etc/holdfast/tokens
      holdfast serve compactor ./lake/acme/prod --port 0 --json
    """
    with _service_extra():
        from holdfast.service.compactor import SERVED_DOMAINS, CompactorService
        from holdfast.service.process import Listen, log_to_stderr, serve

    listen = Listen(host=host, port=port, certificate=tls_cert, key=tls_key)
    tokens = _tokens(tokens_file)
    call = CatalogCall(url, as_json=as_json, by=by)
    output = make_output(as_json=as_json, one_line=True)
    log_to_stderr(as_json=as_json)

    def ready(address: str) -> None:
        data = call.document(
            "serve compactor", url=address, domains=list(SERVED_DOMAINS), authenticated=tokens is not None
        )
        known = "everybody on this machine" if tokens is None else f"who brings one of {len(tokens)} tokens"
        parts: list[Part] = [
            Line(f"Folding {', '.join(SERVED_DOMAINS)} of {call.workspace.url}"),
            Line(f"Listening at {address} for {known}. Ctrl-C ends it."),
        ]
        output.show(View(data=data, parts=parts))
        sys.stdout.flush()

    serve(CompactorService(call.workspace, queue_max=queue), tokens=tokens, listen=listen, ready=ready)


def _tokens(given: Path | None) -> Tokens | None:
    """From the file that was named, else from the environment, else from the file that is configured."""
    from holdfast.service.tokens import Tokens

    text, configured = os.environ.get(_TOKEN_VARIABLE, ""), load_settings().compactor_tokens
    if given is None and text:
        return Tokens(text=text)
    file = given or (None if configured is None else Path(configured))
    return None if file is None else Tokens(path=file)


@contextmanager
def _service_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        raise BadInput(f"this needs {missing}, which is not installed: pip install 'holdfast[service]'") from None
