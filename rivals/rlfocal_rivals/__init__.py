"""Published rivals of RL-Focal.

Importing this package registers their methods. rlfocal imports it where it is installed.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    if not _module.name.endswith((".convert", ".networks")):  # a command; and torch, which takes seconds
        import_module(_module.name)
