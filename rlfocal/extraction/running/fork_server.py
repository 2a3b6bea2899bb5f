"""What the fork server imports first, so that it ends with the process that started it, its owner.

Python's own fork server notices its owner's death only between two forks, not during seconds of imports.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator

OWNER = "RLFOCAL_FORK_SERVER_OWNER"
SECONDS_BETWEEN_LOOKS = 0.2


@contextlib.contextmanager
def owned() -> Iterator[None]:
    """A fork server started inside learns this process's number."""
    os.environ[OWNER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[OWNER]


def _end_with(owner: int) -> None:
    while os.getppid() == owner:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)


# A fork server takes no call from its owner but an import; anywhere else the name is not set.
if OWNER in os.environ:
    threading.Thread(target=_end_with, args=(int(os.environ.pop(OWNER)),), daemon=True).start()
    gc.disable()  # looking for garbage takes a sixth of the imports' time
    os.register_at_fork(after_in_child=gc.enable)
