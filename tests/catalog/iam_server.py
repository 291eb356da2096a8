"""An S3 server that enforces policies, with a user for each principal; and a front that hides what is not there."""

from __future__ import annotations

import http.client
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast.clock import SystemClock
from holdfast.testing.servers import Server
from holdfast.testing.signing import send, sign_aws


@dataclass(slots=True)
class Cloud:
    """The server, and a pair of keys for each principal; `admin` may do everything."""

    server: Server
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)

    def environment(self, who: str, *, endpoint: str | None = None) -> dict[str, str]:
        """The variables that make a store use somebody's keys."""
        key_id, secret = self.keys[who]
        own = {"AWS_ACCESS_KEY_ID": key_id, "AWS_SECRET_ACCESS_KEY": secret}
        return {**self.server.environment, **own, **({} if endpoint is None else {"AWS_ENDPOINT_URL": endpoint})}

    def iam(self, action: str, **parameters: str) -> str:
        body = urllib.parse.urlencode({"Action": action, "Version": "2010-05-08", **parameters}).encode()
        url = f"{self.server.endpoint}/"
        key_id, secret = self.keys["admin"]
        signed = sign_aws("POST", url, key_id=key_id, secret=secret, clock=SystemClock(), service="iam", body=body)
        status, answer = send(
            "POST", url, headers={**signed, "content-type": "application/x-www-form-urlencoded"}, body=body
        )
        assert status == 200, answer
        return answer.decode()

    def add_user(self, name: str, policy: str) -> None:
        self.iam("CreateUser", UserName=name)
        self.iam("PutUserPolicy", UserName=name, PolicyName="holdfast", PolicyDocument=policy)
        answer = self.iam("CreateAccessKey", UserName=name)
        key_id, secret = (re.search(f"<{tag}>(.*?)</{tag}>", answer) for tag in ("AccessKeyId", "SecretAccessKey"))
        assert key_id is not None
        assert secret is not None
        self.keys[name] = (key_id[1], secret[1])


class Discreet:
    """A front for the server that does what S3 does and the server does not: who may not list is not told that an
    object is missing, but that it is forbidden."""

    def __init__(self, cloud: Cloud, *, seeing: set[str]) -> None:
        self.cloud = cloud
        self.seeing = seeing
        """Who may list the whole bucket."""
        front = self
        target = urllib.parse.urlsplit(cloud.server.endpoint).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                upstream = http.client.HTTPConnection(target, timeout=30)
                try:
                    # With its own Host, which is part of the signature.
                    upstream.request(self.command, self.path, body=body or None, headers=dict(self.headers))
                    found = upstream.getresponse()
                    status, data, headers = found.status, found.read(), found.getheaders()
                finally:
                    upstream.close()
                if status == 404 and self.command in {"GET", "HEAD"} and not front.sees(self.headers["authorization"]):
                    status, data = 403, b"<Error><Code>AccessDenied</Code></Error>"
                    headers = [("content-type", "application/xml")]
                told = {name.lower(): value for name, value in headers} if self.command == "HEAD" else {}
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                        self.send_header(name, value)
                self.send_header("content-length", told.get("content-length", str(len(data))))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else data)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - what the base class looks for

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def sees(self, authorization: str) -> bool:
        found = re.search(r"Credential=([^/]+)/", authorization)
        return found is not None and found[1] in {self.cloud.keys[who][0] for who in self.seeing}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
