"""TLS of a connection: what the parameters of mysqlclient require, and what its client library enforces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import MySQLdb

from .dialect import SSL_MODES

Encryption = Literal["optional", "required", "verified"]

_MYSQL_VERSIONS = ("5", "8", "9")
_LOCAL = ("", "localhost", "127.0.0.1", "::1")


def required(parameters: Mapping[str, Any]) -> Encryption:
    """Return the encryption that the parameters ``ssl_mode`` and ``ssl`` of mysqlclient require.

    "required" accepts any server that offers TLS; "verified" checks its certificate. A mapping in ``ssl`` requires
    nothing: it only names files.
    """
    mode, ssl = parameters.get("ssl_mode"), parameters.get("ssl")
    if mode is None:
        return "required" if ssl and not isinstance(ssl, Mapping) else "optional"
    if mode in SSL_MODES[SSL_MODES.index("VERIFY_CA") :]:
        return "verified"
    return "required" if mode == "REQUIRED" else "optional"


def client_library() -> str:
    """Return the version of the client library that mysqlclient is linked with."""
    return str(MySQLdb.get_client_info())


def required_is_enforced() -> bool:
    """Return whether the client library sends no password before the connection is encrypted.

    MySQL's library does so for REQUIRED. MariaDB's (3.x) continues without TLS if the server offers none, and sends the
    password as plain text if the server asks for it (``mysql_clear_password``). Only verification prevents both. An
    unknown library is treated as MariaDB's.
    """
    return client_library().split(".")[0] in _MYSQL_VERSIONS


def enforced(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that make the client library encrypt as ``required`` says, before it sends the password.

    Raises ``NotSupportedError`` if this needs a certificate authority and the parameters name none.
    """
    if required(parameters) != "required" or required_is_enforced():
        return dict(parameters)
    ssl = parameters.get("ssl")
    named = isinstance(ssl, Mapping) and (ssl.get("ca") or ssl.get("capath"))
    if not named and not parameters.get("read_default_file"):
        raise MySQLdb.NotSupportedError(
            f"ssl_mode is REQUIRED, but mysqlclient uses MariaDB's client library ({client_library()}), which then"
            " sends the password before it knows that the server offers TLS. Name the server's certificate authority"
            " (sslCa of Spark's options, ssl['ca'] in OPTIONS), or build mysqlclient with MySQL's client library"
        )
    return {**parameters, "ssl_mode": "VERIFY_CA", "ssl": ssl if isinstance(ssl, Mapping) else {}}


def is_remote(parameters: Mapping[str, Any]) -> bool:
    """Return whether the server may be on another machine."""
    host = str(parameters.get("host") or "")
    return not parameters.get("unix_socket") and host not in _LOCAL and not host.startswith("/")
