"""recur studio: local web page for a folder of runs."""

from __future__ import annotations

import secrets
import shlex
import signal
import sys
import webbrowser
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

from recur.cli.options import Opening, Output
from recur.cli.screen import Screen
from recur.errors import OptionError, RecurError

verb = App(
    help_epilogue="""Examples:
  recur studio                                the runs in runs/, at the address that it prints
  recur studio experiments --port 9000 --open
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
    read_only: Annotated[bool, Parameter(negative="")] = False,
    open_browser: Annotated[bool, Parameter(name="--open", negative="")] = False,
    threads: int = 0,
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Serve a local page for a folder of runs: train, compare, generate, and look inside.

    Parameters
    ----------
    folder
        Folder of the runs.
    port
        Port to listen on.
    host
        Address to listen on; other addresses than loopback need --token.
    token
        Access token instead of a random one; requests without it are refused.
    read_only
        Only show runs: no training, uploads or notes.
    open_browser
        Open the page in the browser.
    threads
        CPU threads of the models; 0: as many as each was trained with.
    """
    screen = Screen(output)
    if not folder.is_dir() and (read_only or folder != Path("runs")):
        raise OptionError(f"{folder} is not a folder; train something first: recur train --out {folder}/first")
    try:
        from recur.serve.server import LOOPBACK, check_address, listen, make_server, server_url
        from recur.studio.app import end_training, make_app
    except ModuleNotFoundError as error:
        raise RecurError(f"{error.name} is not installed: pip install 'recur[studio]'") from None
    check_address(host, port, token is not None)
    if token is not None and not (token and token.isprintable()):
        raise OptionError("--token must be at least one character that can be printed")
    with listen(host, port) as listening:
        hosts = (*LOOPBACK, host) if token is None else None  # who is given a token may come under any name
        token = token or secrets.token_urlsafe(24)
        app = make_app(folder, token, hosts, opening.trust, read_only, threads=threads)
        server = make_server(app)
        address = f"{server_url(listening, host)}/?token={quote(token)}"
        screen.show(f"{folder} is served until Ctrl-C at {address}")
        screen.result({"address": address, "folder": str(folder)})
        sys.stdout.flush()
        if open_browser:
            webbrowser.open(address)
        signal.signal(signal.SIGTERM, _leave)  # the server's own handler comes before it, and passes the signal on
        try:
            server.run(sockets=[listening])
        finally:
            if stopped := end_training(app):
                screen.note(f"{stopped} was stopped; resume it with: recur resume {shlex.quote(str(folder / stopped))}")


def _leave(*_: object) -> None:
    raise KeyboardInterrupt
