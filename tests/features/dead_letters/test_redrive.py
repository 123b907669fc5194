"""``redrive`` sends dead letters back to the group that gave them up. ``purge`` deletes them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest import mock

import pytest
from django.db import ProgrammingError, transaction
from django.test import override_settings

from django_mqueue import (
    Edited,
    Message,
    NotRegistered,
    OutgoingMessage,
    RequestFailed,
    StaleDelivery,
    Subscription,
    publish,
    publish_many,
    purge,
    redrive,
    request,
    reset,
    subscribe,
    unsubscribe,
)
from django_mqueue.browse import bulk_redrive, dead_letters
from django_mqueue.models import DeliveryState
from django_mqueue.models import Message as Row
from django_mqueue.policy.dead_letter_filter import DeadLetterQuery
from django_mqueue.policy.names import ACTIONS_TOPIC
from django_mqueue.service import redrive as module
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, consume_rest, poll_until, settle_and_collect
from tests.support.threads import Background
from tests.support.transactions import HeldTransaction, statements

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, DEAD = "orders", "orders_dlq"


quick = with_settings(MQUEUE=QUICK)


def give_up(*messages: Any, group: str = "billing", error: str = "no") -> None:
    """Publish the messages, and let the group reject every message that it receives."""
    subscribe(TOPIC, group)
    if messages:
        publish_many(TOPIC, messages)
    with Subscription(TOPIC, group, batch_size=1000) as subscription:
        for delivery in poll_until(subscription, len(messages) or 1, max_messages=1000):
            delivery.reject(error)


def left() -> list[Any]:
    """Return the payloads of the remaining dead letters."""
    return [json.loads(bytes(row.payload)) for row in Row.objects.filter(topic=DEAD).order_by("offset")]


def given(group: str, count: int) -> list[Message]:
    with Subscription(TOPIC, group, batch_size=1000) as subscription:
        return [*consume(subscription, count), *consume_rest(subscription)]


def test_a_message_comes_back_as_it_was_to_the_group_that_gave_it_up() -> None:
    """The message keeps its id, key, kind and headers, and is a first attempt. No other group receives it again."""
    subscribe(TOPIC, "stock")
    give_up(OutgoingMessage({"n": 1}, key="k", id="order-1", kind="placed", headers={"a": [1]}), error="E: 1")
    assert redrive(TOPIC) == 1
    assert left() == []
    (message,) = given("billing", 1)
    assert (message.id, message.key, message.kind, message.headers) == ("order-1", "k", "placed", {"a": [1]})
    assert (message.payload, message.attempt, message.topic) == ({"n": 1}, 1, TOPIC)
    assert (message.last_error, message.failed_at, message.failed_group) == ("", None, None)
    assert [message.payload for message in given("stock", 1)] == [{"n": 1}], "the one that was published"
    assert redrive(TOPIC) == 0


def test_two_groups_get_their_own() -> None:
    subscribe(TOPIC, "stock")
    give_up(1, 2)
    give_up(group="stock")
    assert redrive(TOPIC, group="stock") == 2
    assert [message.payload for message in given("stock", 2)] == [1, 2]
    assert redrive(TOPIC) == 2
    assert [message.payload for message in given("billing", 2)] == [1, 2]


def test_it_may_fail_again_and_again() -> None:
    """Each failure makes one letter, with the id of the original message."""
    give_up(OutgoingMessage("poison", id="order-1", key="k"))
    for turn in range(5):
        assert redrive(TOPIC) == 1
        give_up(error=f"again {turn}")
        (letter,) = Row.objects.filter(topic=DEAD)
        assert (letter.original_id, letter.last_error) == ("order-1", f"again {turn}")
    with Subscription(TOPIC, "billing") as subscription:
        settle_and_collect(subscription)
    assert Row.objects.exclude(topic=ACTIONS_TOPIC).count() == 1


def test_strict_order_holds_for_what_comes_back() -> None:
    give_up(*(OutgoingMessage(n, key="k") for n in range(5)))
    redrive(TOPIC)
    with Subscription(TOPIC, "billing", strict=True) as subscription:
        assert [delivery.payload for delivery in consume(subscription, 5)] == [0, 1, 2, 3, 4]


ERRORS = {
    "a": "ValueError: no such order\n\nTraceback …",
    "b": "shop.errors.CardDeclined: 51",
    "c": "TimeoutError\n\n…",
    "d": "no such customer",
}


@pytest.fixture
def several() -> None:
    """Create four letters with their errors; ``n`` is 0 to 3."""
    subscribe(TOPIC, "billing")
    publish_many(
        TOPIC,
        [OutgoingMessage({"n": n, "c": {"id": n % 2}}, id=i, headers={"h": n}) for n, i in enumerate("abcd")],
    )
    with Subscription(TOPIC, "billing", batch_size=1000) as subscription:
        for delivery in poll_until(subscription, 4):
            delivery.reject(ERRORS[delivery.id])


SOON, BEFORE = datetime.now(UTC) + timedelta(days=2), datetime.now(UTC) - timedelta(days=2)


@pytest.mark.parametrize("verb", [redrive, purge])
@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        ({}, "abcd"),
        ({"ids": ["b", "d", "nobody"]}, "bd"),
        ({"ids": []}, ""),
        ({"filter": {"error": "ValueError"}}, "a"),
        ({"filter": {"error": "CardDeclined"}}, "b"),
        ({"filter": {"error": "shop.errors.CardDeclined"}}, "b"),
        ({"filter": {"error": {"CardDeclined", "TimeoutError"}}}, "bc"),
        ({"filter": {"error": "no such customer"}}, ""),
        ({"filter": {"payload__c__id": 1}}, "bd"),
        ({"filter": {"payload__c__id": 1, "error": "CardDeclined"}}, "b"),
        ({"filter": {"h": {0, 3}}}, "ad"),
        ({"filter": {"failed_after": BEFORE, "failed_before": SOON}}, "abcd"),
        ({"filter": {"failed_after": SOON}}, ""),
        ({"filter": {"failed_before": BEFORE}}, ""),
        ({"filter": lambda letter: letter.failure_count == 1 and letter.payload["n"] > 1}, "cd"),
        (
            {"filter": lambda letter: letter.failed_group == "billing" and letter.original_topic == TOPIC},
            "abcd",
        ),
        ({"limit": 3}, "abc"),
        ({"limit": 9}, "abcd"),
        ({"filter": {"payload__c__id": 1}, "limit": 1}, "b"),
        ({"group": "billing"}, "abcd"),
        ({"rate": 1000}, "abcd"),
    ],
)
@pytest.mark.usefixtures("several")
def test_which_letters(verb: Callable[..., int], chosen: dict[str, Any], ids: str) -> None:
    if verb is purge and "rate" in chosen:
        chosen = {}
    assert verb(TOPIC, **chosen, dry_run=True) == len(ids)
    assert len(left()) == 4
    assert verb(TOPIC, **chosen) == len(ids)
    assert {row.original_id for row in Row.objects.filter(topic=DEAD)} == set("abcd") - set(ids)
    if verb is redrive:
        assert sorted(message.id for message in given("billing", len(ids))) == sorted(ids)
    else:
        assert given("billing", 0) == []


@pytest.mark.usefixtures("several")
def test_an_edited_payload() -> None:
    """Kind and headers stay. The letter that ``edit`` receives has its error."""
    seen: list[str] = []

    def edit(letter: Message) -> Any:
        seen.append(letter.last_error)
        return {**letter.payload, "fixed": True}

    assert redrive(TOPIC, ids=["a"], edit=edit) == 1
    (message,) = given("billing", 1)
    assert (message.payload, message.headers) == ({"n": 0, "c": {"id": 0}, "fixed": True}, {"h": 0})
    assert seen == [ERRORS["a"]]


@pytest.mark.usefixtures("several")
def test_edited_headers() -> None:
    def edit(letter: Message) -> Edited:
        return Edited({"n": 7}, {**letter.headers, "again": True})

    assert redrive(TOPIC, ids=["a"], edit=edit) == 1
    assert redrive(TOPIC, ids=["b"], edit=lambda letter: Edited(letter.payload, {})) == 1
    first, second = sorted(given("billing", 2), key=lambda message: message.id)
    assert (first.payload, first.headers) == ({"n": 7}, {"h": 0, "again": True})
    assert (second.payload["n"], second.headers) == (1, {})


def test_an_edited_request_stays_a_request() -> None:
    """The header that names the reply box is hidden from ``edit``, and stays."""
    subscribe(TOPIC, "billing")
    asking = Background(lambda: request(TOPIC, {"n": 1}, timeout=60, headers={"h": 1})).start()
    with Subscription(TOPIC, "billing") as subscription:
        (delivery,) = poll_until(subscription, 1)
        delivery.reject("no")
    with pytest.raises(RequestFailed):
        asking.result()
    box = Row.objects.get(topic=DEAD).metadata["headers"]["mqueue-reply-to"]
    assert redrive(TOPIC, edit=lambda letter: Edited({"n": 2}, {**letter.headers, "h": 2})) == 1
    redriven = Row.objects.get(topic=TOPIC, consumer_group="billing")
    assert redriven.metadata["headers"] == {"h": 2, "mqueue-reply-to": box}


@pytest.mark.parametrize(
    "edit",
    [
        lambda letter: object(),
        lambda letter: 1 // 0,
        lambda letter: "x" * 2_000_000,
        lambda letter: Edited(1, cast(Any, 5)),
        lambda letter: Edited(1, {"mqueue-reply-to": "1:x"}),
    ],
)
@pytest.mark.usefixtures("several")
def test_an_editor_that_fails_changes_nothing(edit: Any) -> None:
    with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
        redrive(TOPIC, edit=edit)
    assert len(left()) == 4
    assert Row.objects.filter(topic=TOPIC).exclude(consumer_group="").count() == 0


def test_a_payload_that_cannot_be_decoded_goes_back_as_it_is() -> None:
    give_up(1)
    Row.objects.filter(topic=DEAD).update(payload=b"{broken")
    assert redrive(TOPIC, filter=lambda letter: letter.payload == b"{broken", dry_run=True) == 1
    assert redrive(TOPIC) == 1
    assert bytes(Row.objects.get(topic=TOPIC, consumer_group="billing").payload) == b"{broken"


def test_a_rate() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", 5)
        give_up(*range(20))
        begun = time.monotonic()
        assert redrive(TOPIC, rate=40) == 20
        assert time.monotonic() - begun >= 15 / 40


def test_a_rate_holds_for_few_messages_and_the_call_ends_with_the_last() -> None:
    give_up(*range(4))
    with mock.patch("time.sleep") as sleep:
        assert redrive(TOPIC, rate=2) == 4
    assert sleep.call_count == 2, "before each of two pages, and not after the last"
    assert 0 <= sleep.call_args.args[0] <= 1


def test_a_rate_with_several_ids_reads_their_index_and_not_all_dead_letters() -> None:
    give_up(*range(4))
    ids = Row.objects.filter(topic=DEAD).values_list("original_id", flat=True)[:2]
    with mock.patch("time.sleep"), statements() as seen:
        assert redrive(TOPIC, ids=list(ids), rate=1) == 2
    pages = [sql for sql in seen if "LENGTH(payload)" in sql]
    assert len(pages) == 3
    assert all("FORCE INDEX (queue_messages_due)" in sql for sql in pages)


def test_letters_of_groups_that_are_gone_stay() -> None:
    subscribe(TOPIC, "stock")
    give_up(1)
    give_up(group="stock")
    unsubscribe(TOPIC, "stock")
    assert redrive(TOPIC) == 1
    assert [row.failed_group for row in Row.objects.filter(topic=DEAD)] == ["stock"]
    with pytest.raises(NotRegistered, match="'stock' is not registered for topic 'orders'"):
        redrive(TOPIC, group="stock")
    assert purge(TOPIC, group="stock") == 1
    assert left() == []


def test_a_group_that_unsubscribes_meanwhile_keeps_its_letters() -> None:
    """Messages that are sent back to an unsubscribed group would be deleted."""
    give_up(*range(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", 2)

        def chosen(letter: Message) -> bool:
            if letter.payload == 2:
                Background(lambda: unsubscribe(TOPIC, "billing")).start().result()
            return True

        assert redrive(TOPIC, filter=chosen) == 2
    assert left() == [2, 3]


def test_what_comes_while_it_runs_is_left_for_another_time() -> None:
    """Otherwise ``redrive`` would never end if a message fails at once."""
    give_up(*range(10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", 2)
        rounds: list[int] = []

        def edit(letter: Message) -> Any:
            rounds.append(letter.payload)
            if len(rounds) == 3:
                Background(lambda: give_up(10)).start().result()
            return letter.payload

        assert redrive(TOPIC, edit=edit) == 10
    assert len(rounds) == 10


def test_two_at_once_send_each_back_once() -> None:
    """Each transaction skips letters that another transaction has locked."""
    give_up(*range(200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", 7)
        start = threading.Barrier(3)

        def work() -> int:
            start.wait()
            return redrive(TOPIC)

        counts = [one.result() for one in [Background(work).start() for _ in range(3)]]
    rest = redrive(TOPIC)
    assert sum(counts) + rest == 200
    assert sorted(message.payload for message in given("billing", 200)) == list(range(200))


def test_a_dead_letter_that_was_deleted_meanwhile_does_not_count_as_locked() -> None:
    """Of three dead letters, one is purged after it was found, and another transaction holds the lock of one."""
    give_up(1, 2, 3)
    page = list(Row.objects.filter(topic=DEAD).order_by("offset").values_list("offset", flat=True))
    assert purge(TOPIC, limit=1) == 1
    work = module.selection(TOPIC, None, None, None, redrives=True)
    with HeldTransaction(lambda: Row.objects.select_for_update().get(offset=page[1])):
        batch = work.batch(page)
    assert (batch.moved, batch.locked, batch.unregistered) == (1, 1, 0)


def test_a_run_that_is_cut_short_is_repeated() -> None:
    give_up(*range(30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", 10)

        def edit(letter: Message) -> Any:
            if letter.payload == 15:
                raise KeyboardInterrupt
            return letter.payload

        with pytest.raises(KeyboardInterrupt):
            redrive(TOPIC, edit=edit)
        assert len(left()) == 20
        assert redrive(TOPIC) == 20
    assert sorted(message.payload for message in given("billing", 30)) == list(range(30))


def test_in_the_callers_transaction() -> None:
    give_up(1, 2)
    with transaction.atomic():
        assert redrive(TOPIC) == 2
        transaction.set_rollback(True)
    assert left() == [1, 2]
    assert given("billing", 0) == []


def test_whoever_consumes_the_letters_notices() -> None:
    """A letter that goes back while a handler has it is stale for that handler."""
    give_up(1, 2)
    with Subscription(DEAD, "clerk") as clerk:
        first, second = poll_until(clerk, 2)
        assert redrive(TOPIC) == 2
        with pytest.raises(StaleDelivery):
            first.ack()
        with pytest.raises(StaleDelivery):
            second.nack(delay=0)
        assert consume_rest(clerk) == []
    assert not DeliveryState.objects.filter(topic=DEAD).exists()


def test_three_statements_a_page_and_no_more_with_many() -> None:
    """The number of statements grows with pages of 500, not with letters."""
    give_up(*range(600))
    with statements() as seen:
        assert redrive(TOPIC) == 600
    assert len(seen) <= 8 + 2 * 8


def test_large_payloads_go_in_smaller_pages() -> None:
    give_up(*("x" * 1_000_000 for _ in range(6)))
    with statements() as seen:
        assert redrive(TOPIC) == 6
    assert sum(sql.startswith("INSERT INTO queue_messages") for sql in seen) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"topic": ""}, ValueError, "topic must not be empty"),
        ({"group": 5}, TypeError, "group must be a str"),
        ({"ids": "abc"}, TypeError, "ids must be a collection of ids, not the one str"),
        ({"ids": [5]}, TypeError, "id must be a str"),
        ({"filter": 5}, TypeError, "filter must be a mapping or a callable"),
        ({"filter": {}}, ValueError, "filter is empty, but must name"),
        ({"filter": {"error": 5}}, TypeError, "error must be the name of an exception|not iterable"),
        ({"filter": {"error": ""}}, TypeError, "error must be the name of an exception"),
        ({"filter": {"failed_after": 5}}, TypeError, "failed_after must be an aware datetime"),
        ({"filter": {"failed_before": datetime(2026, 1, 1)}}, ValueError, "failed_before must be an aware"),
        ({"edit": 5}, TypeError, "edit must be a callable"),
        ({"limit": 0}, ValueError, "limit must be at least 1"),
        ({"rate": 0}, ValueError, "rate must be more than 0"),
    ],
)
def test_bad_arguments(
    arguments: dict[str, Any],
    error: type[Exception],
    match: str,
    django_assert_num_queries: Callable[[int], Any],
) -> None:
    with django_assert_num_queries(0), pytest.raises(error, match=match):
        redrive(**{"topic": TOPIC, **arguments})


def test_publishing_the_id_again_meanwhile() -> None:
    """A redriven message does not replace a new message of the same id."""
    give_up(OutgoingMessage(1, id="order-1", key="k"))
    with Subscription(TOPIC, "billing") as subscription:
        settle_and_collect(subscription)
    assert publish(TOPIC, 2, id="order-1", key="k").created
    assert redrive(TOPIC) == 1
    assert sorted((message.id, message.payload) for message in given("billing", 2)) == [
        ("order-1", 1),
        ("order-1", 2),
    ]


@pytest.mark.parametrize("newest_first", [True, False])
def test_dead_letters_of_an_id_that_many_keys_share_are_listed_in_steps(
    monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    """Each step continues after the one before."""
    monkeypatch.setattr(dead_letters, "IDS", 3)
    give_up(*(OutgoingMessage(n, key=f"k{n}", id="welcome") for n in range(7)))
    query = DeadLetterQuery(TOPIC, DEAD, id="welcome")
    bounds, offsets, sizes = (0, dead_letters.OFFSET_MAX), list[int](), list[int]()
    for _ in range(3):
        step = next(dead_letters.walk("default", query, bounds, newest_first=newest_first))
        offsets += [one.offset for one in step.found]
        sizes.append(len(step.found))
        if step.next is None:
            break
        bounds = (0, step.next) if newest_first else (step.next, dead_letters.OFFSET_MAX)
    assert sizes == [3, 3, 1]
    assert offsets == sorted(offsets, reverse=newest_first)


def test_a_redrive_in_steps_sends_back_all_dead_letters_of_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "IDS", 3)
    give_up(*(OutgoingMessage(n, key=f"k{n}", id="welcome") for n in range(7)))
    query = DeadLetterQuery(TOPIC, DEAD, id="welcome")
    moved, above = 0, 0
    while True:
        done = bulk_redrive.step("default", query, above, dead_letters.OFFSET_MAX, redrives=True, limit=2)
        moved += done.moved
        if done.position is None:
            break
        above = done.position
    assert moved == 7
    assert left() == []


def test_a_message_that_fails_again_after_a_reset_has_its_new_failure() -> None:
    """Its dead letter of before the reset would be purged by its old time, and found by its old error."""
    publish(TOPIC, 1)
    with Subscription(TOPIC, "billing") as one:
        poll_until(one, 1)[0].reject("ValueError: first")
    before = Row.objects.get(topic=DEAD)
    Row.objects.filter(topic=DEAD).update(failed_at=1, published_at=1)
    reset(TOPIC, "billing", "earliest", force=True)
    with Subscription(TOPIC, "billing") as one:
        poll_until(one, 1)[0].reject("ValueError: second")
    letter = Row.objects.get(topic=DEAD)
    assert letter.last_error == "ValueError: second"
    assert letter.failed_at is not None
    assert before.failed_at is not None
    assert letter.failed_at >= before.failed_at
    since = DeadLetterQuery(TOPIC, DEAD, after=before.failed_at)
    assert [one.offset for one in dead_letters.page("default", since).summaries] == [letter.pk]


@pytest.mark.usefixtures("quick")
def test_errors_of_a_filter_are_not_taken_for_errors_of_the_queue() -> None:
    give_up(1)

    def fits(letter: Message) -> bool:
        raise ProgrammingError(1146, "Table 'shop.customers' doesn't exist")

    with pytest.raises(ProgrammingError, match="customers"):
        redrive(TOPIC, filter=fits)


@override_settings(MQUEUE={**QUICK, "TOPICS": {"orders": {"DLQ_SUFFIX": "_eu_dlq"}}})
def test_only_the_topics_own_dead_letters() -> None:
    """With these suffixes, two topics have one dead-letter topic."""
    for topic in ("orders", "orders_eu"):
        publish(topic, topic)
        with Subscription(topic, "billing") as subscription:
            poll_until(subscription, 1)[0].reject("no")
    assert redrive("orders") == 1
    assert purge("orders") == 0
    assert [row.original_topic for row in Row.objects.filter(topic="orders_eu_dlq")] == ["orders_eu"]
