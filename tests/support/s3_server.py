"""A real S3 server for the tests: moto's, on a free port of this machine.

In a process of its own: vLLM reads an attribute of all that is imported, and Flask's proxies refuse that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

BUCKET = "lake"
KEYS = {
    "AWS_ACCESS_KEY_ID": "reader-of-lakes",
    "AWS_SECRET_ACCESS_KEY": "only-for-tests",
    "AWS_REGION": "us-east-1",
}
_EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
)


@contextmanager
def running(lasting: Path | None = None) -> Iterator[str]:
    """The URL of a server with an empty bucket.

    lasting: a JSON file that says how many requests of each session token the server still answers; it
    refuses others as S3 refuses expired tokens. Tokens that it does not name last.
    """
    from support.servers import free_port, wait_until_open

    port = free_port()
    command = [sys.executable, __file__, str(port), *([str(lasting)] if lasting else [])]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_open(port)
            key, secret, region = KEYS.values()
            boto3.client(
                "s3",
                endpoint_url=url,
                aws_access_key_id=key,
                aws_secret_access_key=secret,
                region_name=region,
            ).create_bucket(Bucket=BUCKET)
            yield url
        finally:
            server.terminate()


def _serve(port: int, lasting: Path | None) -> None:
    from moto.moto_server import werkzeug_app as moto
    from werkzeug.serving import run_simple

    s3, seen = moto.DomainDispatcherApplication(moto.create_backend_app), Counter[str]()

    def answer(request: dict[str, Any], start: Callable[..., Any]) -> Any:
        token = request.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
        most = json.loads(lasting.read_text("utf-8")) if lasting else {}
        seen[token] += token in most
        if token not in most or seen[token] <= most[token]:
            return s3(request, start)
        request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
        start("400 Bad Request", [("Content-Type", "application/xml")])
        return [_EXPIRED]

    run_simple("127.0.0.1", port, answer, threaded=True, request_handler=moto.MotoRequestHandler)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else None)
