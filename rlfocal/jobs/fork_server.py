"""What the fork server imports first: it ends with the process that started it, its owner, and collects no garbage.

Python's own fork server notices its owner's death only between two forks, not during seconds of imports. Looking
for garbage among what is imported takes a fifth of that time, and half a second each time in every job.
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
    gc.disable()
    os.register_at_fork(before=gc.freeze, after_in_child=gc.enable)
