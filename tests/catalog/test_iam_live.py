"""The rendered policies for AWS on an S3 server that enforces them: one user for each principal, with its own keys."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest

from holdfast.catalog import Ledger, Receipt, Workspace
from holdfast.catalog.iam import FOLDERS, PRINCIPALS_ALL, Place
from holdfast.catalog.iam_render import render_policies
from holdfast.catalog.iam_witness import Verb
from holdfast.catalog.payloads import NamespaceCreated
from holdfast.chain import Artifact, Committed, ManifestDraft, chain_on, domain_layout, kv_layout
from holdfast.chain.opening import detect_layout
from holdfast.clock import SystemClock, SystemRandomness
from holdfast.errors import ObjectNotFound, StoreDenied
from holdfast.fencing.lock import acquire_lock
from holdfast.kv import ShardedReader, publish_arrow
from holdfast.storage import ObjectStore, grant, open_store, scope
from holdfast.testing.servers import ServerUnavailable, start_ministack
from holdfast.testing.signing import send, sign_aws
from tests.catalog.iam_server import Cloud, Discreet
from tests.catalog.test_iam_agreement import verbs_of

PLACE = Place(bucket="lake", root="hf", tenant="acme", workspace="prod")
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"row {number}" for number in range(100)]})
LARGE = [b"x" * (3 << 20)] * 3  # more than one part


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    try:
        server = start_ministack(tmp_path_factory.mktemp("ministack"))
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    server.create_bucket(PLACE.bucket)
    made = Cloud(server)
    made.keys["admin"] = (server.environment["AWS_ACCESS_KEY_ID"], server.environment["AWS_SECRET_ACCESS_KEY"])
    for file in render_policies("aws", PLACE, principals=PRINCIPALS_ALL):
        made.add_user(file.principals[0], file.text)
    yield made
    server.stop()


As = Callable[[str], ObjectStore]


@pytest.fixture
def bucket_as(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> As:
    """The whole bucket with somebody's keys, taken from the environment as users' are."""

    return lambda who: opened(cloud.environment(who), monkeypatch)


def opened(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{PLACE.bucket}")
    with contextlib.suppress(ObjectNotFound, StoreDenied):
        store.head("connect-now")  # the keys are taken at the first request, and these are the ones
    return store


@pytest.fixture
def workspace_as(bucket_as: As) -> As:
    """The workspace with somebody's keys. Nothing but the server limits what this store can be asked to do."""
    return lambda who: PLACE.scoped(bucket_as(who))


@pytest.fixture
def discreetly_as(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[As]:
    """The workspace through a front that answers as S3 does where an object is missing."""
    front = Discreet(cloud, seeing={"admin", "seeing-pipeline"})
    yield lambda who: PLACE.scoped(opened(cloud.environment(who, endpoint=front.endpoint), monkeypatch))
    front.stop()


def fresh(folder: str) -> str:
    """A key that nobody used."""
    return f"{folder}/{SystemRandomness().bits(64):016x}"


def denied(request: Callable[[], object]) -> bool:
    """Whether the server said no. Any other failure is a failure of the test."""
    try:
        request()
    except StoreDenied:
        return True
    return False


def requests(mine: ObjectStore, admin: ObjectStore, folder: str) -> dict[Verb, Callable[[], object]]:
    """One request of each verb in a folder, on objects that are there where they have to be."""
    there, swapped, doomed = (fresh(folder) for _ in range(3))
    for key in (there, doomed):
        admin.put_new(key, b"there")
    version = admin.put_new(swapped, b"before")
    return {
        Verb.READ: lambda: (mine.get(there), mine.head(there), mine.get_range(there, 0, 2)),
        Verb.CREATE: lambda: mine.put_new(fresh(folder), b"new"),
        Verb.REPLACE: lambda: mine.swap(swapped, b"after", expected=version),
        Verb.LIST: lambda: list(mine.list(folder)),
        Verb.DELETE: lambda: mine.delete([doomed]),
    }


@pytest.mark.parametrize("folder", [*FOLDERS, "elsewhere", "ledger-not"])
@pytest.mark.parametrize("principal", PRINCIPALS_ALL)
def test_the_server_allows_the_row_of_the_table_and_refuses_the_rest(
    workspace_as: As, principal: str, folder: str
) -> None:
    """C8, C9, C10: every principal, in every folder, with every verb, against its own bundle of capabilities."""
    admin, mine = workspace_as("admin"), workspace_as(principal)
    can = verbs_of(principal, f"{folder}/x")
    if can & {Verb.CREATE, Verb.REPLACE, Verb.UPLOAD}:
        can |= {Verb.CREATE, Verb.REPLACE}  # one right on S3, unless --write-once divides it
    asked = requests(mine, admin, folder)
    assert {verb for verb, request in asked.items() if not denied(request)} == can & set(asked)
    assert {verb for verb, request in requests(admin, admin, folder).items() if not denied(request)} == set(asked)


def test_the_api_cannot_put_under_manifests(workspace_as: As) -> None:
    """C8, C10: not new, not replaced, not in parts; and what was there stays."""
    admin, api = workspace_as("admin"), workspace_as("api")
    pointer = fresh("manifests")
    version = admin.put_new(pointer, b"published")
    for request in (
        lambda: api.put_new(fresh("manifests"), b"mine"),
        lambda: api.swap(pointer, b"mine", expected=version),
        lambda: api.upload(fresh("manifests"), LARGE),
        lambda: api.delete([pointer]),
    ):
        with pytest.raises(StoreDenied):
            request()
    assert admin.get(pointer).data == b"published"


def test_the_fast_path_cannot_list(workspace_as: As, bucket_as: As) -> None:
    """C9, C10: nothing anywhere; not its own folders, not the workspace, not the bucket."""
    for prefix in (*FOLDERS, ""):
        with pytest.raises(StoreDenied):
            list(workspace_as("compactor-fastpath").list(prefix))
    for prefix in ("", "hf", "hf/acme"):
        with pytest.raises(StoreDenied):
            list(bucket_as("compactor-fastpath").list(prefix))


def test_the_reader_cannot_write(workspace_as: As) -> None:
    """C9, C10: in no folder and in no way."""
    admin, reader = workspace_as("admin"), workspace_as("reader")
    for folder in FOLDERS:
        key = fresh(folder)
        version = admin.put_new(key, b"kept")
        for request in (
            lambda key=key, version=version: reader.swap(key, b"mine", expected=version),
            lambda folder=folder: reader.put_new(fresh(folder), b"mine"),
            lambda key=key: reader.delete([key]),
        ):
            with pytest.raises(StoreDenied):
                request()
        assert reader.get(key).data == b"kept"
    with pytest.raises(StoreDenied):
        reader.upload(fresh("datasets"), LARGE)


@pytest.mark.parametrize("principal", PRINCIPALS_ALL)
@pytest.mark.parametrize("elsewhere", ["hf/acme/prod2", "hf/other/prod", "hf/acme", "acme/prod", "hf/acme/prod-2"])
def test_no_principal_reaches_another_workspace(bucket_as: As, principal: str, elsewhere: str) -> None:
    """C10, C11: other workspaces and tenants of the same bucket are closed, look-alikes too."""
    admin, mine = (scope(bucket_as(who), elsewhere) for who in ("admin", principal))
    for folder in FOLDERS:
        asked = requests(mine, admin, folder)
        assert [verb for verb, request in asked.items() if not denied(request)] == []


def test_with_see_missing_the_bucket_can_be_listed_and_nothing_else_is_gained(
    cloud: Cloud, workspace_as: As, bucket_as: As
) -> None:
    """C10: the one thing that `--see-missing` adds, so that S3 says 404."""
    (file,) = render_policies("aws", PLACE, principals=["reader"], see_missing=True)
    cloud.add_user("seeing-reader", file.text)
    seeing = workspace_as("seeing-reader")
    key = fresh("ledger")
    workspace_as("admin").put_new(key, b"there")
    assert list(bucket_as("seeing-reader").list(""))
    with pytest.raises(ObjectNotFound):
        seeing.get(fresh("ledger"))
    for request in (lambda: seeing.put_new(fresh("ledger"), b"mine"), lambda: seeing.delete([key])):
        with pytest.raises(StoreDenied):
            request()


# What each must be able to do, done.


def appended(store: ObjectStore, namespace: str) -> Receipt:
    """One event of the catalog, told by the API through its capabilities."""
    api = grant(store, "api")
    ledger = Ledger("catalog", ledger=api.ledger, lock=api.lock, read=api.read, source="tests")
    return ledger.append(NamespaceCreated(namespace=namespace), idempotency_key=namespace)


def begun(bucket: ObjectStore) -> None:
    """The workspace, initialized by who may do everything."""
    Workspace(root=scope(bucket, PLACE.root), tenant=PLACE.tenant, name=PLACE.workspace, by="admin").initialize()


def test_the_api_appends_events_and_takes_a_lock(workspace_as: As, bucket_as: As) -> None:
    """C8, C10: with its own keys, through its own capabilities; an event that is told again is there once."""
    begun(bucket_as("admin"))
    store, namespace = workspace_as("api"), fresh("n").replace("/", "")
    first, again = appended(store, namespace), appended(store, namespace)
    assert (again.path, again.duplicate) == (first.path, True)
    api = grant(store, "api")
    assert namespace.encode() in api.read.get(first.path).data
    lock = fresh("locks")
    version = api.lock.put_lock(lock, b"1")
    api.lock.swap_lock(lock, b"2", expected=version)
    assert api.lock.get_lock(lock).data == b"2"


def fold(fast_store: ObjectStore, lock_store: ObjectStore, run_id: str) -> None:
    """One publish of the catalog: somebody holds the lock, and the compactor publishes under it."""
    layout = domain_layout("catalog")
    chain = chain_on(fast_store, layout, by="compactor")
    clock, randomness = SystemClock(), SystemRandomness()
    with acquire_lock(
        lock_store, layout.lock_key, holder="api", operation="compact", ttl_s=60.0, clock=clock, randomness=randomness
    ) as guard:
        run = chain.begin_run(run_id)
        info = grant(fast_store, "compactor-fastpath").state.upload_state(run.artifact_key("part-0"), LARGE)
        checksum = f"sha256:{hashlib.sha256(b''.join(LARGE)).hexdigest()}"
        artifact = Artifact(path=info.key, byte_size=info.size, row_count=1, checksum=checksum, kind="artifact")
        outcome = chain.publish(ManifestDraft(artifacts=(artifact,)), run=run, permit=chain.permit(guard))
    assert isinstance(outcome, Committed)


def run_seen_by(store: ObjectStore) -> str:
    head = chain_on(store, domain_layout("catalog"), by="reader").current()
    assert head is not None
    return head.run_id


def test_the_fast_path_publishes_what_the_api_has_locked(workspace_as: As) -> None:
    """C9, C10: the API takes the lock, the fast path folds and publishes, anti-entropy and readers see it."""
    for run_id in (fresh("a")[2:], fresh("b")[2:]):
        fold(workspace_as("compactor-fastpath"), workspace_as("api"), run_id)
        assert run_seen_by(workspace_as("reader")) == run_id
        assert run_seen_by(workspace_as("compactor-antientropy")) == run_id


def test_anti_entropy_finds_the_events_of_the_ledger(workspace_as: As) -> None:
    """C9, C10: it lists the ledger, in pages, and reads state; it cannot read the events."""
    api, watch = (
        grant(workspace_as("api"), "api"),
        grant(workspace_as("compactor-antientropy"), "compactor-antientropy"),
    )
    keys = sorted(fresh("ledger/lineage") for _ in range(5))
    for key in keys:
        api.ledger.put_event(key, b"{}")
    pages = watch.ledger.list("ledger/lineage", after=keys[0], page_size=2)
    assert [info.key for page in pages for info in page] == keys[1:]
    with pytest.raises(StoreDenied):
        workspace_as("compactor-antientropy").get(keys[0])


def test_a_pipeline_builds_a_data_set_and_a_reader_looks_it_up(workspace_as: As) -> None:
    """C9, C10: the whole way: lock, run, shards, manifest and pointer with one pair of keys, look-ups with another."""
    name = f"users-{SystemRandomness().bits(64):016x}"
    own = scope(workspace_as("pipeline"), f"datasets/{name}")
    chain = chain_on(own, kv_layout(), by="pipeline")
    for _ in range(2):
        publish_arrow(chain, ROWS, key="id", shards=2)
    pipeline = grant(workspace_as("pipeline"), "pipeline")
    pipeline.ledger.put_event(fresh("ledger/executions"), b"{}")
    large = fresh(f"datasets/{name}/shards")
    assert pipeline.data.upload_data(large, LARGE).size == pipeline.head.head(large).size == 9 << 20
    reading = chain_on(scope(workspace_as("reader"), f"datasets/{name}"), kv_layout(), by="reader")
    with ShardedReader.open(reading, mode="direct") as reader:
        assert reader.get(7) == {"name": "row 7"}
    with pytest.raises(StoreDenied):
        reading.lock()


def test_where_missing_is_forbidden_the_first_publish_needs_to_see_it_and_no_other_does(
    cloud: Cloud, discreetly_as: As
) -> None:
    """C10: as on S3 itself. A new data set takes `--see-missing`; every later publish, however large, takes no more
    than the policy of the table, and so do readers."""
    (file,) = render_policies("aws", PLACE, principals=["pipeline"], see_missing=True)
    cloud.add_user("seeing-pipeline", file.text)
    folder = f"datasets/new-{SystemRandomness().bits(64):016x}"

    def publish(who: str) -> None:
        publish_arrow(chain_on(scope(discreetly_as(who), folder), kv_layout(), by=who), ROWS, key="id", shards=1)

    with pytest.raises(StoreDenied):
        publish("pipeline")
    publish("seeing-pipeline")
    publish("pipeline")
    large = fresh(f"{folder}/shards")
    assert grant(discreetly_as("pipeline"), "pipeline").data.upload_data(large, LARGE).size == 9 << 20
    mine = scope(discreetly_as("reader"), folder)
    with ShardedReader.open(chain_on(mine, kv_layout(), by="reader"), mode="direct") as reader:
        assert reader.get(7) == {"name": "row 7"}
    with pytest.raises(StoreDenied):
        detect_layout(mine)  # which looks for what is not there: docs/iam.md says to name the layout


def test_where_missing_is_forbidden_a_catalog_that_was_begun_goes_on(discreetly_as: As, bucket_as: As) -> None:
    """C9, C10: the API and the fast path need to see nothing that is not there once a domain was published."""
    begun(bucket_as("admin"))
    fold(discreetly_as("admin"), discreetly_as("admin"), fresh("a")[2:])
    run_id = fresh("b")[2:]
    assert not appended(discreetly_as("api"), fresh("n").replace("/", "")).duplicate
    fold(discreetly_as("compactor-fastpath"), discreetly_as("api"), run_id)
    assert run_seen_by(discreetly_as("reader")) == run_id
    with pytest.raises(StoreDenied):
        discreetly_as("reader").get(fresh("state"))


def test_an_upload_that_fails_can_be_given_up(cloud: Cloud, workspace_as: As) -> None:
    """C10: no parts are left behind: who may upload may also abort."""

    def failing() -> Iterator[bytes]:
        yield from LARGE * 2
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        workspace_as("pipeline").upload(fresh("datasets/users"), failing())
    url = f"{cloud.server.endpoint}/{PLACE.bucket}?uploads="
    key_id, secret = cloud.keys["admin"]
    status, answer = send("GET", url, headers=sign_aws("GET", url, key_id=key_id, secret=secret, clock=SystemClock()))
    assert status == 200
    assert b"<Upload>" not in answer


def test_the_policies_on_the_server_are_the_rendered_ones(cloud: Cloud) -> None:
    """C10: what was enforced above is what the command prints."""
    for file in render_policies("aws", PLACE, principals=PRINCIPALS_ALL):
        answer = cloud.iam("GetUserPolicy", UserName=file.principals[0], PolicyName="holdfast")
        document = re.search("<PolicyDocument>(.*?)</PolicyDocument>", answer, re.DOTALL)
        assert document is not None
        assert json.loads(urllib.parse.unquote(document[1])) == json.loads(file.text)
