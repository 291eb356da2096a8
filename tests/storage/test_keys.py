"""Keys mean one thing everywhere, or they are refused."""

from __future__ import annotations

import posixpath
import string
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import BadInput, InvalidKey, ScopeEscape
from holdfast.storage import MemoryStore, check_key, check_prefix, scope
from holdfast.storage.keys import KEY_BYTES_MAX, SEGMENT_BYTES_MAX

_PLAIN = st.text(string.ascii_letters + string.digits + "_-=", min_size=1, max_size=12)
_TRICKY = st.lists(
    st.sampled_from([*"./\\%2eE5cCfF0 a\x00\n\u0301é", "..", "%2e", "%252F", "%5c", "\ud800"]), max_size=12
).map("".join)


@given(st.lists(_PLAIN, min_size=1, max_size=6).map("/".join))
def test_plain_keys_are_themselves(key: str) -> None:
    """C11: what Holdfast itself writes is always a key."""
    assert check_key(key) == key
    assert check_prefix(f"{key}/") == key


@given(st.one_of(_TRICKY, st.text(max_size=40)))
@example("a/..")
@example("a/%2e%2E/b")
@example("%252e%252e")
@example("a%00b")
@example("\ud800")
def test_an_accepted_key_survives_normalising_and_decoding(key: str) -> None:
    """C11: whatever is accepted stays inside its folder under every reading that a server could apply."""
    try:
        check_key(key)
    except InvalidKey:
        return
    assert key.encode("utf-8")
    assert posixpath.normpath(key) == key
    assert not key.startswith("/")
    decoded = key
    for _ in range(4):
        decoded = unquote(decoded)
        assert not decoded.startswith("/")
        assert ".." not in decoded.replace("\\", "/").split("/")
        assert decoded.count("/") == key.count("/")
        assert "\\" not in decoded
        assert "\x00" not in decoded


@given(st.one_of(_TRICKY, st.text(max_size=40)))
def test_a_scope_never_lets_a_key_out(key: str) -> None:
    """C11: whatever is written through a scope lies below its folder, or it is refused."""
    store = MemoryStore()
    try:
        scope(store, "tenant/workspace").put_new(key, b"")
    except (InvalidKey, ScopeEscape):
        assert list(store.list("")) == []
        return
    assert [info.key for page in store.list("") for info in page] == [f"tenant/workspace/{key}"]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "./a",
        "a/./b",
        "a/../b",
        "a\\b",
        "a\x00b",
        "a\x7f",
        "a\x85",
        "a\uffff",
        "%2e%2e/a",
        "a/%2E%2E",
        "a%2fb",
        "a%5Cb",
        "a%252e",
        "a%25252fb",
        "a%00",
        "a/.holdfast-1.tmp",
        ".holdfast-x/a",
        "a\ud800",
        "x" * (SEGMENT_BYTES_MAX + 1),
        "é" * (SEGMENT_BYTES_MAX // 2 + 1),
        "/".join(["x" * 100] * 11),
    ],
)
def test_bad_keys_are_refused_with_the_reason(key: str) -> None:
    """C11: each kind of bad key, by itself."""
    with pytest.raises(InvalidKey, match="not a usable key"):
        check_key(key)
    if key:
        with pytest.raises(InvalidKey):
            check_prefix(f"{key}/" if key != "/" else key)


def test_the_limits_are_inclusive() -> None:
    """C11: the longest segment and the longest key are still keys."""
    assert check_key("x" * SEGMENT_BYTES_MAX)
    longest = "/".join(["x" * 127] * 8) + "y"
    assert len(check_key(longest)) == KEY_BYTES_MAX


@pytest.mark.parametrize("prefix", ["../x", "/x", "x/../..", "%2e%2e", "a\\b"])
def test_a_scope_cannot_be_opened_outside(prefix: str) -> None:
    """C11: neither a scope nor a folder listed in one can be somewhere else, and scopes nest only downwards."""
    with pytest.raises(ScopeEscape):
        scope(MemoryStore(), prefix)
    with pytest.raises(ScopeEscape):
        scope(scope(MemoryStore(), "a"), prefix)
    with pytest.raises(ScopeEscape):
        scope(MemoryStore(), "a").list(prefix)
    with pytest.raises(ScopeEscape):
        scope(MemoryStore(), "a").list_folders(prefix)


def test_a_range_or_page_that_cannot_be_is_bad_input() -> None:
    """C11: numbers are checked like keys."""
    store = MemoryStore()
    store.put_new("a", b"")
    with pytest.raises(BadInput):
        store.get_range("a", -1, 0)
    with pytest.raises(BadInput):
        store.list("", page_size=0)
