"""A real S3 server for the tests: moto's, on a free port of this machine.

In a process of its own: vLLM reads an attribute of all that is imported, and Flask's proxies refuse that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import boto3

from support.servers import free_port, wait_until_open

BUCKET = "lake"
KEYS = {
    "AWS_ACCESS_KEY_ID": "reader-of-lakes",
    "AWS_SECRET_ACCESS_KEY": "only-for-tests",
    "AWS_REGION": "us-east-1",
}


@contextmanager
def running() -> Iterator[str]:
    """The URL of a server with an empty bucket."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
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
