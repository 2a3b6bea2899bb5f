"""A real S3 server for the tests: moto's, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "lake"
KEYS = {
    "AWS_ACCESS_KEY_ID": "reader-of-lakes",
    "AWS_SECRET_ACCESS_KEY": "only-for-tests",
    "AWS_REGION": "us-east-1",
}


@contextmanager
def running() -> Iterator[str]:
    """The URL of a server with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
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
        server.stop()
