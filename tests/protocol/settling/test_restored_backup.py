"""A backup is taken while workers and publishers work, and restored later with the tools of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_mqueue import OutgoingMessage, publish, publish_many
from tests.support.backup import dump, restore
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.stream import Stream
from tests.support.transactions import Background, HeldTransaction

from .restored import (
    CHOSEN,
    GROUPS,
    KEYS,
    assert_all_was_handled,
    assert_effects_and_acks_agree,
    at_work,
    ids,
    publish_again,
    settled_ids,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.timeout(600)
def test_a_restored_backup_keeps_each_promise(tmp_path: Path) -> None:
    """During the backup, messages are published and handled, a handler runs, and a transaction is open.

    The restored database is consistent. All that was published is published again with the same ids. A worker with
    another name handles what the backup had not finished, and what the database lost.
    """
    stream, file = Stream(GROUPS, KEYS), tmp_path / "backup.sql"
    with Workers() as workers:
        worker = workers.start(*CHOSEN, "--threads", "4", "--name", "before")
        publish("orders", {"n": 0, "do": "wait", "door": "exit"}, key="waits", id="waits")
        wait_until(lambda: Step.objects.filter(key="waits").exists(), "a handler waits")
        late = [OutgoingMessage({"n": 0}, key="late", id="late")]
        with Background(stream.run), HeldTransaction(lambda: publish_many("orders", late)) as held:
            try:
                wait_until(lambda: at_work(stream, 20), "it is at work")
                dump(file)
                before = stream.numbers
                wait_until(lambda: stream.numbers > before + 10, "more is published")
                assert held.commit()
            finally:
                stream.stopping.set()
        Door.objects.create(name="exit")
        wait_until(lambda: stream.settled() == stream.published + 2, "all is done")
        assert worker.stop() == 0

    restore(file)
    saved = {topic: settled_ids(topic) for topic in GROUPS}
    kept = ids("orders")
    assert all(saved.values())
    assert "waits" in kept - saved["orders"]
    assert "late" not in kept
    assert_effects_and_acks_agree()
    started = Step.objects.filter(what="start").count()

    publish_again(stream)
    stream.publish(stream.numbers)
    stream.numbers += 1
    publish_many("orders", late)
    with Workers() as workers:
        worker = workers.start(*CHOSEN, "--threads", "4", "--name", "after")
        wait_until(lambda: Step.objects.filter(key="waits").count() > 1, "the open delivery is made again")
        Door.objects.create(name="exit")
        wait_until(lambda: all(settled_ids(topic) == ids(topic) for topic in GROUPS), "all is done")
        assert worker.stop() == 0

    assert_all_was_handled(stream)
    again = {
        f"{step.key}-{step.number}" for step in Step.objects.filter(what="start").order_by("id")[started:]
    }
    assert again.isdisjoint(saved["ledger"] & saved["orders"]), (
        "what the backup had finished is not handled again"
    )
    assert set(Step.objects.filter(what="end", key__in=["waits", "late"]).values_list("key", flat=True)) == {
        "waits", "late",
    }  # fmt: skip
