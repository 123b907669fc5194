"""A false database server. It asks each client for the password in clear text, and stores what the client sends."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SSL, CAPABILITIES = 0x800, 0x0008F20D
"""CLIENT_SSL, and the capabilities of any current server: protocol 4.1, secure connection, plugins."""

SCRAMBLE = b"12345678abcdefghijkl"


@dataclass
class RogueServer:
    """``received``: all bytes from clients, after decryption. ``clients``: the number of accepted connections."""

    port: int
    received: bytearray = field(default_factory=bytearray)
    clients: int = 0


@contextmanager
def rogue_server(key_and_certificate: tuple[Path, Path] | None = None) -> Iterator[RogueServer]:
    """Listen at 127.0.0.1 until the block ends. Without a key the server offers no TLS."""
    context = None
    if key_and_certificate is not None:
        key, certificate = key_and_certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        rogue = RogueServer(listener.getsockname()[1])
        thread = threading.Thread(target=_serve, args=(listener, rogue, context))
        thread.start()
        try:
            yield rogue
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, rogue: RogueServer, context: ssl.SSLContext | None) -> None:
    with suppress(OSError):  # The listener has closed.
        while True:
            client, _ = listener.accept()
            rogue.clients += 1
            with suppress(OSError, EOFError):
                _greet(client, rogue, context)
            client.close()


def _greet(client: socket.socket, rogue: RogueServer, context: ssl.SSLContext | None) -> None:
    """Offer a login, request the password by ``mysql_clear_password``, and refuse it."""
    client.settimeout(20)
    able = CAPABILITIES | (SSL if context else 0)
    greeting = b"\x0a8.4.0\0" + (1).to_bytes(4, "little") + SCRAMBLE[:8] + b"\0"
    greeting += (able & 0xFFFF).to_bytes(2, "little") + b"\x2d\x02\x00" + (able >> 16).to_bytes(2, "little")
    greeting += b"\x15" + bytes(10) + SCRAMBLE[8:] + b"\0mysql_native_password\0"
    _send(client, 0, greeting)
    number, login = _receive(client, rogue)
    if context and len(login) == 32:  # The client requests TLS before it logs in.
        with context.wrap_socket(client, server_side=True) as encrypted:
            _ask(encrypted, rogue, _receive(encrypted, rogue)[0])
    else:
        _ask(client, rogue, number)


def _ask(client: socket.socket, rogue: RogueServer, number: int) -> None:
    _send(client, number + 1, b"\xfemysql_clear_password\0" + SCRAMBLE + b"\0")
    number, _ = _receive(client, rogue)
    _send(client, number + 1, b"\xff\x15\x04#28000Access denied")


def _send(client: socket.socket, number: int, packet: bytes) -> None:
    client.sendall(len(packet).to_bytes(3, "little") + bytes([number]) + packet)


def _receive(client: socket.socket, rogue: RogueServer) -> tuple[int, bytes]:
    head = _exactly(client, 4, rogue)
    return head[3], _exactly(client, int.from_bytes(head[:3], "little"), rogue)


def _exactly(client: socket.socket, count: int, rogue: RogueServer) -> bytes:
    found = b""
    while len(found) < count:
        if not (part := client.recv(count - len(found))):
            raise EOFError
        rogue.received += part
        found += part
    return found
