"""A backup is taken while workers and publishers work, and restored later with the tools of the server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from django_mqueue import OutgoingMessage, publish, publish_many
from django_mqueue.models import DeliveryState, Message
from tests.support.backup import dump, restore
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Sale, Step
from tests.support.steps import assert_in_order, by_key
from tests.support.stream import Stream
from tests.support.subscribers import in_log
from tests.support.transactions import Background, HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)

GROUPS = {"orders": "billing", "ledger": "books", "sales": "till"}
"""The group of ``ledger`` is strict, and the handler of ``sales`` is atomic."""
CHOSEN = [f"{topic}:{group}" for topic, group in GROUPS.items()]
KEYS = ["k0", "k1", "k2"]


def settled_ids(topic: str) -> set[str]:
    states = DeliveryState.objects.filter(topic=topic, consumer_group=GROUPS[topic], acked=True)
    offsets = states.values_list("message_offset", flat=True)
    return set(Message.objects.filter(offset__in=list(offsets)).values_list("message_id", flat=True))


def ids(topic: str) -> set[str]:
    return set(Message.objects.filter(topic=topic).values_list("message_id", flat=True))


def assert_effects_and_acks_agree() -> None:
    """Each sale and its receipt exist if and only if the message is acknowledged."""
    settled = Counter(int(id.partition("-")[2]) for id in settled_ids("sales"))
    assert Counter(Sale.objects.values_list("number", flat=True)) == settled
    assert len(in_log("receipts")) == settled.total()


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
                wait_until(lambda: stream.settled() > 60, "they are at work")
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
    kept = {topic: ids(topic) for topic in GROUPS}
    assert all(saved.values())
    assert "waits" in kept["orders"] - saved["orders"]
    assert "late" not in kept["orders"]
    assert_effects_and_acks_agree()
    started = Step.objects.filter(what="start").count()

    for number in range(stream.numbers):
        created = stream.publish(number)
        wanted = [f"{key}-{number}" not in kept[topic] for topic in GROUPS for key in KEYS]
        assert created == wanted, "an id that was lost is free, and one that survived is stored once"
    stream.publish(stream.numbers)
    publish_many("orders", late)
    with Workers() as workers:
        worker = workers.start(*CHOSEN, "--threads", "4", "--name", "after")
        wait_until(lambda: Step.objects.filter(key="waits").count() > 1, "the open delivery is made again")
        Door.objects.create(name="exit")
        wait_until(lambda: all(settled_ids(topic) == ids(topic) for topic in GROUPS), "all is done")
        assert worker.stop() == 0

    assert_effects_and_acks_agree()
    assert Counter(Sale.objects.values_list("number", flat=True)) == dict.fromkeys(
        range(stream.numbers + 1), len(KEYS)
    )
    again = {
        f"{step.key}-{step.number}" for step in Step.objects.filter(what="start").order_by("id")[started:]
    }
    assert again.isdisjoint(saved["ledger"] & saved["orders"]), (
        "what the backup had finished is not handled again"
    )
    steps = by_key("ledger", "books")
    for key in KEYS:
        assert_in_order(steps[key], range(stream.numbers + 1))
    ended = Step.objects.filter(topic="orders", what="end").values_list("key", "number")
    assert set(ended) == {(key, n) for key in KEYS for n in range(stream.numbers + 1)} | {
        ("waits", 0),
        ("late", 0),
    }
