"""Scripts that somebody else starts, such as the cells of a notebook: they connect to a client by its socket."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(path: str | Path) -> None:
    """Makes `rounds` connect to a client with `learner = { attach = "trainer.sock" }`: for notebooks and debuggers.

    The socket is in the state folder of the client, from the first round on. `FL_ATTACH=PATH` in the environment is the same.
    """
    os.environ["FL_ATTACH"] = os.path.abspath(path)
    os.environ.pop("FL_TRAINER_DEVICE", None)


def connected() -> tuple[int, int]:
    """The descriptors of a connection to the client of `FL_ATTACH`, as soon as a client listens there."""
    path = os.path.abspath(os.environ["FL_ATTACH"])
    print(f"fl: attaching to {path} as soon as a client listens there", file=sys.stderr)
    # By a symbolic link, since the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as connection:
        os.symlink(path, link := os.path.join(folder, "trainer.sock"))
        while connection.connect_ex(link):
            time.sleep(0.5)
        both = connection.detach()
        return both, both


def after_each_cell(function: Callable[[Any], Any]) -> None:
    """Calls `function` with the error of each cell, which is not the end of the script; None for a cell without one."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell:
        shell.events.register("post_run_cell", lambda cell: function(cell.error_in_exec))
