"""Address of a server: checked before models are loaded, and bound before the address is printed.

This module needs no extra package: the command line checks an address before it imports a server.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from recur.errors import OptionError


def check_address(host: str, port: int, has_token: bool) -> None:
    """Refuse a port out of range, and a host that other machines can reach without a token."""
    if not 0 <= port < 65536:
        raise OptionError(f"--port must lie in 0 … 65535, got {port}")
    if not _is_loopback(host) and not has_token:
        raise OptionError(f"--host {host} can be reached from other machines; it needs --token")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OptionError(f"port {port} is in use; say another --port, or 0 for any that is free") from None


def server_url(listening: socket.socket, host: str) -> str:
    """Return the URL of a listening socket."""
    name = f"[{host}]" if listening.family == socket.AF_INET6 else host
    return f"http://{name}:{listening.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
