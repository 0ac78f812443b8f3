"""Where a server listens: checked before anything is loaded, and taken before anything is said of it."""

from __future__ import annotations

import errno
import ipaddress
import socket

from recur.errors import OptionError
from recur.i18n import Message


def check_address(host: str, port: int, has_token: bool) -> None:
    if not 0 <= port < 65536:
        raise OptionError(
            Message("{name} must lie in {low} … {high}, got {given}", name="--port", low="0", high="65535", given=port)
        )
    if not _is_loopback(host) and not has_token:
        raise OptionError(f"--host {host} can be reached from other machines; it needs --token")


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OptionError(f"port {port} is in use; say another --port, or 0 for any that is free") from None


def address_of(listening: socket.socket, host: str) -> str:
    name = f"[{host}]" if listening.family == socket.AF_INET6 else host
    return f"http://{name}:{listening.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
