"""``manage.py mqueue why``: the sentences for each state of a message, and the command that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_mqueue import (
    OutgoingMessage,
    Subscription,
    pause,
    publish,
    publish_many,
    redrive,
    reset,
    subscribe,
)
from django_mqueue.browse import delivery_facts, id_search, reasons
from django_mqueue.inspect import Inspected, hold, remove
from django_mqueue.models import DeliveryState, Message, PartitionLease
from django_mqueue.policy.names import one_at_a_time
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each, scheduled
from tests.support.processes import database_ms
from tests.support.running import registered
from tests.support.subscribers import QUICK, poll_until, settle

from .conftest import Run

pytestmark = pytest.mark.django_db(transaction=True)
Json = Callable[..., dict[str, Any]]
Why = Callable[..., dict[str, tuple[str, str | None]]]


@pytest.fixture
def why(mqueue_json: Json) -> Why:
    """Return (sentences, command that helps) by group. The group '' is the message itself."""

    def run(*arguments: object, topic: str = TOPIC) -> dict[str, tuple[str, str | None]]:
        (message,) = mqueue_json("why", topic, *arguments)["messages"]
        return {row["group"]: (" ".join(row["sentences"]), row["remedy"]) for row in message["explanations"]}

    return run


@pytest.fixture
def worker() -> Iterator[Subscription]:
    subscribe(TOPIC, GROUP)
    with override_settings(MQUEUE=QUICK), Subscription(TOPIC, GROUP, name="worker-1") as subscription:
        yield subscription


def test_each_status(why: Why) -> None:
    offsets = one_of_each()
    text, helps = why(offsets["done"])[GROUP]
    assert "worker-1 finished it at 20" in text
    assert text.endswith("in attempt 1.")
    assert helps is None
    text, helps = why(offsets["dead"])[GROUP]
    dead = Message.objects.get(topic=f"{TOPIC}_dlq").offset
    assert f"It is dead letter {dead} since 20" in text
    assert text.endswith("after 1 failed attempt. Attempt 1 failed: ValueError: never")
    assert helps == "manage.py mqueue redrive orders --group billing --id dead --key dead"
    text, helps = why(offsets["waiting"])[GROUP]
    assert text.startswith("Its retry is due at 20")
    assert text.endswith("Attempt 1 failed: ConnectionError: not now")
    assert helps == "manage.py mqueue hurry orders --group billing --id waiting --key waiting"
    text, helps = why(offsets["in_flight"])[GROUP]
    assert text.startswith("worker-1 has had it since 20")
    assert "in attempt 1. It is delivered again if not settled by 20" in text
    assert text.endswith("A handler has it.")
    assert helps is None
    text, helps = why("--id", "pending")["stock"]
    assert text == "Not delivered yet. No subscriber of the group is alive."
    assert helps == "manage.py runconsumer orders:stock"


def test_a_pause_with_its_author(why: Why) -> None:
    subscribe(TOPIC, GROUP)
    offset = publish(TOPIC, 1, key="k").offset
    pause(TOPIC, GROUP, by="alice", why="an outage")
    text, helps = why(offset)[GROUP]
    assert text.startswith("Not delivered yet. The group has been paused since 20")
    assert text.endswith("by alice: an outage.")
    assert helps == "manage.py mqueue resume orders billing"
    Message.objects.filter(topic="mqueue_actions").delete()
    text, helps = why(offset)[GROUP]
    assert text.endswith("or earlier.")
    assert helps == "manage.py mqueue resume orders billing"


def test_the_last_subscriber_and_when_it_was_seen(why: Why, worker: Subscription) -> None:
    worker.poll()
    worker.close()
    offset = publish(TOPIC, 1, key="k").offset
    text, helps = why(offset)[GROUP]
    assert "No subscriber of the group is alive. The last was worker-1, until 20" in text
    assert helps == "manage.py runconsumer orders:billing"


def test_the_holder_of_the_lease(why: Why, worker: Subscription) -> None:
    publish(TOPIC, 1, key="k")
    poll_until(worker, 1)[0].ack()
    offset = publish(TOPIC, 2, key="k").offset
    text, helps = why(offset)[GROUP]
    assert text.startswith("Not delivered yet. worker-1 has held the lease of its partition since 20")
    assert text.endswith("Nothing holds it back: it is delivered when the subscriber has room for it.")
    assert helps is None
    PartitionLease.objects.update(lease_renewed_at=database_ms() - 3_600_000)
    text, _ = why(offset)[GROUP]
    assert "The lease of its partition has expired: worker-1 renewed it last 1 h ago." in text
    PartitionLease.objects.all().delete()
    text, _ = why(offset)[GROUP]
    assert text.endswith("No subscriber holds the lease of its partition.")


@override_settings(MQUEUE=QUICK)
@pytest.mark.parametrize("strict", [True, False, None])
def test_behind_earlier_messages_of_its_key(why: Why, strict: bool | None) -> None:
    """A strict handler waits for the first message of the key. If no handler is known, the sentence says "if"."""
    topic = "parcels"
    subscribe(topic, GROUP)
    with Subscription(topic, GROUP, name="worker-1") as subscription:
        first = publish(topic, 1, key="k").offset
        poll_until(subscription, 1)[0].nack(delay=100, error="OSError: closed")
        publish(topic, 2, key="k")
        offset = publish(topic, 3, key="k").offset
        with registered(topic, print, group=GROUP, strict=strict) if strict is not None else nullcontext():
            text, helps = why(offset, topic=topic)[GROUP]
    assert f"2 earlier messages of its partition are not finished, the first is {first}." in text
    assert f"The retry of message {first} is due at 20" in text
    assert (f"The handler is strict: it gets this message after message {first}." in text) is (strict is True)
    assert (f"If the handler is strict, it gets this message after message {first}." in text) is (
        strict is None
    )
    assert helps == (None if strict is False else f"manage.py mqueue why {topic} {first} --group billing")


def test_behind_many_finished_messages(why: Why, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for an earlier open message ends after some rows. Then the text does not say that there is none."""
    for module in (delivery_facts, reasons):
        monkeypatch.setattr(module, "ROWS", 2)
    offsets = [publish(TOPIC, n, key="k").offset for n in range(4)]
    with Subscription(TOPIC, GROUP, name="worker-1") as subscription:
        for delivery in poll_until(subscription, 4):
            if delivery.offset in offsets[:2]:
                delivery.ack()
        DeliveryState.objects.filter(message_offset=offsets[3]).delete()
        text, _ = why(offsets[3])[GROUP]
    unknown = "The first 2 earlier messages of its partition are finished. Others were not examined."
    assert unknown in text
    assert "Nothing holds it back" not in text


def test_an_orphaned_delivery_and_quarantine(why: Why, worker: Subscription) -> None:
    offset = publish(TOPIC, 1, key="k").offset
    poll_until(worker, 1)
    PartitionLease.objects.update(leased_by="worker-2", holder="another", leased_at=database_ms() + 1)
    text, _ = why(offset)[GROUP]
    assert "worker-1 has lost the lease of the partition, and cannot finish the message." in text
    assert "The next holder of the lease delivers it again, alone. worker-2 has held the lease" in text
    PartitionLease.objects.update(leased_by="worker-1", leased_at=1)
    DeliveryState.objects.update(alone=True, handed=False, delivered_at=database_ms() - 3_600_000)
    text, helps = why(offset)[GROUP]
    assert "It waits for a free thread of the subscriber. It is in quarantine and runs alone" in text
    assert helps == "manage.py mqueue release orders billing --partition k"


def test_filtered_removed_and_before_the_start(why: Why, worker: Subscription) -> None:
    early = publish(TOPIC, 1, key="k").offset
    settle(worker)
    worker.close()
    removed = publish(TOPIC, 2, key="k", id="removed").offset
    subscribe(TOPIC, "late", start=removed)
    assert remove(TOPIC, group=GROUP, id="removed") == 1
    text, helps = why(early)["late"]
    assert text == "The group's start position is after it."
    assert helps == f"manage.py mqueue reset orders late {early} --dry-run"
    text, helps = why(removed)[GROUP]
    assert text.startswith(
        "It was removed by hand: no handler received it after that. It has been done since 20"
    )
    assert helps is None


def test_a_held_message(why: Why) -> None:
    subscribe(TOPIC, GROUP)
    offset = publish(TOPIC, 1, key="k", id="a").offset
    assert hold(TOPIC, group=GROUP, id="a") == 1
    assert why(offset)[GROUP] == (
        "An operator holds it.",
        "manage.py mqueue unhold orders --group billing --id a --key k",
    )


def test_the_command_changes_no_message_of_another_key_with_the_same_id(why: Why, mqueue_json: Json) -> None:
    subscribe(TOPIC, GROUP)
    first, second = (publish(TOPIC, 1, key=key, id="1").offset for key in ("a", "b"))
    assert hold(TOPIC, group=GROUP) == 2
    _, helps = why(first)[GROUP]
    assert helps is not None
    assert mqueue_json(*helps.split()[2:])["messages"] == 1
    assert why(first)[GROUP][0].startswith("Its retry is due since")
    assert why(second)[GROUP][0] == "An operator holds it."


def test_a_handler_that_runs_for_long(why: Why) -> None:
    """The command comes with a warning: whether the handler hangs or works is not known."""
    with Subscription(TOPIC, GROUP) as worker:
        offset = publish(TOPIC, 1, key="k").offset
        (delivery,) = poll_until(worker, 1)
        assert why(offset)[GROUP][1] is None
        PartitionLease.objects.update(leased_at=F("leased_at") - 120_000)
        DeliveryState.objects.update(delivered_at=F("delivered_at") - 120_000)
        text, helps = why(offset)[GROUP]
        delivery.ack()
    assert text.endswith(
        "If the handler hangs, release the partition. If it still works, two handlers run at once."
    )
    assert helps == "manage.py mqueue release orders billing --partition k"


def test_a_job_whose_limit_rests(why: Why) -> None:
    with Subscription(TOPIC, GROUP) as worker:
        for number in range(2):
            publish(TOPIC, number, key="k")
        Message.objects.update(partition_key=one_at_a_time("k/600000"))
        poll_until(worker, 1)[0].ack()
        text, helps = why(Message.objects.latest("offset").offset)[GROUP]
    assert text.endswith("Its limit starts a job at least 10 min after the end of the previous one.")
    assert helps is None


def test_a_redriven_message_and_its_copy(why: Why, worker: Subscription) -> None:
    first = publish(TOPIC, 1, key="k", id="a").offset
    subscribe(TOPIC, "stock")
    poll_until(worker, 1)[0].reject("ValueError: never")
    assert redrive(TOPIC, group=GROUP) == 1
    copy = Message.objects.get(topic=TOPIC, original_id="a").offset
    text, helps = why(first)[GROUP]
    assert text.startswith("It became a dead letter, and was redriven or redelivered.")
    assert text.endswith(f"The new message is {copy}.")
    assert helps is None
    assert why(copy)["stock"] == ("It is not for this group.", None)


def test_a_parked_retry(why: Why, worker: Subscription, mqueue_json: Json) -> None:
    offset = publish(TOPIC, 1, key="k", id="a").offset
    poll_until(worker, 1)[0].nack(delay=7200, error="OSError: closed")
    parked = Message.objects.get(topic=f"{TOPIC}_scheduled").offset
    text, helps = why(offset)[GROUP]
    assert text.startswith("Its retry is parked outside the log until it is due.")
    assert f"It is scheduled message {parked}, due at 20" in text
    assert text.endswith("Attempt 1 failed: OSError: closed")
    assert helps == "manage.py mqueue hurry orders --group billing --id a --key k"
    ((text, helps),) = why(parked).values()
    assert text.startswith(f"It is the parked retry of message {offset} for group billing.")


def test_a_scheduled_message(why: Why) -> None:
    (offset,) = scheduled("tomorrow")
    text, helps = why(offset)[""]
    assert text.startswith("It is scheduled until 20")
    assert helps == "manage.py mqueue hurry orders --all-groups --id later-tomorrow --key k"
    Message.objects.update(available_at=database_ms() - 1_000)
    text, helps = why(offset)[""]
    assert text.startswith("It is due since 20")
    assert text.endswith("No subscriber of the topic is alive.")
    assert helps == "manage.py runconsumer orders"


def test_a_dead_letter_by_its_own_offset(why: Why) -> None:
    one_of_each()
    dead = Message.objects.get(topic=f"{TOPIC}_dlq").offset
    text, helps = why(dead)[""]
    assert text.startswith("It is a dead letter of group billing since 20")
    assert text.endswith("Attempt 1 failed: ValueError: never")
    assert helps == "manage.py mqueue redrive orders --group billing --id dead --key dead"


def test_no_group_or_not_this_group(why: Why) -> None:
    offset = publish(TOPIC, 1).offset
    text, helps = why(offset)[""]
    assert text.startswith("No group is registered for the topic.")
    assert helps == "manage.py mqueue subscribe orders GROUP"
    subscribe(TOPIC, GROUP)
    assert set(why(offset, "--group", GROUP)) == {GROUP}
    text, helps = why(offset, "--group", "stock")["stock"]
    assert text == "The group is not registered for topic 'orders': it receives nothing."
    assert helps == "manage.py mqueue subscribe orders stock"


def test_a_reset_that_is_not_finished(why: Why) -> None:
    subscribe(TOPIC, GROUP)
    offset = publish(TOPIC, 1).offset
    from django_mqueue.models import Offset
    from django_mqueue.store.offsets import REMOVING

    Offset.objects.filter(consumer_group=GROUP, partition_key="").update(scan_offset=REMOVING)
    text, helps = why(offset)[GROUP]
    assert text.endswith("The group is being reset: nothing is delivered until its old state is deleted.")
    assert helps is None


def test_messages_that_are_not_there(mqueue: Run) -> None:
    offset = publish(TOPIC, 1, id="a").offset
    publish("audit", 1)
    with pytest.raises(CommandError, match=r"no message at offset 999.*the retention \(1 h\) is over"):
        mqueue("why", TOPIC, 999_999)
    with pytest.raises(CommandError, match=f"offset {offset} is a message of topic 'orders', not of 'audit'"):
        mqueue("why", "audit", offset)
    with pytest.raises(
        CommandError,
        match=r"topic 'audit' has no message with id 'a'. Search all topics: manage.py mqueue find",
    ):
        mqueue("why", "audit", "--id", "a")
    with pytest.raises(CommandError, match="give either an offset or --id"):
        mqueue("why", TOPIC)
    assert "Id: a" in mqueue("why", TOPIC, "--id", "a")


def test_more_keys_than_are_searched(mqueue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id without its key is searched in a limited number of keys. This is not the same as "no message"."""
    publish_many(TOPIC, [OutgoingMessage(n, id=f"id-{n}", key=f"key-{n:03d}") for n in range(70)])
    assert "Id: id-69" in mqueue("why", TOPIC, "--id", "id-69")
    monkeypatch.setattr(id_search, "PARTITIONS_OF_ALL", 10)
    with pytest.raises(
        CommandError, match="has more keys than were searched, and no message with id 'id-69'"
    ):
        mqueue("why", TOPIC, "--id", "id-69")
    assert "Id: id-69" in mqueue("why", TOPIC, "--id", "id-69", "--key", "key-069")


def test_commands_name_the_database_if_it_is_not_the_default_one(why: Why) -> None:
    offset = publish(TOPIC, 1, key="k").offset
    subscribe(TOPIC, GROUP)
    with override_settings(MQUEUE={"DATABASE": "other"}):
        assert why(offset, "--database", "default")[GROUP][1] == (
            "manage.py runconsumer orders:billing --database default"
        )


def mask(message: Inspected) -> Inspected:
    return replace(message, errors=tuple(replace(one, error="…") for one in message.errors))


def test_errors_are_masked(mqueue: Run, worker: Subscription) -> None:
    with override_settings(MQUEUE={**QUICK, "MASK": mask}):
        offset = publish(TOPIC, 1, key="k").offset
        poll_until(worker, 1)[0].nack(delay=100, error="ValueError: card 4711-0815-2342")
        assert "4711-0815-2342" not in mqueue("why", TOPIC, offset)
        assert "4711-0815-2342" in mqueue("why", TOPIC, offset, "--unmask")


def test_statements_do_not_grow_with_groups_partitions_or_backlog(mqueue_json: Json) -> None:
    def cost(offset: int) -> int:
        mqueue_json("why", TOPIC, offset)
        with CaptureQueriesContext(connection) as captured:
            mqueue_json("why", TOPIC, offset)
        return len(captured)

    for name in ("a", "b"):
        subscribe(TOPIC, name)
    publish(TOPIC, 0, key="k")
    few = cost(publish(TOPIC, 1, key="k").offset)
    for number in range(40):
        subscribe(TOPIC, f"group-{number}")
    publish_many(TOPIC, [OutgoingMessage(n, key=f"key-{n}") for n in range(200)])
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(1_200)])
    last = publish(TOPIC, 2, key="k").offset
    assert cost(last) == few
    (message,) = mqueue_json("why", TOPIC, last)["messages"]
    assert "1,000+ earlier messages" in " ".join(message["explanations"][0]["sentences"])


def test_after_a_reset_a_dead_letter_is_delivered_again(why: Why, worker: Subscription) -> None:
    offset = publish(TOPIC, 1, key="k").offset
    poll_until(worker, 1)[0].reject("no")
    settle(worker)
    worker.close()
    reset(TOPIC, GROUP, "earliest")
    text, helps = why(offset)[GROUP]
    assert "dead letter" not in text
    assert text.startswith("Not delivered yet.")
    assert helps is None or "redrive" not in helps


def test_an_earlier_copy_is_no_redrive(why: Why, worker: Subscription) -> None:
    publish(TOPIC, 1, key="k")
    for _ in range(2):
        poll_until(worker, 1)[0].reject("no")
        settle(worker)
        assert redrive(TOPIC, group=GROUP) == 1
    (last,) = poll_until(worker, 1)
    last.reject("no")
    settle(worker)
    Message.objects.filter(topic=f"{TOPIC}_dlq").delete()
    text, _ = why(last.offset)[GROUP]
    assert "The new message is" not in text


def test_the_first_message_of_a_strict_key_is_held(why: Why) -> None:
    subscribe(TOPIC, GROUP)
    first, second = (publish(TOPIC, number, key="k").offset for number in range(2))
    hold(TOPIC, group=GROUP, offset=first)
    assert f"An operator holds message {first}." in why(second)[GROUP][0]


def test_a_group_of_dead_letters_gets_commands_for_their_topic(why: Why, worker: Subscription) -> None:
    publish(TOPIC, 1, key="k")
    poll_until(worker, 1)[0].reject("no")
    settle(worker)
    subscribe(f"{TOPIC}_dlq", "clerk")
    (dead,) = Message.objects.filter(topic=f"{TOPIC}_dlq")
    assert why(dead.pk, topic=f"{TOPIC}_dlq")["clerk"][1] == f"manage.py runconsumer {TOPIC}_dlq:clerk"
