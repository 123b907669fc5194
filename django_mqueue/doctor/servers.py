"""Servers on which the promises of the queue fail. Pure functions of what ``store.server.variables`` read."""

from __future__ import annotations

from ..store.server.variables import Server
from .findings import ERROR, WARNING, Finding

MARIADB_LEAST, MYSQL_LEAST = (10, 11), (8, 4)

ABOUT = "server"
READ_ONLY = "E008"
_ONE_PRIMARY = (
    "Use one MySQL 8.4 or MariaDB 10.11 (or newer) with one writable primary for MQUEUE['DATABASE']."
)
_OTHER_SERVERS = {
    "tidb": (
        "TiDB",
        "TiDB allocates offsets for each of its servers in batches. A message can get a lower offset than messages that"
        " are already finished and deleted, and is then lost.",
    ),
    "vitess": (
        "Vitess",
        "With shards, each shard allocates its own offsets, and a transaction may commit on some shards only. Messages"
        " can be lost. Unsharded keyspaces are not tested: VTGate shares connections between clients.",
    ),
    "oceanbase": (
        "OceanBase",
        "OceanBase allocates offsets for each of its servers in batches, so messages can be lost.",
    ),
    "singlestore": (
        "SingleStore",
        "SingleStore allocates offsets for each of its aggregators in batches, so messages can be lost.",
    ),
}
"""The servers that speak MySQL's protocol and are neither MySQL nor MariaDB, by a word in their version."""


def findings(server: Server) -> list[Finding]:
    """Return errors and warnings about a server that the queue cannot rely on."""
    if other := _other(server):
        return [other]
    return [found for found in (_old(server), _writers(server), _read_only(server)) if found]


def other_product(name: str) -> Finding:
    """Return the finding about a database that is neither MySQL nor MariaDB."""
    return Finding(
        ERROR, ABOUT, f"the server is {name}", "The queue needs MySQL or MariaDB.",
        "Point MQUEUE['DATABASE'] at a MySQL or MariaDB entry of DATABASES.", "E002",
    )  # fmt: skip


def _is_on(server: Server, name: str) -> bool:
    return server.variables.get(name, "OFF").upper() not in ("OFF", "0", "")


def _other(server: Server) -> Finding | None:
    text = f"{server.text} {server.comment}".lower()
    for word, (name, why) in _OTHER_SERVERS.items():
        if word in text:
            return Finding(ERROR, ABOUT, f"the server is {name} ({server.text})", why, _ONE_PRIMARY, "E006")
    return None


def _old(server: Server) -> Finding | None:
    least = MARIADB_LEAST if server.is_mariadb else MYSQL_LEAST
    if server.version >= least:
        return None
    found, tested = (".".join(map(str, numbers)) for numbers in (server.version, least))
    why = f"The queue is not tested on servers older than {server.product} {tested}."
    if not server.is_mariadb:
        why += " MySQL 8.0, also as Aurora MySQL 3, has had no fixes from Oracle since April 2026."
    repair = f"Upgrade the server to {server.product} {tested} or newer."
    return Finding(ERROR, ABOUT, f"the server is {server.product} {found}", why, repair, "E009")


def _writers(server: Server) -> Finding | None:
    """Return the finding about several servers that accept writes."""
    why = (
        "Each server allocates its own offsets, and does not see the locks of the others. A message can get a lower"
        " offset than messages that are already finished, and is then lost."
    )
    if _is_on(server, "wsrep_on"):
        size = server.variables.get("wsrep_cluster_size", "")
        if size != "1":
            what = (
                f"Galera is on, and its cluster has {size or 'an unknown number of'} nodes that accept writes"
            )
            return Finding(ERROR, ABOUT, what, why, _ONE_PRIMARY, "E007")
        what = "Galera is on; its cluster has one node"
        return Finding(WARNING, ABOUT, what, f"With a second node: {why}", _ONE_PRIMARY, "W004")
    if server.variables.get("group_replication_group_name") and not _is_on(
        server, "group_replication_single_primary_mode"
    ):
        repair = "SELECT group_replication_switch_to_single_primary_mode();"
        return Finding(
            ERROR, ABOUT, "group replication runs in multi-primary mode: several servers accept writes",
            why, repair, "E007",
        )  # fmt: skip
    step = server.variables.get("auto_increment_increment", "1")
    if step != "1":
        repair = f"With one primary: SET GLOBAL auto_increment_increment = 1; otherwise: {_ONE_PRIMARY}"
        what = f"auto_increment_increment is {step}, as for several servers that accept writes"
        return Finding(WARNING, ABOUT, what, f"If they do: {why}", repair, "W004")
    return None


def _read_only(server: Server) -> Finding | None:
    for name in ("innodb_read_only", "super_read_only", "read_only", "transaction_read_only", "tx_read_only"):
        if _is_on(server, name):
            return Finding(
                ERROR, ABOUT, f"the server does not accept writes ({name} is {server.variables[name]})",
                "It is probably a replica, or a failover is not finished. Nothing can be published or consumed here,"
                " and a replica's rows may be old.",
                "Point HOST of MQUEUE['DATABASE'] to the primary (not to a reader endpoint).", READ_ONLY,
            )  # fmt: skip
    return None
