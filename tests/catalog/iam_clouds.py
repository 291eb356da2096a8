"""Three small judges: each reads a rendered policy as its cloud would, and says whether a request is allowed.

Written from the clouds' documentation and not from the code that renders; what they do not know they refuse to judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.catalog.iam_witness import Verb

PROJECT = "acme-data"
ACCOUNT = (
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/data"
    "/providers/Microsoft.Storage/storageAccounts/acmelake"
)


class Judge(Protocol):
    """Whether the principal may do this at this key of the bucket; to list is asked with a prefix that ends in `/`."""

    def __call__(self, verb: Verb, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class AwsJudge:
    """IAM: denied unless a statement allows the action on the resource under its condition."""

    policy: Mapping[str, Any]
    bucket: str

    def __call__(self, verb: Verb, key: str) -> bool:
        if verb is Verb.LIST:
            return self.allows("s3:ListBucket", f"arn:aws:s3:::{self.bucket}", {"s3:prefix": key})
        actions = {
            Verb.READ: ["s3:GetObject"],
            Verb.CREATE: ["s3:PutObject"],
            Verb.REPLACE: ["s3:PutObject"],
            Verb.UPLOAD: ["s3:PutObject", "s3:AbortMultipartUpload"],
            Verb.DELETE: ["s3:DeleteObject"],
        }[verb]
        context = {Verb.CREATE: {"s3:if-none-match": "*"}, Verb.REPLACE: {"s3:if-match": '"e"'}}.get(verb, {})
        return all(self.allows(action, f"arn:aws:s3:::{self.bucket}/{key}", context) for action in actions)

    def allows(self, action: str, resource: str, context: Mapping[str, str]) -> bool:
        assert self.policy["Version"] == "2012-10-17"
        return any(
            action in one["Action"]
            and any(_like(resource, pattern) for pattern in one["Resource"])
            and all(_holds(test, one["Condition"][test], context) for test in one.get("Condition", {}))
            for one in self.policy["Statement"]
            if one["Effect"] == "Allow"
        )


def _like(text: str, pattern: str) -> bool:
    """IAM's `*` and `?`, which know no folders."""
    regex = "".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in pattern)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def _holds(test: str, keys: Mapping[str, list[str]], context: Mapping[str, str]) -> bool:
    match test:
        case "StringLike":
            return all(key in context and any(_like(context[key], one) for one in keys[key]) for key in keys)
        case "Null":
            return all(values == [str(key not in context).lower()] for key, values in keys.items())
        case _:
            raise AssertionError(f"{test} is not a test that this judge knows")


@dataclass(frozen=True, slots=True)
class GcpJudge:
    """Allow policies: a binding gives the permissions of its role where its condition holds."""

    policy: Mapping[str, Any]
    bucket: str

    def __call__(self, verb: Verb, key: str) -> bool:
        parts = ["storage.multipartUploads.abort", "storage.multipartUploads.create"]
        permissions = {
            Verb.READ: ["storage.objects.get"],
            Verb.CREATE: ["storage.objects.create"],
            Verb.REPLACE: ["storage.objects.create", "storage.objects.delete"],
            Verb.UPLOAD: ["storage.objects.create", *parts],
            Verb.DELETE: ["storage.objects.delete"],
        }
        if verb is Verb.LIST:
            return self._lists(key)
        return all(self._allows(one, key) for one in permissions[verb])

    def _roles(self) -> dict[str, list[str]]:
        return {role["name"]: role["includedPermissions"] for role in self.policy["roles"]}

    def _allows(self, permission: str, key: str) -> bool:
        name = f"projects/_/buckets/{self.bucket}/objects/{key}"

        def atom(text: str) -> bool:
            if text.startswith("resource.type"):
                return text == 'resource.type == "storage.googleapis.com/Object"'
            found = re.fullmatch(r'resource\.name\.startsWith\("([^"]*)"\)', text)
            assert found is not None, text
            return name.startswith(found[1])

        return any(
            permission in self._roles()[one["role"]]
            and ("condition" not in one or judged(one["condition"]["expression"], _CEL, atom))
            for one in self.policy["bucketPolicy"]["bindings"]
        )

    def _lists(self, prefix: str) -> bool:
        """By a managed folder that the prefix is in, or without a condition on the bucket."""
        permission = "storage.objects.list"
        return any(
            permission in self._roles()[one["role"]] and "condition" not in one
            for one in self.policy["bucketPolicy"]["bindings"]
        ) or any(
            permission in self._roles()[one["role"]] and prefix.startswith(folder["name"])
            for folder in self.policy["managedFolders"]
            for one in folder["policy"]["bindings"]
        )


@dataclass(frozen=True, slots=True)
class AzureJudge:
    """A role assignment: the role has the data action, and the condition holds for the request."""

    policy: Mapping[str, Any]

    def __call__(self, verb: Verb, key: str) -> bool:
        blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
        word = {Verb.READ: "read", Verb.LIST: "read", Verb.DELETE: "delete"}.get(verb, "write")
        action = f"{blobs}/{word}"
        attribute = f"@Request[{blobs}:prefix]" if verb is Verb.LIST else f"@Resource[{blobs}:path]"

        def atom(text: str) -> bool:
            if found := re.fullmatch(r"ActionMatches\{'([^']*)'\}", text):
                return found[1] == action
            if text == "SubOperationMatches{'Blob.List'}":
                return verb is Verb.LIST
            found = re.fullmatch(r"(@\w+\[[^]]*\]) StringStartsWith '([^']*)'", text)
            assert found is not None, text
            # An attribute that the request does not have makes its comparison false.
            return found[1] == attribute and key.startswith(found[2])

        assert self.policy["roleAssignment"]["conditionVersion"] == "2.0"
        if action not in self.policy["roleDefinition"]["DataActions"]:
            return False
        return judged(self.policy["roleAssignment"]["condition"], _ABAC, atom)


_CEL = re.compile(r'\s*(resource\.type == "[^"]*"|resource\.name\.startsWith\("[^"]*"\)|&&|\|\||!|\(|\))')
_ABAC = re.compile(
    r"\s*((?:Sub)?\w*Matches\{'[^']*'\}|@\w+\[[^]]*\] \w+ '[^']*'|AND\b|OR\b|NOT\b|!|\(|\))",
)


def judged(text: str, token: re.Pattern[str], atom: Callable[[str], bool]) -> bool:
    """What a condition says: atoms joined by and, or, not and brackets."""
    tokens: list[str] = []
    at = 0
    while at < len(text):
        found = token.match(text, at)
        assert found is not None, f"not understood: {text[at : at + 80]!r}"
        tokens.append({"AND": "&&", "OR": "||", "NOT": "!"}.get(found[1], found[1]))
        at = found.end()
    value = _either(tokens, atom)
    assert tokens == [], f"left over: {tokens}"
    return value


def _either(tokens: list[str], atom: Callable[[str], bool]) -> bool:
    value = _both(tokens, atom)
    while tokens[:1] == ["||"]:
        tokens.pop(0)
        value = _both(tokens, atom) or value
    return value


def _both(tokens: list[str], atom: Callable[[str], bool]) -> bool:
    value = _one(tokens, atom)
    while tokens[:1] == ["&&"]:
        tokens.pop(0)
        value = _one(tokens, atom) and value
    return value


def _one(tokens: list[str], atom: Callable[[str], bool]) -> bool:
    first = tokens.pop(0)
    if first == "!":
        return not _one(tokens, atom)
    if first == "(":
        value = _either(tokens, atom)
        assert tokens.pop(0) == ")"
        return value
    return atom(first)
