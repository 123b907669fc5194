"""A signal ends the planner of a query's batches, whatever it does."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from django_mqueue import publish_many
from django_mqueue.models import SubscriberHeartbeat

from .commands import NO_DJANGO, command
from .streams import newest, stands_at

pytestmark = pytest.mark.spark


def test_a_planner_that_is_told_to_end_while_it_holds_the_topic_ends_at_once(
    options: dict[str, str], checkpoint: str
) -> None:
    """The planner's last batch also needs the topic's lock. A lock wait takes 50 seconds, and is tried ten times."""
    publish_many("orders", range(3))
    asked = {**options, "topic": "orders", "group": "archive", "checkpointLocation": checkpoint}
    environment = {**NO_DJANGO, "MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"])}
    with command(("tests.spark.interrupted",), (json.dumps(asked),), environment) as worker:
        assert worker.wait() == 0
        assert "the signal was sent" in worker.output()
        assert "it went on" not in worker.output()
    assert stands_at("archive") == newest()
    assert SubscriberHeartbeat.objects.get().deregistered_at is not None
