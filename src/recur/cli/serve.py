"""recur serve: HTTP server for trained models."""

from __future__ import annotations

import logging
import secrets
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from recur.cli.options import Opening, Output
from recur.cli.screen import Screen, VisibleFormatter
from recur.errors import OptionError, RecurError

if TYPE_CHECKING:
    from recur.serve.models import ModelVersions

verb = App(
    help_epilogue="""Examples:
  recur serve runs/book                           a language model, as OpenAI's clients ask for it
  recur serve runs/book runs/names --port 9000    several: requests name one
  recur serve runs/book --sessions 100000 --idle 10 --spill sessions
  recur serve runs/book --watch                   newer weights take over while it trains
  recur serve runs/book --host 0.0.0.0 --token SECRET"""
)


@verb.default
def serve(
    runs: Annotated[list[Path], Parameter(name="RUN", negative="")],
    /,
    *,
    port: int = 8080,
    host: str = "127.0.0.1",
    token: Annotated[tuple[str, ...], Parameter(env_var="RECUR_TOKEN", negative="")] = (),
    no_token: Annotated[bool, Parameter(negative="")] = False,
    sessions: int = 10_000,
    idle: float = 30.0,
    spill: Path | None = None,
    keep: float = 24.0,
    rate: float = 0.0,
    max_tokens: int = 4096,
    grace: float = 30.0,
    watch: Annotated[bool, Parameter(negative="")] = False,
    device: str = "auto",
    products: str = "",
    threads: int = 0,
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Serve runs over HTTP: completions as in OpenAI's API, predictions, and sessions that are stepped as one batch.

    SIGTERM and Ctrl-C let running requests finish; SIGHUP loads newer weights.

    Parameters
    ----------
    runs
        Runs to serve, each by the name of its folder.
    port
        Port to listen on; 0: any free port.
    host
        Address to listen on; other addresses than loopback need --token.
    token
        Accepted access tokens instead of a random one. A session belongs to the token that created it.
    no_token
        Accept requests without a token from this machine.
    sessions
        Maximum number of sessions in memory.
    idle
        Minutes without a request after which a session ends, or moves to --spill.
    spill
        Folder for idle sessions; they are loaded again at the next request.
    keep
        Hours after which sessions in --spill and signed states expire.
    rate
        Maximum requests per second and token; 0: no limit.
    max_tokens
        Maximum tokens per completion.
    grace
        Seconds for running requests when the server stops.
    watch
        Load newer weights whenever a run has them.
    device
        Device: auto, cpu or cuda.
    products
        Precision of recurrent weights: bfloat16 or int8.
    threads
        CPU threads of the models; 0: as many as they were trained with, but at most all cores but one.
    """
    screen = Screen(output)
    try:
        from recur.serve.app import make_app
        from recur.serve.models import ModelVersions
        from recur.serve.registry import Registry, make_model_server
        from recur.serve.schemas import Limits
        from recur.serve.server import LOOPBACK, listen, server_url
    except ModuleNotFoundError as error:
        raise RecurError(f"{error.name} is not installed: pip install 'recur[serve]'") from None
    _check(port, host, token, no_token, sessions)
    for name, value in (("idle", idle), ("keep", keep), ("grace", grace)):
        if not 0 < value < 1e6:
            raise OptionError(f"--{name} must be a number above 0, got {value:g}")
    if rate < 0 or max_tokens < 1 or threads < 0:
        raise OptionError("--rate and --threads must not be negative, and --max-tokens at least 1")
    limits = Limits(rate=rate, max_tokens=max_tokens, sessions=sessions, idle=60 * idle, keep=3600 * keep, grace=grace)
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("recur: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.ERROR)
    with listen(host, port) as listening:  # before models are loaded
        models = ModelVersions(runs, limits, device, opening.trust, products)
        hub = Registry(models, limits, spill, threads)
        hosts = (*LOOPBACK, host) if not token else None  # who is given a token may come under any name
        tokens = () if no_token else token or (secrets.token_urlsafe(24),)
        server = make_model_server(make_app(hub, tokens, hosts), hub, watch=watch)
        _announce(screen, models, server_url(listening, host), tokens, generated=not token)
        server.run(sockets=[listening])


def _check(port: int, host: str, token: tuple[str, ...], no_token: bool, sessions: int) -> None:
    from recur.serve.server import check_address

    check_address(host, port, bool(token))
    if no_token and token:
        raise OptionError("--no-token and --token exclude each other")
    if not all(each and each.isprintable() for each in token):
        raise OptionError("--token must be at least one character that can be printed")
    if not 1 <= sessions <= 10**8:
        raise OptionError(f"--sessions must lie in 1 … 100,000,000, got {sessions:,}")


def _announce(screen: Screen, models: ModelVersions, address: str, tokens: tuple[str, ...], generated: bool) -> None:
    """Print the address, the models and an example request."""
    for served in models:
        what = "completions, sessions" if served.writes else "sessions" if not served.no_sessions else "predictions"
        note = f" (no sessions: {served.no_sessions})" if served.no_sessions else ""
        screen.show(f"{served.name}: {served.task}, {what}{note}")
    first = next(iter(models))
    path, body = ("/v1/completions", '{"max_tokens": 60}') if first.writes else ("/v1/predict", '{"input": "…"}')
    header = f" -H {shlex.quote(f'Authorization: Bearer {tokens[0]}')}" if tokens else ""
    screen.show(f"served until Ctrl-C at {address}/v1" + (f", token {tokens[0]}" if tokens and generated else ""))
    screen.show(f"try: curl {address}{path}{header} -H 'Content-Type: application/json' -d '{body}'")
    screen.result({
        "address": address, "models": [served.describe() for served in models],
        **({"token": tokens[0]} if tokens and generated else {}),
    })  # fmt: skip
    sys.stdout.flush()
