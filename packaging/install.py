"""Installs into this Python's environment: by uv, in seconds where pip takes minutes; where it fails, by pip.

    python packaging/install.py [pip's options and requirements]

uv reads no pip.conf and none of pip's variables; what they say of indexes and certificates is passed on.
Where they name no index, uv takes the build of torch for this machine: without a GPU, the one for CPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import invalidate_caches
from importlib.util import find_spec

UV = "uv==0.9.9"
PASSED_ON = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "proxy": ("ALL_PROXY", " "),
}
"""pip's settings: uv's variables for them, and what separates several values."""
PLACES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_NO_INDEX")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def main(wanted: list[str]) -> int:
    if find_spec("uv") is None:
        subprocess.run([*PIP, "install", "--quiet", UV], check=False, stderr=subprocess.DEVNULL)
        invalidate_caches()
    if find_spec("uv") is not None:
        # As pip does: the best version, wherever it is found.
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--index-strategy=unsafe-best-match"]
        environment = uv_environment()
        for how in ways(environment):
            if (
                subprocess.run([*uv, *how, "--python", sys.executable, *wanted], env=environment).returncode
                == 0
            ):
                return 0
        print("uv could not install this; trying pip", file=sys.stderr)
    return subprocess.run([*PIP, "install", "--quiet", "--no-compile", *wanted]).returncode


def ways(environment: Mapping[str, str]) -> list[list[str]]:
    """Options for uv, one try after the other. The builds of torch are at a place of their own."""
    return [[]] if any(name in environment for name in PLACES) else [["--torch-backend=auto"], []]


def uv_environment() -> dict[str, str]:
    """The environment for uv; its own variables, where set, come before what pip was told."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    passed = {}
    for line in listed.splitlines():  # global.index-url='...', and :env:.index-url for PIP_INDEX_URL
        place, _, value = line.partition("=")
        scope, _, name = place.rpartition(".")
        if name in PASSED_ON and scope in ("global", "install", ":env:"):
            variable, separator = PASSED_ON[name]
            passed[variable] = separator.join(value.strip("'\"").replace("\\n", " ").split())
    return passed | os.environ


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
