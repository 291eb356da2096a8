"""The few signed requests that tests make beside the store's own client: creating a bucket, a container, a user."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from email.utils import format_datetime

from holdfast.clock import Clock

__all__ = ["send", "sign_aws", "sign_azure"]

_TIMEOUT_S = 10.0


def send(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> tuple[int, bytes]:
    """One request without retries; an error status is an answer like any other."""
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def sign_aws(
    method: str,
    url: str,
    *,
    key_id: str,
    secret: str,
    clock: Clock,
    region: str = "us-east-1",
    service: str = "s3",
    body: bytes = b"",
) -> dict[str, str]:
    """The headers of a request signed with AWS Signature Version 4."""
    parts = urllib.parse.urlsplit(url)
    now = clock.now()
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    day = stamp[:8]
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    query = "&".join(
        sorted(
            f"{urllib.parse.quote(name, safe='-_.~')}={urllib.parse.quote(value, safe='-_.~')}"
            for name, value in urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        )
    )
    signed = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join([method, parts.path or "/", query, lines, signed, digest])
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for step in (day, region, service, "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    del headers["host"]
    credential = f"{key_id}/{scope}"
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}"
    )
    return headers


def sign_azure(method: str, url: str, *, account: str, key: str, clock: Clock) -> dict[str, str]:
    """The headers of a bodyless blob request signed with a shared key."""
    parts = urllib.parse.urlsplit(url)
    headers = {"x-ms-date": format_datetime(clock.now(), usegmt=True), "x-ms-version": "2021-12-02"}
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    query = "".join(f"\n{name}:{value}" for name, value in sorted(urllib.parse.parse_qsl(parts.query)))
    text = f"{method}{chr(10) * 12}{lines}/{account}{parts.path}{query}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), "sha256")).decode()
    headers["authorization"] = f"SharedKey {account}:{signature}"
    return headers
