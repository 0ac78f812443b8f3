"""recur studio: a local page over a folder of runs."""

from __future__ import annotations

import ipaddress
import socket
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

from recur.cli.options import Output
from recur.cli.screen import Screen
from recur.errors import OptionError, RecurError

verb = App(
    help_epilogue="""Examples:
  recur studio                                the runs in runs/, at http://127.0.0.1:8765
  recur studio experiments --port 9000
  recur studio --host 0.0.0.0 --token SECRET  for others who have the token"""
)


@verb.default
def studio(
    folder: Path = Path("runs"),
    /,
    *,
    port: int = 8765,
    host: str = "127.0.0.1",
    token: str | None = None,
    own_cells: Annotated[bool, Parameter(negative="")] = False,
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Serve a local page over a folder of runs: their curves, generated text, activations and gradients.

    Parameters
    ----------
    folder
        Where the runs are.
    port
        The port to listen on.
    host
        The address to listen on; any but a loopback address needs a token.
    token
        Requests without it are refused.
    own_cells
        Open runs whose cell is in a Python file too: that executes the file.
    """
    screen = Screen(output)
    if not folder.is_dir():
        raise OptionError(f"{folder} is not a folder; train something first: recur train --out {folder}/first")
    if not 0 <= port < 65536:
        raise OptionError(f"--port must lie in 0 … 65535, got {port}")
    if not _is_loopback(host) and not token:
        raise OptionError(f"--host {host} can be reached from other machines; it needs --token")
    try:
        import uvicorn

        from recur.studio.app import make_app
        from recur.studio.guard import LOOPBACK
    except ImportError:
        raise RecurError("the studio needs starlette and uvicorn: pip install 'recur[studio]'") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:  # a port in use is an error of one line
        app = make_app(folder, token, (*LOOPBACK, host), own_cells)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        name = f"[{host}]" if family == socket.AF_INET6 else host
        address = f"http://{name}:{listening.getsockname()[1]}/" + (f"?token={quote(token)}" if token else "")
        screen.show(f"{folder} is served at {address}; stop with Ctrl-C")
        screen.result({"address": address, "folder": str(folder)})
        sys.stdout.flush()
        server.run(sockets=[listening])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
