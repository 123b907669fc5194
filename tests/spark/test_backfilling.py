"""A new group receives past and present messages in order, even if publishing continues. Nothing needs Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count

import pytest
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.test import override_settings

from django_mqueue import Subscription, pause, publish, publish_many, reset, resume, subscribe, unsubscribe
from django_mqueue.exceptions import GroupNotNew, NotRegistered, Superseded
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Message, Offset
from django_mqueue.spark.database import backfilling, copying, following
from django_mqueue.spark.database.backfilling import BackfillState, Seam
from django_mqueue.spark.database.copied_content import HEADER, Original
from django_mqueue.spark.sql import copies as store
from django_mqueue.store.connection import session
from tests.support.subscribers import QUICK, consume, in_log, settle_and_collect
from tests.support.transactions import HeldTransaction, wait_until

from .streams import settle

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "reports"
KEYS = ("ada", "bob", "cyd")


def say(*numbers: int, key: str | None = "ada") -> None:
    publish_many(TOPIC, [OutgoingMessage(number, key=key) for number in numbers])


def begin() -> BackfillState:
    return backfilling.begin("default", TOPIC, GROUP, settle(TOPIC), 1)


def store_past(border: BackfillState) -> None:
    """Store the past, as tasks do with the rows of archive and log."""
    rows = Message.objects.filter(topic=TOPIC, offset__lte=border.upto, consumer_group="").order_by("offset")
    contents = store.contents(connection.cursor(), list(rows.values_list("offset", flat=True)))
    past = [backfilling.copy_of(backfilling._original(row), border.run) for row in contents]
    copying.append("default", border.run, 0, past)
    backfilling.note_stored("default", border)


def sew(
    border: BackfillState,
    between: Callable[[int], object] = lambda number: None,
    seam: Seam | None = None,
) -> int:
    """Call ``copy_misplaced`` until the seam is whole, and ``between`` after each pass. Return the number of copies."""
    seam, made, passes = seam or Seam("default", border), 0, 0

    def whole() -> bool:
        nonlocal made, passes
        made += seam.copy_misplaced()
        if seam.is_whole:
            return True
        between(passes)
        passes += 1
        return False

    wait_until(whole, "past and present are in order")
    return made


def finish(border: BackfillState) -> None:
    assert backfilling.finish("default", border, Seam("default", border).copies, resume=True)


def received(count: int) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    with Subscription(TOPIC, GROUP) as worker:
        for delivery in consume(worker, count):
            found.setdefault(delivery.key, []).append(delivery.payload)
    return found


def test_the_past_comes_before_the_present() -> None:
    say(0, 1)
    border = begin()
    say(2, 3)
    say(0, key="bob")
    store_past(border)
    say(4)
    assert sew(border) == 3, "2, 3 and 4 are of a key with a past; bob's is left where it is"
    say(5)
    finish(border)
    assert received(7) == {"ada": [0, 1, 2, 3, 4, 5], "bob": [0]}


def test_handlers_see_the_ids_of_the_originals_and_where_they_come_from() -> None:
    publish(TOPIC, 0, key="ada", id="first", kind="placed", headers={"by": "web"})
    border = begin()
    publish(TOPIC, 1, key="ada", id="second")
    store_past(border)
    sew(border)
    finish(border)
    with Subscription(TOPIC, GROUP) as worker:
        one, two = consume(worker, 2)
    assert (one.id, one.kind, one.headers["by"]) == ("first", "placed", "web")
    assert (two.id, two.headers[f"{HEADER}-id"]) == ("second", "second")
    assert one.headers[HEADER] == "backfill"
    assert one.headers[f"{HEADER}-offset"] <= border.upto < two.headers[f"{HEADER}-offset"]


def test_messages_without_keys_are_left_where_they_are() -> None:
    say(0, 1, key=None)
    border = begin()
    say(2, 3, key=None)
    store_past(border)
    assert sew(border) == 0
    finish(border)
    assert sorted(received(4)[None]) == [0, 1, 2, 3]


def test_what_is_published_between_two_looks_is_copied_in_its_turn() -> None:
    say(0)
    border = begin()
    say(1)
    store_past(border)
    said = []

    def more(number: int) -> None:
        if number < 5:
            say(2 + number)
            said.append(2 + number)

    sew(border, more)
    assert said, "the seam was ready at once: this proves nothing"
    say(100)
    finish(border)
    assert received(3 + len(said)) == {"ada": [0, 1, *said, 100]}


def test_two_processes_sew_the_same_seam() -> None:
    """One process knows an older copy as the newest one, while the other copies messages above it.

    1 is uncommitted while the past is stored. The first process looks, and 3 is inserted but not committed. Then 1
    commits, the second process copies 1 and 2 above 3, and 3 commits. The first process must copy 3, too.
    """
    say(0)
    border = begin()
    with HeldTransaction(lambda: say(1)) as early:
        store_past(border)
        say(2)
        first, second = Seam("default", border), Seam("default", border)
        assert first.copy_misplaced() == 0
        with HeldTransaction(lambda: say(3)) as late:
            early.commit()
            assert second.copy_misplaced() == 2
            assert not backfilling.finish("default", border, first.copies, resume=True)
            late.commit()
    assert sew(border, seam=first) == 1
    assert backfilling.finish("default", border, first.copies, resume=True)
    assert received(4) == {"ada": [0, 1, 2, 3]}


def test_it_says_which_key_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfilling, "SETTLE_FOR", 20)
    say(0)
    say(0, key="bob")
    border = begin()
    say(1)
    say(1, key="bob")
    store_past(border)
    told: list[str] = []
    real = store.contents

    def hot(cursor: CursorWrapper, offsets: Sequence[int]) -> list[session.Row]:
        """Publish between the look and the copies."""
        if len(told) < 2:
            say(10, 11)
        return real(cursor, offsets)

    monkeypatch.setattr(store, "contents", hot)
    seam = Seam("default", border)
    for _ in range(20):
        seam.copy_misplaced()
        if seam.is_whole:
            break
        told.append(seam.waits_for)
    assert seam.is_whole
    start = "a moment without new messages for key "
    assert told[0].startswith(start)
    assert told[0].endswith(" and 1 other keys: 3 messages of the first key are new since the last check")
    assert told[1] == f"{start}'ada': 4 messages of the first key are new since the last check"


def test_what_commits_between_the_look_and_the_copies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message's offset is below those of the copies, and the look did not see it."""
    say(0)
    border = begin()
    say(1)
    store_past(border)
    contents, slipped = store.contents, [3, 2]

    def slow(cursor: object, offsets: list[int]) -> object:
        if slipped:
            number = slipped.pop()
            held = HeldTransaction(lambda: say(number))
            with held:
                held.commit()
        return contents(cursor, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "contents", slow)
    assert sew(border) == 3
    assert not slipped, "nothing slipped through: this proves nothing"
    say(4)
    finish(border)
    assert received(5) == {"ada": [0, 1, 2, 3, 4]}


def test_what_commits_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that began before the seam holds a message below the copies."""
    monkeypatch.setattr(backfilling, "SETTLE_FOR", 0.05)
    say(0)
    border = begin()
    with HeldTransaction(lambda: say(1)) as late:
        store_past(border)
        seam = Seam("default", border)
        for _ in range(3):
            assert seam.copy_misplaced() == 0
            assert not seam.is_whole, "it has not waited for the open transaction"
            assert seam.waits_for.startswith("open transactions that may still commit a message below offset")
        say(7, key="bob")
        late.commit()
    say(2)
    assert sew(border) in (1, 2)
    finish(border)
    assert received(4) == {"ada": [0, 1, 2], "bob": [7]}


def test_one_that_was_committed_before_the_next_was_sent_comes_first() -> None:
    """One look sees both messages, or two looks see them in order."""
    say(0)
    border = begin()
    store_past(border)
    seam = Seam("default", border)
    with HeldTransaction(lambda: say(1)) as late:
        say(9, key="bob")
        seam.copy_misplaced()
        late.commit()
    say(2)
    sew(border)
    finish(border)
    assert received(4)["ada"] == [0, 1, 2]


def test_messages_for_the_group_alone_are_in_their_place() -> None:
    say(0)
    border = begin()
    publish(TOPIC, 1, key="ada", group=GROUP)
    subscribe(TOPIC, "others")
    publish(TOPIC, 100, key="ada", group="others")
    say(2)
    store_past(border)
    sew(border)
    finish(border)
    assert received(3) == {"ada": [0, 1, 2]}


@override_settings(MQUEUE=QUICK)
def test_a_worker_that_waits_is_given_everything_in_order() -> None:
    """The worker has already seen the messages that are copied later. It reads the log again."""
    say(0, 1)
    following.follow(TOPIC, "holds", 0, 0, using="default")
    border = begin()
    with Subscription(TOPIC, GROUP) as worker:
        say(2)
        assert worker.poll() == worker.poll() == []
        store_past(border)
        say(3)
        assert worker.poll() == []
        sew(border)
        assert worker.poll() == []
        finish(border)
        following.forget(TOPIC, "holds", using="default")
        assert [delivery.payload for delivery in consume(worker, 4)] == [0, 1, 2, 3]
        settle_and_collect(worker)
        assert in_log(TOPIC) == [], "copies and originals are deleted when the group is done"


@override_settings(MQUEUE=QUICK)
def test_nothing_that_is_to_be_copied_is_deleted() -> None:
    """Another group has acknowledged everything, and garbage collection deletes all that it may."""
    say(0)
    with Subscription(TOPIC, "others") as others:
        border = begin()
        say(1, 2)
        consume(others, 3)
        settle_and_collect(others)
        assert len(in_log(TOPIC)) == 2, "what lies before the border is for others to hold"
        past = [backfilling.copy_of(Original(1, "ada", "i", "", "json", {}, b"0", 0), border.run)]
        copying.append("default", border.run, 0, past)
        backfilling.note_stored("default", border)
        settle_and_collect(others)
        sew(border)
        settle_and_collect(others)
        finish(border)
        assert received(3) == {"ada": [0, 1, 2]}


def test_run_again_it_goes_on() -> None:
    say(0)
    border = begin()
    say(1)
    again = begin()
    assert (again.upto, again.run, again.ended) == (border.upto, border.run, False)
    store_past(again)
    assert backfilling.stored_to_border("default", border)
    store_past(begin())
    Seam("default", border).copy_misplaced()
    say(2)
    sew(begin())
    finish(border)
    assert begin().ended
    assert received(3) == {"ada": [0, 1, 2]}
    left = Offset.objects.filter(consumer_group="", topic=TOPIC).exclude(partition_key="")
    assert [row.partition_key for row in left] == [f"backfill-head {GROUP}"]


def test_a_group_that_is_registered_is_not_new() -> None:
    say(0)
    subscribe(TOPIC, GROUP)
    with pytest.raises(GroupNotNew, match="Unsubscribe it first"):
        begin()
    unsubscribe(TOPIC, GROUP)
    border = begin()
    unsubscribe(TOPIC, GROUP)
    with pytest.raises(NotRegistered):
        store_past(border)
    subscribe(TOPIC, GROUP)
    with pytest.raises(GroupNotNew):
        begin()


def test_the_past_is_not_stored_for_another_life_of_the_group() -> None:
    say(0)
    border = begin()
    unsubscribe(TOPIC, GROUP)
    subscribe(TOPIC, GROUP)
    with pytest.raises(Superseded, match="registered again"):
        store_past(border)
    assert received(1) == {"ada": [0]}


def test_a_second_life_of_the_group_is_given_everything_again() -> None:
    say(0, 1)
    for _ in range(2):
        border = begin()
        store_past(border)
        sew(border)
        finish(border)
        assert received(2) == {"ada": [0, 1]}
        unsubscribe(TOPIC, GROUP)


def test_the_end_may_be_said_twice() -> None:
    """Finishing again is safe, whatever the group does since.

    A process repeats it if it did not see the result of its commit. Another process may also repeat it.
    """
    say(0)
    border = begin()
    store_past(border)
    sew(border)
    finish(border)
    assert received(1) == {"ada": [0]}
    finish(border)
    unsubscribe(TOPIC, GROUP)
    finish(border)
    again = begin()
    with pytest.raises(Superseded, match="registered again"):
        finish(border)
    assert not begin().ended
    assert again.run.generation != border.run.generation


@pytest.mark.parametrize("how", ["resumed", "reset", "unsubscribed"])
def test_a_group_that_was_changed_by_hand_is_given_nothing_more(how: str) -> None:
    say(0)
    border = begin()
    say(1)
    store_past(border)
    if how == "resumed":
        resume(TOPIC, GROUP)
    elif how == "reset":
        reset(TOPIC, GROUP, "earliest")
    else:
        unsubscribe(TOPIC, GROUP)
    count = Message.objects.count()
    with pytest.raises((Superseded, NotRegistered)):
        sew(border)
    with pytest.raises((Superseded, NotRegistered)):
        finish(border)
    assert Message.objects.count() == count


def test_what_was_delivered_by_hand_meanwhile_is_said() -> None:
    say(0)
    border = begin()
    say(1)
    store_past(border)
    resume(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP) as worker:
        wait_until(lambda: worker.poll(), "it was given something")
        pause(TOPIC, GROUP)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE queue_delivery_state SET acked = 0, in_flight = 1 WHERE consumer_group = %s", [GROUP]
        )
    with pytest.raises(Superseded, match="the group was resumed"):
        sew(border)


@pytest.mark.parametrize("seed", range(6))
def test_any_story_ends_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions begin, publish and end in any order while the past is stored and the seam is sewn.

    If a message was committed before another was sent, it is delivered first. Each message is delivered once.
    """
    monkeypatch.setattr(backfilling, "SETTLE_FOR", 0.02)
    monkeypatch.setattr(backfilling, "PAGE", 3)
    dice = random.Random(seed)
    numbers, sent, before = count(), {}, {}
    committed: dict[str, set[int]] = {key: set() for key in KEYS}
    open_ones: list[tuple[HeldTransaction[None], dict[int, str]]] = []

    def note(some: Sequence[tuple[int, str]]) -> None:
        for number, key in some:
            sent[number], before[number] = key, set(committed[key])

    def publish_some(*, at_once: bool = False) -> None:
        some = [(next(numbers), dice.choice(KEYS)) for _ in range(dice.randint(1, 3))]
        note(some)

        def work() -> None:
            for number, key in some:
                say(number, key=key)

        if not at_once and dice.random() < 0.4 and len(open_ones) < 3:
            open_ones.append((HeldTransaction(work).__enter__(), dict(some)))
        else:
            work()
            for number, key in some:
                committed[key].add(number)

    def end_one() -> None:
        if open_ones:
            held, some = open_ones.pop(dice.randrange(len(open_ones)))
            if dice.random() < 0.2:
                held.rollback()
                for number in some:
                    del sent[number]
            else:
                held.commit()
                for number, key in some.items():
                    committed[key].add(number)

    def happen() -> None:
        for _ in range(dice.randint(0, 3)):
            dice.choice([publish_some, publish_some, end_one])()

    contents = store.contents

    def meanwhile(cursor: CursorWrapper, offsets: Sequence[int]) -> list[session.Row]:
        if dice.random() < 0.5:
            some = [(next(numbers), dice.choice(KEYS))]
            note(some)
            with HeldTransaction(lambda: say(some[0][0], key=some[0][1])) as held:
                held.commit()
            committed[some[0][1]].add(some[0][0])
        return contents(cursor, offsets)

    try:
        for _ in range(5):
            publish_some(at_once=True)
        known = settle(TOPIC)
        happen()
        border = backfilling.begin("default", TOPIC, GROUP, known, 1)
        happen()
        store_past(border)
        monkeypatch.setattr(store, "contents", meanwhile)
        seam = Seam("default", border)
        for _ in range(10):
            happen()
            seam.copy_misplaced()
        while open_ones:
            end_one()
        sew(border)
        finish(border)
        happen()
        while open_ones:
            end_one()
    finally:
        for held, _ in open_ones:
            held.rollback()
    order: dict[int, int] = {}
    with Subscription(TOPIC, GROUP) as worker:
        for place, delivery in enumerate(consume(worker, len(sent))):
            assert sent[delivery.payload] == delivery.key
            order[delivery.payload] = place
    assert order.keys() == sent.keys()
    for number in sent:
        late = [earlier for earlier in before[number] if order[earlier] > order[number]]
        assert not late, f"{late} were committed before {number} was sent, and came behind it"


def test_many_keys_and_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfilling, "PAGE", 7)
    monkeypatch.setattr(backfilling, "WINDOW", 20)
    monkeypatch.setattr(backfilling, "TAIL", 5)
    monkeypatch.setattr(backfilling, "BYTES_PER_STATEMENT", 300)
    monkeypatch.setattr(backfilling, "REMEMBERED", 1)
    for number in range(10):
        for key in KEYS:
            say(number, key=key)
    border = begin()
    for number in range(10, 40):
        for key in (*KEYS, "new"):
            say(number, key=key)
    store_past(border)
    sew(border, lambda number: say(40 + number, key="ada") if number < 3 else None)
    finish(border)
    extra = Message.objects.filter(topic=TOPIC, partition_key="ada", consumer_group="").count() - 40
    found = received(3 * 40 + 30 + extra)
    expected = {key: list(range(40)) for key in KEYS}
    assert found == {**expected, "ada": list(range(40 + extra)), "new": list(range(10, 40))}
