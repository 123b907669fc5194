"""The ``MQUEUE`` setting is read at each use. The checks of it and of the server report each problem with a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.checks import Error, Warning, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections
from django.db.backends.sqlite3.base import DatabaseWrapper as Sqlite
from django.test import override_settings

from django_mqueue import checks, conf
from django_mqueue.doctor import servers

DEFAULTS = {
    "DATABASE": "default",
    "POLL_INTERVAL": 0.1,
    "IDLE_POLL_INTERVAL": 1,
    "WAKE_WORKERS": "everywhere",
    "DISCOVERY_INTERVAL": 1,
    "LEASE_DURATION": 30,
    "LEASE_RENEWAL_INTERVAL": 10,
    "RETENTION": 3600,
    "GC_INTERVAL": 10,
    "LATE_AFTER": 600,
    "SPREAD": 16,
    "DLQ_SUFFIX": "_dlq",
    "MAX_PAYLOAD_BYTES": 1_048_576,
    "MASK": None,
    "REQUIRE_TRANSACTION": False,
}


def texts() -> list[str]:
    """Return the errors that ``manage.py check`` reports for the queue's settings."""
    found = [
        message for message in run_checks(tags=["mqueue"]) if (message.id or "").startswith("django_mqueue.")
    ]
    assert all(isinstance(message, Error) for message in found)
    return [str(message.msg) for message in found]


@override_settings(MQUEUE={})
def test_the_defaults_are_the_documented_ones() -> None:
    assert {name: conf.get(name) for name in conf.OPTIONS} == DEFAULTS
    assert texts() == []


def test_the_defaults_hold_without_any_setting(settings: Any) -> None:
    del settings.MQUEUE
    assert {name: conf.get(name) for name in conf.OPTIONS} == DEFAULTS
    assert texts() == []


def test_settings_are_read_at_each_use() -> None:
    """This lets tests override them."""
    with override_settings(MQUEUE={"RETENTION": 5}):
        assert conf.get("RETENTION") == 5
        with override_settings(MQUEUE={"RETENTION": 6.5}):
            assert conf.retention_ms("orders") == 6500
    assert conf.get("RETENTION") == 3600


def test_a_topic_may_have_its_own() -> None:
    """A topic can override each setting except the database. Other topics keep the general value."""
    own = {
        "RETENTION": 7 * 86400, "SPREAD": 2, "DLQ_SUFFIX": ".dead", "LEASE_DURATION": 60, "LEASE_RENEWAL_INTERVAL": 30,
        "POLL_INTERVAL": 1, "DISCOVERY_INTERVAL": 2, "GC_INTERVAL": 60, "MAX_PAYLOAD_BYTES": 10,
    }  # fmt: skip
    with override_settings(MQUEUE={"RETENTION": 1, "TOPICS": {"orders": own}}):
        assert texts() == []
        assert {name: conf.get(name, "orders") for name in own} == own
        assert conf.get("RETENTION", "payments") == 1
        assert conf.dead_letter_topic("orders") == "orders.dead"
        assert set(conf.dead_letter_suffixes()) == {"_dlq", ".dead"}


def test_a_thousand_topics_do_not_slow_publish_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only topics with another suffix are looked at: ``publish`` asks for all suffixes."""
    asked, get = [], conf.get

    def noted(name: str, topic: str | None = None) -> Any:
        asked.append(topic)
        return get(name, topic)

    monkeypatch.setattr(conf, "get", noted)
    topics = {f"tenant-{n}": {"RETENTION": 60} for n in range(1000)}
    with override_settings(MQUEUE={"TOPICS": topics | {"orders": {"DLQ_SUFFIX": ".dead"}}}):
        conf.dead_letter_suffixes()
    assert asked == [None, "orders"]


IMPOSSIBLE: list[tuple[Any, str]] = [
    (["a list"], "MQUEUE must be a dictionary"),
    ({"RETENTOIN": 1}, "unknown setting 'RETENTOIN'; known are .*RETENTION"),
    ({"retention": 1}, "unknown setting 'retention'"),
    ({"RETENTION": "3600"}, r"MQUEUE\['RETENTION'\] must be int or float, not '3600'"),
    ({"RETENTION": None}, "RETENTION.* must be int or float"),
    ({"RETENTION": True}, "RETENTION.* must be int or float, not True"),
    ({"RETENTION": -1}, "RETENTION.* must be a finite number, at least 0 seconds, not -1"),
    ({"RETENTION": float("nan")}, "RETENTION.* must be a finite number"),
    ({"RETENTION": float("inf")}, "RETENTION.* must be a finite number"),
    ({"POLL_INTERVAL": 0}, "POLL_INTERVAL.* at least 0.001 seconds"),
    ({"IDLE_POLL_INTERVAL": 0}, "IDLE_POLL_INTERVAL.* at least 0.001 seconds"),
    ({"WAKE_WORKERS": "always"}, "WAKE_WORKERS.* must be 'everywhere' or 'host' or 'never', not 'always'"),
    ({"WAKE_WORKERS": True}, "WAKE_WORKERS.* must be str, not True"),
    ({"DISCOVERY_INTERVAL": 0}, "DISCOVERY_INTERVAL.* at least"),
    ({"GC_INTERVAL": 0}, "GC_INTERVAL.* at least"),
    ({"LEASE_DURATION": 0.05}, "LEASE_DURATION.* at least 0.1 seconds"),
    ({"LEASE_RENEWAL_INTERVAL": 0}, "LEASE_RENEWAL_INTERVAL.* at least"),
    ({"LEASE_DURATION": 15}, r"LEASE_RENEWAL_INTERVAL \(10\) must be at most half of LEASE_DURATION \(15\)"),
    ({"LEASE_RENEWAL_INTERVAL": 20}, "LEASE_RENEWAL_INTERVAL .* at most half"),
    ({"DISCOVERY_INTERVAL": 30}, r"DISCOVERY_INTERVAL \(30\) must be below LEASE_DURATION \(30\)"),
    (
        {"TOPICS": {"orders": {"LEASE_DURATION": 2, "LEASE_RENEWAL_INTERVAL": 1, "DISCOVERY_INTERVAL": 5}}},
        r"TOPICS'\]\['orders'\]: DISCOVERY_INTERVAL .* below LEASE_DURATION",
    ),
    ({"SPREAD": 0}, "SPREAD.* at least 1"),
    ({"SPREAD": 1.5}, "SPREAD.* must be int"),
    ({"SPREAD": 4097}, "SPREAD.* at most 4096"),
    ({"MAX_PAYLOAD_BYTES": 0}, "MAX_PAYLOAD_BYTES.* at least 1 bytes"),
    ({"MAX_PAYLOAD_BYTES": 1e6}, "MAX_PAYLOAD_BYTES.* must be int"),
    ({"DLQ_SUFFIX": ""}, "DLQ_SUFFIX.* must be 1 to 14 printable characters without blanks"),
    ({"DLQ_SUFFIX": " dlq"}, "DLQ_SUFFIX.* without blanks"),
    ({"DLQ_SUFFIX": "\n"}, "DLQ_SUFFIX.* printable"),
    ({"DLQ_SUFFIX": "_" * 15}, "DLQ_SUFFIX.* 1 to 14"),
    ({"DLQ_SUFFIX": "_scheduled"}, "DLQ_SUFFIX.* _scheduled"),
    ({"DLQ_SUFFIX": 5}, "DLQ_SUFFIX.* must be str"),
    ({"REQUIRE_TRANSACTION": 1}, "REQUIRE_TRANSACTION.* must be bool, not 1"),
    ({"TOPICS": {"orders": {"REQUIRE_TRANSACTION": "yes"}}}, "REQUIRE_TRANSACTION.* must be bool, not 'yes'"),
    ({"MASK": 5}, "MASK.* must be a callable, or the dotted path of one, not 5"),
    ({"MASK": "mask"}, "MASK.* must be a callable, or the dotted path of one, not 'mask'"),
    ({"MASK": "no.such.module"}, "MASK.* cannot be imported: 'no.such.module': ModuleNotFoundError"),
    ({"MASK": "django_mqueue.nothing"}, "MASK.* cannot be imported: 'django_mqueue.nothing'"),
    (
        {"MASK": "tests.features.test_settings.DEFAULTS"},
        "MASK.* must be callable: 'tests.features.test_settings.DEFAULTS' is not",
    ),
    ({"TOPICS": {"orders": {"MASK": "no.such"}}}, r"TOPICS'\]\['orders'\]\['MASK'\] cannot be imported"),
    ({"DATABASE": "nowhere"}, "DATABASE.* names no entry of DATABASES: 'nowhere'"),
    ({"DATABASE": 5}, "DATABASE.* must be str"),
    ({"TOPICS": ["orders"]}, "TOPICS.* must map topics to dictionaries of settings"),
    ({"TOPICS": {"orders": 5}}, r"TOPICS'\]\['orders'\] must be a dictionary"),
    ({"TOPICS": {5: {}}}, r"TOPICS'\]\[5\] must be a dictionary, and its key a str"),
    ({"TOPICS": {"orders": {"SPRAED": 1}}}, r"TOPICS'\]\['orders'\]: unknown setting 'SPRAED'"),
    ({"TOPICS": {"orders": {"DATABASE": "default"}}}, r"TOPICS'\]\['orders'\]: unknown setting 'DATABASE'"),
    (
        {"TOPICS": {"orders": {"WAKE_WORKERS": "host"}}},
        r"TOPICS'\]\['orders'\]: unknown setting 'WAKE_WORKERS'",
    ),
    ({"TOPICS": {"orders": {"TOPICS": {}}}}, r"TOPICS'\]\['orders'\]: unknown setting 'TOPICS'"),
    ({"TOPICS": {"orders": {"SPREAD": 0}}}, r"TOPICS'\]\['orders'\]\['SPREAD'\] must be"),
    (
        {"TOPICS": {"orders": {"LEASE_DURATION": 5}}},
        r"TOPICS'\]\['orders'\]: LEASE_RENEWAL_INTERVAL .* at most half",
    ),
]


@pytest.mark.parametrize(("value", "text"), IMPOSSIBLE)
def test_an_impossible_setting_is_a_check_error(value: Any, text: str) -> None:
    """``manage.py check`` fails with one error, E001, which names the setting and its allowed values."""
    with override_settings(MQUEUE=value):
        assert len(texts()) == 1
        with pytest.raises(SystemCheckError, match=f"(?s)django_mqueue.E001.*{text}"):
            call_command("check")


def test_every_problem_is_told_at_once() -> None:
    with override_settings(MQUEUE={"A": 1, "SPREAD": 0, "TOPICS": {"orders": {"B": 1}, "payments": 5}}):
        assert len(texts()) == 4


UNREADABLE: list[Any] = [
    ["a list"],
    {"RETENTION": "x"},
    {"TOPICS": []},
    {"TOPICS": {"orders": []}},
    {"TOPICS": {"orders": {"RETENTION": -1}}},
]


@pytest.mark.parametrize("value", UNREADABLE)
def test_an_impossible_setting_that_nobody_checked_is_refused_in_use(value: Any) -> None:
    with override_settings(MQUEUE=value), pytest.raises(ImproperlyConfigured, match="MQUEUE"):
        conf.get("RETENTION", "orders")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"RETENTION": -1, "TOPICS": {"orders": {"SPREAD": 2}}}, "MQUEUE['RETENTION']"),
        ({"TOPICS": {"orders": {"RETENTION": -1}}}, "MQUEUE['TOPICS']['orders']['RETENTION']"),
    ],
)
def test_the_error_names_the_setting_that_is_wrong(value: Any, name: str) -> None:
    with override_settings(MQUEUE=value), pytest.raises(ImproperlyConfigured, match=f"^{re.escape(name)} "):
        conf.get("RETENTION", "orders")


def test_the_error_names_the_topic_whose_mask_is_wrong() -> None:
    with (
        override_settings(MQUEUE={"TOPICS": {"orders": {"MASK": "no.such"}}}),
        pytest.raises(ImproperlyConfigured, match=r"the MASK of topic 'orders' .* cannot be imported"),
    ):
        conf.mask("orders_dlq")


def test_topics_that_are_no_dictionary_are_refused_in_use() -> None:
    with override_settings(MQUEUE={"TOPICS": None}), pytest.raises(ImproperlyConfigured, match="TOPICS"):
        conf.topics()


def test_a_setting_that_is_none_is_a_mistake_of_the_code() -> None:
    with pytest.raises(KeyError):
        conf.get("RETENTOIN")


def ids(alias: str = "default") -> set[str | None]:
    return {message.id for message in checks.server_problems(alias)}


@contextmanager
def session(**variables: str | int) -> Iterator[None]:
    """Set variables for this connection. The next connection has the usual values again."""
    with connection.cursor() as cursor:
        for name, value in variables.items():
            cursor.execute(f"SET SESSION {name} = %s", [value])
    try:
        yield
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
class TestTheServer:
    """A server setting that breaks the protocol's assumptions gives a warning with a hint."""

    def test_the_tests_server_has_no_problem(self) -> None:
        """The check also runs with ``--database``, in ``migrate`` and in ``runconsumer``."""
        assert ids() == set()
        assert [m for m in run_checks(databases=["default"]) if "mqueue" in (m.id or "")] == []
        call_command("check", databases=["default"])

    @pytest.mark.parametrize(
        ("variable", "value", "expected"),
        [
            ("transaction_isolation", "SERIALIZABLE", "W002"),
            ("transaction_isolation", "READ-UNCOMMITTED", "W002"),
            ("auto_increment_increment", 2, "W004"),
            ("sql_mode", "", "W006"),
        ],
    )
    def test_a_session_that_the_protocol_cannot_rely_on(
        self, variable: str, value: str | int, expected: str
    ) -> None:
        if variable == "transaction_isolation" and connection.mysql_is_mariadb:  # type: ignore[attr-defined]
            variable = "tx_isolation"
        with session(**{variable: value}):
            (problem,) = checks.server_problems("default")
        assert isinstance(problem, Warning)
        assert problem.id == f"django_mqueue.{expected}"
        assert "'default'" in str(problem.msg)
        assert problem.hint

    @pytest.mark.parametrize("level", ["READ-COMMITTED", "REPEATABLE-READ"])
    def test_both_usual_isolation_levels_are_fine(self, level: str) -> None:
        variable = "tx_isolation" if connection.mysql_is_mariadb else "transaction_isolation"  # type: ignore[attr-defined]
        with session(**{variable: level}):
            assert ids() == set()

    def test_a_packet_too_small_for_the_payloads(self) -> None:
        with override_settings(MQUEUE={"MAX_PAYLOAD_BYTES": 1 << 30}):
            assert ids() == {"django_mqueue.W007"}
        with override_settings(MQUEUE={"TOPICS": {"orders": {"MAX_PAYLOAD_BYTES": 1 << 30}}}):
            assert ids() == {"django_mqueue.W007"}

    def test_a_server_older_than_those_tested(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(servers, "MARIADB_LEAST", (99, 0))
        monkeypatch.setattr(servers, "MYSQL_LEAST", (99, 0))
        assert ids() == {"django_mqueue.E009"}

    def test_another_databases_check_is_not_run(self) -> None:
        """The check uses only the queue's database, and only if the command names it."""
        with override_settings(MQUEUE={"MAX_PAYLOAD_BYTES": 1 << 30}):
            assert run_checks(databases=["other"]) == []
            assert run_checks() == []
            assert {m.id for m in run_checks(databases=["default"])} == {"django_mqueue.W007"}

    def test_a_server_of_another_kind_is_an_error(self) -> None:
        connections["lite"] = Sqlite({"NAME": ":memory:", "ENGINE": "django.db.backends.sqlite3"}, "lite")
        try:
            (problem,) = checks.server_problems("lite")
        finally:
            del connections["lite"]
        assert isinstance(problem, Error)
        assert problem.id == "django_mqueue.E002"
        assert "needs MySQL or MariaDB" in str(problem.msg)
