"""What a rendered policy allows is what the bundle of the principal can do, at every key."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.catalog.iam import FOLDERS, PRINCIPALS, PRINCIPALS_ALL, Place, rights_of
from holdfast.catalog.iam_render import PROVIDERS, Provider, render_policies
from holdfast.catalog.iam_witness import Verb
from holdfast.errors import HoldfastError, InvalidKey, ScopeEscape
from holdfast.storage import MemoryStore, Version, capabilities, check_key, grant, principals
from tests.catalog.iam_clouds import ACCOUNT, PROJECT, AwsJudge, AzureJudge, GcpJudge, Judge

PLACE = Place(bucket="lake", root="hf", tenant="acme", workspace="prod")
PREFIX = "hf/acme/prod/"

# Every method of every capability, as a request: spelled here, so that what derives the policies cannot judge itself.
METHODS: dict[str, Verb] = {
    "put_event": Verb.CREATE,
    "put_state": Verb.CREATE,
    "upload_state": Verb.UPLOAD,
    "put_manifest": Verb.CREATE,
    "swap_pointer": Verb.REPLACE,
    "put_data": Verb.CREATE,
    "upload_data": Verb.UPLOAD,
    "swap_record": Verb.REPLACE,
    "get_lock": Verb.READ,
    "put_lock": Verb.CREATE,
    "swap_lock": Verb.REPLACE,
    "head": Verb.READ,
    "head_many": Verb.READ,
    "get": Verb.READ,
    "get_if_changed": Verb.READ,
    "get_range": Verb.READ,
    "list": Verb.LIST,
    "delete": Verb.DELETE,
}


def call(method: Callable[..., object], key: str) -> None:
    """Call a method of a capability at a key, however it is called."""
    values = {
        "key": key, "keys": [key], "prefix": key, "data": b"", "chunks": [b""], "start": 0, "length": 1,
        "expected": Version("m0"), "known": Version("m0"),
    }  # fmt: skip
    names = [one.name for one in inspect.signature(method).parameters.values() if one.default is one.empty]
    method(**{name: values[name] for name in names})


def verbs_of(principal: str, key: str) -> set[Verb]:
    """What the bundle can do at a key of the workspace; that nothing is there is no refusal."""
    bundle = grant(MemoryStore(), principal)  # type: ignore[call-overload]
    found = set()
    for field in dataclasses.fields(bundle):
        capability = getattr(bundle, field.name)
        for name in (one for one in dir(capability) if not one.startswith("_")):
            try:
                call(getattr(capability, name), key)
            except ScopeEscape:
                continue
            except HoldfastError:
                pass
            found.add(METHODS[name])
    return found


@cache
def judge(provider: Provider, principal: str) -> Judge:
    """The rendered policy, read as the cloud reads it."""
    project = PROJECT if provider == "gcp" else None
    account = ACCOUNT if provider == "azure" else None
    (file,) = render_policies(provider, PLACE, principals=[principal], project=project, storage_account=account)
    policy = json.loads(file.text)
    match provider:
        case "aws":
            return AwsJudge(policy, PLACE.bucket)
        case "gcp":
            return GcpJudge(policy, PLACE.bucket)
        case "azure":
            return AzureJudge(policy)


def is_key(text: str) -> bool:
    try:
        check_key(text)
    except InvalidKey:
        return False
    return True


SEGMENTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="/"), max_size=12)
TOPS = st.sampled_from([*FOLDERS, *(f"{one}-not" for one in FOLDERS), "elsewhere", "led", "LEDGER", "*", "?", "l0?"])
KEYS = st.builds(lambda top, rest: "/".join([top, *rest]), TOPS, st.lists(SEGMENTS, min_size=1, max_size=3)).filter(
    is_key
)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("principal", PRINCIPALS_ALL)
@given(key=KEYS)
def test_a_policy_allows_what_the_bundle_can_do_and_nothing_more(provider: Provider, principal: str, key: str) -> None:
    """C8, C9, C10: in each cloud, for each principal, at any key, verb by verb."""
    can = verbs_of(principal, key)
    # Clouds do not tell these apart everywhere: one who may write an object in one way may be able to in another.
    writes = {Verb.CREATE, Verb.REPLACE, Verb.UPLOAD}
    allows = judge(provider, principal)
    for verb in (Verb.READ, Verb.LIST):
        assert allows(verb, PREFIX + key + ("/" if verb is Verb.LIST else "")) == (verb in can), verb
    for verb in writes & can:
        assert allows(verb, PREFIX + key), verb
    assert allows(Verb.CREATE, PREFIX + key) == bool(writes & can)
    if provider == "gcp":  # what replaces may delete there: docs/iam.md says so
        assert allows(Verb.DELETE, PREFIX + key) == bool({Verb.REPLACE, Verb.DELETE} & can)
        assert allows(Verb.REPLACE, PREFIX + key) == (Verb.REPLACE in can)
    else:
        assert allows(Verb.DELETE, PREFIX + key) == (Verb.DELETE in can)


OUTSIDE = [
    *("", "hf/", "hf/acme/", "hf/acme/prod", "hf/acme/prod2/", "hf/acme2/prod/"),
    *("acme/prod/", "HF/acme/prod/", "x/hf/acme/prod/"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@given(
    principal=st.sampled_from(PRINCIPALS_ALL),
    verb=st.sampled_from(list(Verb)),
    outside=st.sampled_from(OUTSIDE),
    key=KEYS,
)
def test_no_policy_reaches_outside_its_workspace(
    provider: Provider, principal: str, verb: Verb, outside: str, key: str
) -> None:
    """C10, C11: other tenants, other workspaces, look-alikes of the name and the bucket's root stay closed."""
    if outside == "hf/acme/prod":  # a sibling that begins with the same letters
        key = "-" + key
    assert not judge(provider, principal)(verb, outside + key)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("principal", PRINCIPALS)
def test_no_policy_lists_the_bucket_or_the_workspace(provider: Provider, principal: str) -> None:
    """C9, C10: only anti-entropy lists, and only below the ledger, folder and not letters."""
    allows = judge(provider, principal)
    for prefix in ("", "hf/", "hf/acme/", PREFIX, PREFIX + "l", PREFIX + "ledger", PREFIX + "state/"):
        assert not allows(Verb.LIST, prefix), prefix
    assert allows(Verb.LIST, PREFIX + "ledger/") == (principal == "compactor-antientropy")


def test_every_folder_that_a_capability_names_is_tried() -> None:
    """C10: a folder that the rights are not derived for would be missing in every policy."""
    named: set[str] = set()
    for module in (capabilities, principals):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"_within", "Reader", "Lister"}:
                named |= {one.value for arg in node.args[1:] for one in ast.walk(arg) if isinstance(one, ast.Constant)}  # type: ignore[misc]
    assert named == set(FOLDERS)


@pytest.mark.parametrize("principal", PRINCIPALS_ALL)
def test_what_a_request_needs_beside_itself_widens_nothing(principal: str) -> None:
    """C10: replacing needs a read and uploading a look; who may do them may read there anyway."""
    rights = rights_of(principal, PLACE)
    for verb in (Verb.REPLACE, Verb.UPLOAD):
        for prefix in rights.get(verb, ()):
            assert Verb.READ in verbs_of(principal, prefix.removeprefix(PREFIX) + "x")


@given(key=KEYS)
def test_writes_without_a_condition_are_refused_where_nothing_is_uploaded(key: str) -> None:
    """C10: with `--write-once`, S3 itself keeps an event from being overwritten."""
    for principal in PRINCIPALS:
        (file,) = render_policies("aws", PLACE, principals=[principal], write_once=True)
        allows = AwsJudge(json.loads(file.text), PLACE.bucket)
        can = verbs_of(principal, key)
        for verb in (Verb.CREATE, Verb.REPLACE):
            assert allows(verb, PREFIX + key) == (verb in can or Verb.UPLOAD in can), (principal, verb)
        plain = allows.allows("s3:PutObject", f"arn:aws:s3:::lake/{PREFIX}{key}", {})
        assert plain == (Verb.UPLOAD in can), principal
        assert allows(Verb.READ, PREFIX + key) == (Verb.READ in can)
