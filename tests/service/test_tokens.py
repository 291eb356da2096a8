"""Who may call: 401 without a token, 403 with a wrong one, several valid at once, and none of them ever told."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.catalog import Workspace
from holdfast.catalog.remote_compactor import RemoteCompactor, token_of
from holdfast.errors import BadInput, StoreDenied
from holdfast.service.compactor import CompactorService
from holdfast.service.process import Listen, Server
from holdfast.service.tokens import Tokens
from tests.service.support import call, serving, table, tell

OLD, NEW, WRONG = "old-token-0123456789", "new-token-0123456789", "bad-token-0123456789"


def test_only_who_brings_a_valid_token_is_let_in(workspace: Workspace, tmp_path: Path) -> None:
    """C17: every address but /health; nothing is read of what a stranger sends, or told about what exists."""
    paths = tell(workspace, table("a"))
    body = {"domain": "catalog", "paths": paths}
    with serving(CompactorService(workspace), tokens=Tokens(text=OLD)) as url:
        for method, address in (
            ("POST", "/compact"),
            ("POST", "/notify"),
            ("GET", "/metrics"),
            ("GET", "/cursor/catalog"),
            ("GET", "/nope"),
        ):
            sent = body if method == "POST" else None
            missing = call(url, method, address, sent)
            assert (missing.status, missing.document["error"]) == (401, "TokenMissing")
            assert missing.headers["www-authenticate"].startswith("Bearer")
            wrong = call(url, method, address, sent, token=WRONG)
            assert (wrong.status, wrong.document["error"]) == (403, "TokenRefused")
            assert WRONG not in str(wrong)
        for odd in ("", " ", OLD[:-1], OLD + "x", OLD.upper(), "\xff" * 20):
            assert call(url, "POST", "/compact", body, token=odd).status in {401, 403}
        assert call(url, "GET", "/health").status == 200
        assert workspace.domain("catalog").current() is None
        assert call(url, "POST", "/compact", body, token=OLD).status == 200
        for token, words in ((None, "wants a token"), (WRONG, "does not accept")):
            with pytest.raises(StoreDenied, match=words) as raised:
                RemoteCompactor(url, token=token).compact(paths)
            assert WRONG not in str(raised.value)


def test_tokens_are_replaced_without_a_pause(workspace: Workspace, tmp_path: Path) -> None:
    """C17: old and new are valid together; the file is read again when it changes; an empty one lets nobody in."""
    file = tmp_path / "tokens"
    file.write_text(f"# the compactor's\n\n{OLD}\n")

    def statuses(url: str) -> tuple[int, int]:
        old, new = (call(url, "GET", "/metrics", token=token).status for token in (OLD, NEW))
        return old, new

    with serving(CompactorService(workspace), tokens=Tokens(path=file)) as url:
        client = RemoteCompactor(url, token=token_of(None, file))
        assert statuses(url) == (200, 403)
        file.write_text(f"{NEW}\n{OLD}\n")
        assert statuses(url) == (200, 200)
        assert client.cursor("catalog") is None
        file.write_text(f"{NEW}\n")
        assert statuses(url) == (403, 200)
        assert client.cursor("catalog") is None
        file.write_text("")
        assert statuses(url) == (403, 403)
        file.unlink()
        assert statuses(url) == (403, 403)
        file.write_text(f"{OLD}\n")
        assert statuses(url) == (200, 403)


def test_what_cannot_be_a_token_is_refused_without_telling_it(tmp_path: Path) -> None:
    """C17: too short, or with characters that no header holds; the message names its line's place."""
    file = tmp_path / "tokens"
    made: list[tuple[Callable[[], object], str]] = [
        (lambda: Tokens(text="short"), "token 1 of the environment"),
        (lambda: Tokens(text=f"{OLD} with,comma,0123456789"), "token 2 of the environment"),
        (lambda: Tokens(text="  "), "holds no token"),
        (lambda: Tokens(path=file), "cannot be read"),
        (Tokens, "give one of the two"),
    ]
    for make, words in made:
        with pytest.raises(BadInput, match=words) as raised:
            make()
        assert "comma" not in str(raised.value)
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(BadInput, match="cannot be read"):
        Tokens(path=file)


def test_no_text_form_tells_a_token(tmp_path: Path) -> None:
    """C17: neither `repr` nor a pickle of what holds one."""
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n{NEW}\n")
    tokens = Tokens(path=file)
    assert (len(tokens), tokens.allows(OLD), tokens.allows(WRONG)) == (2, True, False)
    client = RemoteCompactor("http://127.0.0.1:1", token=OLD)
    for shown in (repr(tokens), str(tokens), repr(client), str(client)):
        assert OLD not in shown
    with pytest.raises(TypeError):
        pickle.dumps(tokens)
    assert OLD not in repr([getattr(tokens, name) for name in Tokens.__slots__])


def test_log_lines_of_this_process_tell_no_token(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C17: at any level, those of the server below included."""
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    with caplog.at_level(logging.DEBUG), serving(CompactorService(workspace), tokens=Tokens(path=file)) as url:
        call(url, "GET", "/metrics", token=OLD)
        call(url, "GET", f"/{OLD}", token=WRONG)
        file.write_text(f"{NEW}\nx\n")
        call(url, "GET", "/metrics", token=NEW)
    assert "TokenRefused" in caplog.text
    assert "nobody is let in" in caplog.text
    assert not any(token in caplog.text for token in (OLD, NEW, WRONG))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_served_only_with_tokens(workspace: Workspace, host: str) -> None:
    """C17: refused before anything listens."""
    with pytest.raises(BadInput, match="without tokens anybody could publish"):
        Server(CompactorService(workspace), listen=Listen(host=host, port=0))


def test_a_place_where_nobody_can_listen_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    """C17: no such address, no such certificate, a port that is taken: each with what to do."""
    service = CompactorService(workspace)
    with pytest.raises(BadInput, match="no address of this machine"):
        Server(service, listen=Listen(host="no.such.host.invalid", port=0))
    with pytest.raises(BadInput, match="certificate and its key"):
        Listen(certificate=tmp_path / "cert.pem")
    with pytest.raises(BadInput, match="there is no file"):
        Listen(certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    assert Listen(host="localhost").is_loopback()
    assert Listen(host="::1").is_loopback()
