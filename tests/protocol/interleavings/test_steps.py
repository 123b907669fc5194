"""``Stopped`` stops at the chosen step with its locks held, and continues when the test lets it."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_mqueue import publish
from tests.support.subscribers import in_log

from .steps import COMMIT, Stopped

pytestmark = pytest.mark.django_db(transaction=True)


def publish_two() -> int:
    with transaction.atomic():
        publish("orders", 1)
        return publish("orders", 2).offset


def test_it_stops_at_the_commit_and_nothing_is_there_before_it() -> None:
    with Stopped(publish_two, COMMIT) as publisher:
        assert in_log("orders") == []
        assert publisher.go() in in_log("orders")


def test_it_stops_before_the_second_of_two_such_statements() -> None:
    with Stopped(
        lambda: [publish("orders", n) for n in range(3)], "INSERT INTO queue_messages", skip=1
    ) as publisher:
        assert len(in_log("orders")) == 1
        publisher.go()
    assert len(in_log("orders")) == 3


def test_work_that_never_comes_to_that_step_is_told() -> None:
    with pytest.raises(AssertionError, match="ended without"), Stopped(lambda: 1, "no such statement"):
        pass
