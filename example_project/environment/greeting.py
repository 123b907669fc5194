"""Read the first packet of a MySQL or MariaDB server. It shows that the server is ready, and its version."""

from __future__ import annotations

import socket
from pathlib import Path

_HEADER, _PROTOCOL = 4, 10


def version(path: Path) -> str | None:
    """Return the version of the server at this socket, or None if it does not serve yet."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(path))
            packet = connection.recv(4096)
    except OSError:
        return None
    if len(packet) <= _HEADER or packet[_HEADER] != _PROTOCOL:
        return None
    return packet[_HEADER + 1 :].split(b"\0", 1)[0].decode("ascii", "replace").removeprefix("5.5.5-")
