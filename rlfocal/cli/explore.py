"""`rlfocal explore`: a live view of a warehouse in the browser."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location


@command("explore", "Learn and compare")
def explore(
    port: Annotated[int | None, Option("The port to serve on.", 1, 65535, default="a free one")] = None,
    headless: Annotated[bool, Option("Print the address, open no browser.")] = False,
    warehouse: Location = None,
) -> None:
    """Look at a warehouse as it is kept: leaderboards, any pool's diversity, what is missing, and SQL.

    Serves a marimo notebook on this machine's loopback, under an address with a password, until Ctrl-C. It
    only reads, and shows what others commit. Needs `pip install 'rlfocal[explore]'`.
    """
    from warehouse import open_warehouse
    from warehouse.locations import locate

    if find_spec("marimo") is None:
        raise InputError("marimo is not installed; pip install 'rlfocal[explore]'")
    place = locate(warehouse)
    open_warehouse(place, read_only=True).close()  # what is wrong with it is said here, not in a browser
    # In a folder of its own, and -P: marimo takes modules beside it, Python those where the user stands.
    notebook = Path(__file__).parents[1] / "report" / "live" / "notebook.py"
    options = [*(["--port", str(port)] if port else []), *(["--headless"] if headless else [])]
    served = [sys.executable, "-P", "-m", "marimo", "run", str(notebook), "--token", "--no-check", *options]
    # Not as an argument: all who are on the machine see those, and a URI may hold a password.
    address = str(place.directory or warehouse or os.environ["RLFOCAL_WAREHOUSE"])
    # The password of the page is a hash, which a fixed seed would give away.
    environment = os.environ | {"RLFOCAL_WAREHOUSE": address, "PYTHONHASHSEED": "random"}
    os.execve(sys.executable, served, environment)
