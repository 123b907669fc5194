"""Archives of messages for one group only: each is archived before it is deleted, and batches keep their size limit."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, redrive, subscribe
from django_mqueue.exceptions import LogGap
from django_mqueue.models import Message
from django_mqueue.spark import Archive
from tests.support.subscribers import QUICK, consume, in_log, poll_until, settle_and_collect

from .archive_runs import Runs, left

pytestmark = pytest.mark.spark


@override_settings(MQUEUE=QUICK)
def test_what_one_group_is_done_with_is_archived_before_it_is_deleted(run: Runs) -> None:
    """The archive also has the history of such messages. Redriven messages are included."""
    subscribe("orders", "billing")
    publish("orders", "first", key="k")
    run()
    alone = publish("orders", "for billing", key="k", group="billing").offset
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.ack() if delivery.offset == alone else delivery.reject("no")
        assert redrive("orders") == 1
        consume(subscription, 1)
        settle_and_collect(subscription)
    wanted = in_log("orders")
    assert len(wanted) == 3
    run()
    assert run.offsets() == wanted
    assert [row["target"] for row in run.held()] == ["", "billing", "billing"]
    assert {row["offset"] for row in run.held(table="deliveries")} == set(wanted)
    assert left() == []


def test_one_that_is_gone_is_told(run: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletion waits for the archive, so a missing targeted message is an error like any other."""
    from typing import Any

    from django_mqueue.spark.archives import archive_run
    from django_mqueue.spark.archives.jobs import spread

    subscribe("orders", "billing")
    publish_many("orders", [OutgoingMessage(n, group="billing") for n in range(10)])

    def late(*arguments: Any) -> Any:
        Message.objects.filter(offset=in_log("orders")[4]).delete()
        return spread(*arguments)

    monkeypatch.setattr(archive_run, "spread", late)
    with pytest.raises(LogGap, match="1 of the 5 messages"):
        run()


def test_batches_are_of_all_messages(run: Runs) -> None:
    """Messages for one group count for the batch size.

    A replay may leave a million of them, which are too many for one task.
    """
    subscribe("orders", "billing")
    publish_many("orders", [OutgoingMessage(n, group="billing") for n in range(1000)])
    publish_many("orders", range(10))
    (done,) = run(batch_rows=100, history_after=0)
    assert (done.rows["messages"], done.batches) == (1010, 11)
    states = [Archive.open(run.place, as_of=version).entries("orders") for version in range(1, 12)]
    assert [sum(entry.rows for entry in entries) for entries in states] == [*range(100, 1001, 100), 1010]
    assert run.offsets() == in_log("orders")
