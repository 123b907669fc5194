"""What the doctor says about servers, proxies and settings that the tests cannot run.

The variables of these servers are those that their manuals document.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_mqueue.doctor import routes, servers, variables
from django_mqueue.doctor.accounts import quoted
from django_mqueue.doctor.findings import ERROR, INFO, WARNING, Finding
from django_mqueue.store.server.variables import Route, Server

pytestmark = pytest.mark.once

GOOD = {
    "innodb_autoinc_lock_mode": "2", "auto_increment_increment": "1", "binlog_format": "ROW", "log_bin": "ON",
    "sql_mode": "STRICT_TRANS_TABLES", "transaction_isolation": "READ-COMMITTED", "max_allowed_packet": "67108864",
    "innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "wait_timeout": "28800",
    "innodb_lock_wait_timeout": "50", "read_only": "OFF", "super_read_only": "OFF", "innodb_read_only": "OFF",
    "performance_schema": "ON", "character_set_client": "utf8mb4", "character_set_connection": "utf8mb4",
    "character_set_results": "utf8mb4",
}  # fmt: skip


def mysql(text: str = "8.4.3", comment: str = "MySQL Community Server - GPL", **changed: str) -> Server:
    version = tuple(int(number) for number in text.partition("-")[0].split("."))
    return Server(False, version, text, comment, GOOD | changed, "shop@%")


def mariadb(text: str = "10.11.6-MariaDB", **changed: str) -> Server:
    version = tuple(int(number) for number in text.partition("-")[0].split("."))
    return Server(True, version, text, "mariadb.org binary distribution", GOOD | changed, "shop@%")


def all_findings(server: Server) -> list[Finding]:
    return [*servers.findings(server), *variables.findings(server), *variables.advice(server)]


@pytest.mark.parametrize("server", [mysql(), mysql("9.7.4"), mariadb(), mariadb("11.8.3-MariaDB-log")])
def test_a_suitable_server(server: Server) -> None:
    assert all_findings(server) == []


@pytest.mark.parametrize(
    ("server", "check", "text"),
    [
        (mysql("8.0.11-TiDB-v7.5.0", "TiDB Server (Apache License 2.0)"), "E006", "TiDB allocates offsets"),
        (mysql("8.0.30-Vitess", "Version: 19.0.0"), "E006", "each shard allocates its own offsets"),
        (mysql("5.7.25", "OceanBase_CE 4.2.1.0"), "E006", "OceanBase allocates offsets"),
        (mysql("5.7.32", "SingleStoreDB source distribution"), "E006", "SingleStore allocates offsets"),
        (mariadb(wsrep_on="ON", wsrep_cluster_size="3"), "E007", "3 nodes"),
        (mysql(wsrep_on="ON"), "E007", "an unknown number of nodes"),
        (
            mysql(group_replication_group_name="aaaa", group_replication_single_primary_mode="OFF"), "E007",
            "multi-primary",
        ),
        (mysql(super_read_only="ON", read_only="ON"), "E008", "super_read_only is ON"),
        (mysql(innodb_read_only="ON"), "E008", "reader endpoint"),
        (mariadb(read_only="ON"), "E008", "probably a replica"),
        (mariadb(tx_read_only="ON"), "E008", "does not accept writes"),
        (mysql("8.0.36"), "E009", "no fixes from Oracle since April 2026"),
        (mysql("8.0.39", "Source distribution"), "E009", "Aurora MySQL 3"),
        (mariadb("10.6.18-MariaDB"), "E009", "MariaDB 10.6.18"),
    ],
)  # fmt: skip
def test_a_server_on_which_promises_fail(server: Server, check: str, text: str) -> None:
    (found,) = servers.findings(server)
    assert (found.severity, found.check) == (ERROR, check)
    assert text in f"{found.what}. {found.why} {found.repair}"
    assert found.repair


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (mariadb(wsrep_on="ON", wsrep_cluster_size="1"), "one node"),
        (mysql(auto_increment_increment="2"), "auto_increment_increment is 2"),
    ],
)
def test_a_server_that_may_get_a_second_writer(server: Server, text: str) -> None:
    (found,) = servers.findings(server)
    assert (found.severity, found.check) == (WARNING, "W004")
    assert text in found.what


def test_group_replication_with_one_primary_is_suitable() -> None:
    assert not servers.findings(
        mysql(group_replication_group_name="aaaa", group_replication_single_primary_mode="ON")
    )


@pytest.mark.parametrize(
    ("server", "severity", "check", "text"),
    [
        (mysql(transaction_isolation="SERIALIZABLE"), WARNING, "W002", "SERIALIZABLE"),
        (mysql(innodb_autoinc_lock_mode="0"), WARNING, "W003", "AUTO-INC"),
        (mysql(binlog_format="STATEMENT"), WARNING, "W005", "READ COMMITTED"),
        (mysql(sql_mode=""), WARNING, "W006", "silently cut"),
        (mysql(max_allowed_packet="4194304"), WARNING, "W007", "SET GLOBAL max_allowed_packet = 9437184"),
        (mysql(character_set_client="latin1"), ERROR, "E003", "latin1"),
        (mysql(innodb_flush_log_at_trx_commit="2"), WARNING, "", "lose the last commits"),
        (mysql(sync_binlog="0"), WARNING, "", "SET GLOBAL sync_binlog = 1"),
        (mysql(innodb_lock_wait_timeout="3600"), WARNING, "", "3600 s"),
        (mysql(innodb_rollback_on_timeout="ON"), WARNING, "", "rolls back the whole transaction"),
        (mysql(performance_schema="OFF"), INFO, "", "nor which connection blocks"),
        (
            mariadb(idle_transaction_timeout="0", idle_write_transaction_timeout="0"), INFO, "",
            "SET GLOBAL idle_write_transaction_timeout",
        ),
    ],
)  # fmt: skip
def test_a_setting_that_does_not_suit(server: Server, severity: str, check: str, text: str) -> None:
    (found,) = all_findings(server)
    assert (found.severity, found.check) == (severity, check)
    assert text in f"{found.what}. {found.why} {found.repair}"


def test_without_a_binary_log_its_settings_do_not_matter() -> None:
    assert all_findings(mysql(log_bin="OFF", sync_binlog="0", binlog_format="STATEMENT")) == []


def route(**changed: Any) -> Route:
    usual: dict[str, Any] = {
        "greeted": "8.4.3", "greeted_id": 7, "text": "8.4.3", "ids": (7, 7, 7),
        "comment": "MySQL Community Server - GPL",
    }  # fmt: skip
    return Route(**usual | changed)


@pytest.mark.parametrize(
    "direct",
    [
        route(),
        route(greeted="5.5.5-10.11.6-MariaDB", text="10.11.6-MariaDB"),
        route(greeted_id=5, ids=(2**32 + 5,) * 3),
    ],
)
def test_no_proxy(direct: Route) -> None:
    assert not list(routes.proxy_findings(direct))


@pytest.mark.parametrize(
    ("through", "name", "repair"),
    [
        (route(comment="(ProxySQL)"), "ProxySQL", "multiplex = 0"),
        (route(proxy_version="2.6.3"), "ProxySQL", "multiplex = 0"),
        (route(greeted="10.11.6-MariaDB-maxscale"), "MaxScale", "readconnroute"),
        (route(greeted_id=1), "RDS Proxy", "SessionPinningFilters"),
        (route(greeted="8.0.11"), "a proxy", "endpoint for writes"),
    ],
)
def test_a_proxy_is_recognised(through: Route, name: str, repair: str) -> None:
    (found,) = routes.proxy_findings(through)
    assert found.severity == WARNING
    assert name in found.what
    assert repair in found.repair


def test_a_proxy_that_shares_sessions_is_an_error() -> None:
    (found,) = routes.proxy_findings(route(ids=(7, 8, 7), comment="(ProxySQL)"))
    assert found.severity == ERROR
    assert "ProxySQL runs the statements of one connection in different sessions (7, 8, 7)" in found.what


def test_clocks_are_only_reported() -> None:
    assert not list(routes.clock_findings(timedelta(seconds=0.4)))
    (found,) = routes.clock_findings(timedelta(seconds=-90))
    assert found.severity == INFO
    assert "-90.0 s" in found.what


def test_accounts_are_quoted() -> None:
    assert quoted("shop@%") == "'shop'@'%'"
    assert quoted("o'hara@10.0.0.%") == "'o''hara'@'10.0.0.%'"
