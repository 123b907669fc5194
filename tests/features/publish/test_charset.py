"""A connection whose charset cannot represent every key is refused, before a message is stored or delivered wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from django_mqueue import Subscription, cancel, checks, publish, publish_many, subscribe
from tests.support.running import registered
from tests.support.subscribers import in_log
from tests.support.transactions import statements

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP, KEY = "spelled", "reader", "ключ-🎉"


@pytest.fixture(params=["utf8", "latin1"])
def charset(request: pytest.FixtureRequest) -> Iterator[str]:
    """Publish a message with the right charset, then set a wrong one in the connection's OPTIONS."""
    subscribe(TOPIC, GROUP)
    publish(TOPIC, 1, key=KEY)
    connection.close()
    with patch.dict(connection.settings_dict["OPTIONS"], charset=request.param):
        yield request.param
    connection.close()


@pytest.mark.usefixtures("charset")
def test_nothing_is_published() -> None:
    for work in (
        lambda: publish(TOPIC, 2, key=KEY),
        lambda: publish(TOPIC, 2, key="plain"),
        lambda: publish_many(TOPIC, [1, 2]),
        lambda: cancel(TOPIC, "any"),
    ):
        for _ in range(2):
            with pytest.raises(ImproperlyConfigured, match="utf8mb4"):
                work()
            with pytest.raises(ImproperlyConfigured, match="OPTIONS"), transaction.atomic():
                work()
    assert len(in_log(TOPIC)) == 1


@pytest.mark.usefixtures("charset")
def test_nothing_is_consumed_by_hand() -> None:
    with pytest.raises(ImproperlyConfigured, match="'default'"):
        Subscription(TOPIC, GROUP).open()


def test_a_worker_does_not_start(charset: str) -> None:
    """The system check reports the problem and the solution."""
    (problem,) = checks.server_problems("default")
    assert problem.id == "django_mqueue.E003"
    assert charset in problem.msg
    assert "utf8mb4" in str(problem.hint)
    with registered(TOPIC, lambda message: None, GROUP), pytest.raises(CommandError, match="E003"):
        call_command("runconsumer", "--drain")


def test_each_new_connection_is_looked_at_and_costs_no_statement() -> None:
    """No statement is needed, because the client library knows the charset."""
    for charset, is_fine in (("utf8mb4", True), ("latin1", False), ("utf8mb4", True)):
        connection.close()
        with patch.dict(connection.settings_dict["OPTIONS"], charset=charset), statements() as seen:
            if is_fine:
                publish(TOPIC, 1, key=KEY)
            else:
                with pytest.raises(ImproperlyConfigured):
                    publish(TOPIC, 1, key=KEY)
        assert len(seen) == int(is_fine)
    connection.close()
    assert len(in_log(TOPIC)) == 2
