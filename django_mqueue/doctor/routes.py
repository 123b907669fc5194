"""Proxies between this program and the server, encryption, and the clocks of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from django.db import connections

from .. import conf
from ..store.connection import encryption
from ..store.server.variables import Route
from .findings import ERROR, INFO, WARNING, Finding

ABOUT = "proxy"
_WHY = (
    "The queue sets variables of its session, and a worker's session holds a named lock (GET_LOCK) that shows that the"
    " worker lives. Both fail if the proxy runs statements of one connection in different sessions, or on a replica."
)
_REPAIRS = {
    "ProxySQL": "Give the queue's account a hostgroup with the primary alone, and no query rule that sends reads"
    " elsewhere. Set multiplex = 0 in its rule. Or connect workers directly.",
    "MaxScale": "Use the router readconnroute with router_options=master for the queue, not readwritesplit. Or connect"
    " workers directly.",
}
_REPAIR = (
    "Connect workers directly. Otherwise use the proxy's endpoint for writes, and let it keep a session for each"
    " connection (RDS Proxy does so by pinning: leave SessionPinningFilters empty)."
)


def proxy_findings(route: Route) -> Iterator[Finding]:
    """Yield a finding if the route shows signs of a proxy. Pure function."""
    name = _proxy(route)
    repair = _REPAIRS.get(name, _REPAIR)
    if len(set(route.ids)) > 1:
        sessions = ", ".join(map(str, route.ids))
        yield Finding(
            ERROR, ABOUT,
            f"{name or 'a proxy'} runs the statements of one connection in different sessions ({sessions})",
            _WHY, repair,
        )  # fmt: skip
    elif name:
        yield Finding(WARNING, ABOUT, f"the connection goes through {name}", _WHY, repair)


def _proxy(route: Route) -> str:
    """Return the name of the proxy; '' if there is no sign of one."""
    if route.proxy_version or "proxysql" in route.comment.lower():
        return "ProxySQL"
    if "maxscale" in f"{route.greeted} {route.text} {route.comment}".lower():
        return "MaxScale"
    greeted = route.greeted.removeprefix("5.5.5-")  # MariaDB's own prefix, for old replicas.
    # The greeting has 32 bits of the id.
    if route.greeted_id % 2**32 != route.ids[0] % 2**32 or not (
        route.text in greeted or greeted in route.text
    ):
        return "a proxy (perhaps RDS Proxy)"
    return ""


def encryption_findings(using: str, cipher: str) -> Iterator[Finding]:
    """Yield findings about encryption that the settings do not enforce, or that the connection lacks."""
    parameters = remote_parameters(using)
    yield from required_encryption(parameters)
    if parameters and not cipher:
        yield Finding(
            WARNING, "encryption", f"the connection to {parameters['host']} is not encrypted",
            "Others on the network can read every message.",
            "Set ssl_mode to VERIFY_CA or VERIFY_IDENTITY in the OPTIONS of the database, and 'ca' in ssl.",
        )  # fmt: skip
    else:
        yield from deployed_encryption(parameters)


def required_encryption(parameters: Mapping[str, Any]) -> Iterator[Finding]:
    if encryption.required(parameters) == "required" and not encryption.required_is_enforced():
        yield Finding(
            WARNING, "encryption",
            "ssl_mode is REQUIRED, but mysqlclient uses MariaDB's client library"
            f" ({encryption.client_library()})",
            "It continues without TLS if the server offers none, and then sends the password in the clear if the server"
            " asks for it.",
            "Set ssl_mode to VERIFY_CA in the OPTIONS of the database, and 'ca' in ssl.", "W011",
        )  # fmt: skip


def deployed_encryption(parameters: Mapping[str, Any]) -> Iterator[Finding]:
    if not parameters or encryption.required(parameters) != "optional" or "read_default_file" in parameters:
        return
    yield Finding(
        WARNING, "encryption",
        f"the server is at {parameters['host']}, and the connection may be unencrypted",
        "Others on the network can read every message, and a server that poses as yours can receive the password.",
        "Set ssl_mode to VERIFY_CA or VERIFY_IDENTITY in the OPTIONS of the database, and 'ca' in ssl.", "W012",
    )  # fmt: skip


def remote_parameters(using: str) -> dict[str, Any]:
    """Return mysqlclient's parameters; empty if the server is on this machine, or the settings are invalid."""
    if conf.problems() or connections[using].vendor != "mysql":
        return {}
    settings = connections[using].settings_dict
    parameters = {"host": settings["HOST"], **settings["OPTIONS"]}
    return parameters if encryption.is_remote(parameters) else {}


def clock_findings(difference: timedelta) -> Iterator[Finding]:
    """Yield a note if this machine's clock differs from the database's."""
    if abs(difference) > timedelta(seconds=1):
        yield Finding(
            INFO, "clocks", f"this machine's clock differs from the database's by {difference.total_seconds():+.1f} s",
            "The queue uses the database's clock alone, so messages are not affected. Times in this machine's logs"
            " differ from those of the queue.",
            "Run a time service (NTP) on both machines.",
        )  # fmt: skip
