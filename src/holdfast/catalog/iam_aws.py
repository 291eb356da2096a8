"""Policies for AWS: one IAM policy document for each principal, and the same as Terraform.

What S3 makes of the verbs:

- A conditional write is a plain `s3:PutObject`. To replace against an ETag S3 asks for `s3:GetObject` too.
- Uploads in parts are `s3:PutObject`; giving one up is `s3:AbortMultipartUpload`.
- A look at the metadata is `s3:GetObject`. S3 cannot tell it from a read.
- `s3:ListBucket` is a right on the bucket; the prefix is a condition. Stores list folders with a `/` at the end.
- An object that is not there is 404 only to who may list the whole bucket, and 403 to all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.catalog.iam import Place, Rights, describe, rights_of
from holdfast.catalog.iam_hcl import Block, Expression, Value
from holdfast.catalog.iam_witness import Verb
from holdfast.errors import BadInput

__all__ = ["aws_policy", "aws_terraform", "check_aws_bucket"]

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NAME_MAX = 128
_BUCKET_ARN = "arn:aws:s3:::{bucket}"
_OBJECTS_ARN = "arn:aws:s3:::{bucket}/{prefix}*"
_LISTED = "{prefix}*"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    """What is allowed, where, and under which condition (test, key, values)."""

    sid: str
    action: str
    resources: tuple[str, ...]
    condition: tuple[str, str, tuple[str, ...]] | None = None

    def to_json(self) -> dict[str, object]:
        body: dict[str, object] = {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": [self.action],
            "Resource": list(self.resources),
        }
        if self.condition is None:
            return body
        test, key, values = self.condition
        return {**body, "Condition": {test: {key: list(values)}}}

    def to_block(self) -> Block:
        attributes: dict[str, Value] = {
            "sid": self.sid,
            "effect": "Allow",
            "actions": [self.action],
            "resources": self.resources,
        }
        if self.condition is None:
            return Block("statement", (), attributes)
        test, key, values = self.condition
        condition = Block("condition", (), {"test": test, "variable": key, "values": values})
        return Block("statement", (), attributes, (condition,))


def check_aws_bucket(bucket: str) -> None:
    """BadInput unless S3 would take the name."""
    if not _BUCKET.fullmatch(bucket):
        raise BadInput(f"{bucket!r} is no name of an S3 bucket: use 3 to 63 lower-case letters, digits, - and .")


def aws_policy(
    principal: str, place: Place, *, see_missing: bool = False, write_once: bool = False
) -> dict[str, object]:
    """The policy document to attach to the principal's role or user."""
    statements = _statements(principal, place, see_missing, write_once)
    return {"Version": "2012-10-17", "Statement": [one.to_json() for one in statements]}


def aws_terraform(
    principals: Sequence[str], place: Place, *, see_missing: bool = False, write_once: bool = False
) -> list[Block]:
    """For each principal its document and a policy made of it; attaching it to a role is the caller's."""
    blocks = []
    arns: dict[str, Value] = {}
    for principal in principals:
        label = "holdfast_" + principal.replace("-", "_")
        statements = tuple(one.to_block() for one in _statements(principal, place, see_missing, write_once))
        name = f"holdfast-{place.name}-{principal}"
        if len(name) > _NAME_MAX:
            raise BadInput(f"{name!r} is longer than the {_NAME_MAX} characters of a policy's name; use --format json")
        policy: dict[str, Value] = {
            "name": name,
            "description": describe(principal),
            "policy": Expression(f"data.aws_iam_policy_document.{label}.json"),
        }
        blocks += [
            Block("data", ("aws_iam_policy_document", label), {}, statements, comment=describe(principal)),
            Block("resource", ("aws_iam_policy", label), policy),
        ]
        arns[principal] = Expression(f"aws_iam_policy.{label}.arn")
    comment = "Attach each to the role that its principal runs as."
    return [*blocks, Block("output", ("holdfast_policy_arns",), {"value": arns}, comment=comment)]


def _statements(principal: str, place: Place, see_missing: bool, write_once: bool) -> Iterator[_Statement]:
    rights = rights_of(principal, place)
    if Verb.READ in rights:
        yield _on_objects("Read", "s3:GetObject", place, rights[Verb.READ])
    yield from _conditional_writes(place, rights) if write_once else _writes(place, rights)
    if Verb.UPLOAD in rights:
        yield _on_objects("GiveUpUploads", "s3:AbortMultipartUpload", place, rights[Verb.UPLOAD])
    if Verb.DELETE in rights:
        yield _on_objects("Delete", "s3:DeleteObject", place, rights[Verb.DELETE])
    bucket = (_BUCKET_ARN.format(bucket=place.bucket),)
    if see_missing:
        yield _Statement(sid="TellMissing", action="s3:ListBucket", resources=bucket)
    elif Verb.LIST in rights:
        listed = tuple(_LISTED.format(prefix=prefix) for prefix in rights[Verb.LIST])
        condition = ("StringLike", "s3:prefix", listed)
        yield _Statement(sid="List", action="s3:ListBucket", resources=bucket, condition=condition)


def _writes(place: Place, rights: Rights) -> Iterator[_Statement]:
    """`s3:PutObject`, whatever its condition."""
    written = [prefix for verb in (Verb.CREATE, Verb.REPLACE, Verb.UPLOAD) for prefix in rights.get(verb, ())]
    if written:
        yield _on_objects("Write", "s3:PutObject", place, tuple(dict.fromkeys(written)))


def _conditional_writes(place: Place, rights: Rights) -> Iterator[_Statement]:
    """`s3:PutObject` for requests that carry the condition that Holdfast's own carry, and for no others.

    Where uploads in parts go any request is taken: their last one has no condition.
    """
    uploaded = rights.get(Verb.UPLOAD, ())
    for verb, sid, key in ((Verb.CREATE, "Create", "s3:if-none-match"), (Verb.REPLACE, "Replace", "s3:if-match")):
        prefixes = tuple(prefix for prefix in rights.get(verb, ()) if prefix not in uploaded)
        if prefixes:
            yield _on_objects(sid, "s3:PutObject", place, prefixes, ("Null", key, ("false",)))
    if uploaded:
        yield _on_objects("Upload", "s3:PutObject", place, uploaded)


def _on_objects(
    sid: str,
    action: str,
    place: Place,
    prefixes: Sequence[str],
    condition: tuple[str, str, tuple[str, ...]] | None = None,
) -> _Statement:
    resources = tuple(_OBJECTS_ARN.format(bucket=place.bucket, prefix=prefix) for prefix in prefixes)
    return _Statement(sid=sid, action=action, resources=resources, condition=condition)
