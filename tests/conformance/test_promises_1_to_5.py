"""Promises 1 to 5, one class each. The other modules test some of them further."""

from __future__ import annotations

from .doing import (
    Held,
    Members,
    is_in_log,
    keys,
    nothing_comes,
    outlast,
    payloads,
    polled_until,
    receive,
    rolled_back,
    take,
    take_one,
    until,
)
from .system import Delivery, System


class TestPromise1AtomicPublish:
    """A message exists exactly when the transaction that published it commits."""

    def test_visible_with_the_commit_and_not_before(self, system: System) -> None:
        """While the transaction is open, nothing comes. After its commit, the message comes."""
        subscriber = system.open("t", "g")
        held = Held(system, lambda: system.publish("t", "x", key="a"))
        nothing_comes(subscriber, system.looks)
        held.commit()
        assert take_one(subscriber).payload == "x"

    def test_rolled_back_it_never_was(self, system: System) -> None:
        """Messages and batches of a transaction that is rolled back never come, and their ids are free."""
        subscriber = system.open("t", "g")
        with rolled_back(system):
            assert system.publish("t", "undone", key="a", id="x").created
        with rolled_back(system):
            system.publish_many("t", [*range(20)], keys(20))
        assert system.publish("t", "done", key="a", id="x").created, "the id is free"
        assert take_one(subscriber).payload == "done"
        nothing_comes(subscriber, system.looks)

    def test_two_topics_in_one_transaction(self, system: System) -> None:
        """Messages to several topics exist together or not at all."""
        one, two = system.open("one", "g"), system.open("two", "g")
        with rolled_back(system):
            system.publish("one", 1, key="a")
            system.publish("two", 1, key="a")
        with system.transaction():
            system.publish("one", 2, key="a")
            system.publish("two", 2, key="a")
        assert [take_one(one).payload, take_one(two).payload] == [2, 2]


class TestPromise2NothingIsLost:
    """Every committed message reaches every group registered for its topic before the topic may delete it."""

    def test_a_transaction_that_commits_late(self, system: System) -> None:
        """A late commit is delivered, although its offset is below messages that are delivered, acked and deletable."""
        with system.retention(0):
            subscriber = system.open("t", "g")
            held = Held(system, lambda: system.publish("t", "late", key="a", id="late"))
            for n in range(3):
                system.publish("t", n, key="a", id=str(n))
            assert payloads(take(subscriber, 3)) == [0, 1, 2]
            nothing_comes(subscriber, system.looks)
            published = held.commit()
            got = take_one(subscriber)
            assert (got.payload, got.offset) == ("late", published.offset)
            polled_until(subscriber, lambda: not is_in_log(system, "t", "late", key="a"), "it leaves the log")

    def test_many_that_commit_late_in_any_order(self, system: System) -> None:
        """Eight open transactions of four keys end in reverse order, and every third one rolls back.

        Other messages are published between them.
        """
        with system.retention(0):
            subscriber = system.open("t", "g")
            held: list[Held] = []
            for n in range(8):
                held.append(Held(system, lambda n=n: system.publish("t", n, key=f"k{n % 4}")))  # type: ignore[misc]
                system.publish("t", 100 + n, key=f"k{n % 4}")
            got = payloads(take(subscriber, 8))
            for n in reversed(range(8)):
                if n % 3:
                    held[n].commit()
                    got.append(take_one(subscriber).payload)
                else:
                    held[n].roll_back()
            assert sorted(got) == [1, 2, 4, 5, 7, *range(100, 108)]
            nothing_comes(subscriber, system.looks)

    def test_a_late_commit_while_its_group_is_away(self, system: System) -> None:
        """All members leave before the transaction commits. New members find the message below their position."""
        with system.retention(0):
            first = system.open("t", "g")
            held = Held(system, lambda: system.publish("t", "late", key="a"))
            system.publish("t", "early", key="a")
            assert take_one(first).payload == "early"
            nothing_comes(first, system.looks)
            first.close()
            held.commit()
            second = system.open("t", "g")
            assert take_one(second).payload == "late"
            nothing_comes(second, system.looks)

    def test_a_group_that_begins_with_the_latest_misses_no_late_commit(self, system: System) -> None:
        """A transaction that was open when the group registered commits later. The group gets the message."""
        held = Held(system, lambda: system.publish("t", "late", key="a"))
        system.publish("t", "early", key="a")
        system.subscribe("t", "g", "latest")
        held.commit()
        subscriber = system.open("t", "g")
        got = until(lambda: [each for each in subscriber.poll() if each.payload == "late"], "the late one")
        assert len(got) == 1

    def test_groups_that_come_and_go_while_others_forget(self, system: System) -> None:
        """A registered group gets every message published after its registration, while deletion runs."""
        with system.retention(0):
            first = system.open("t", "first")
            for n in range(5):
                system.publish("t", n, key=f"k{n}")
                system.subscribe("t", f"from {n}", "latest")
                take_one(first)
            system.publish("t", 5, key="k5")
            take_one(first)
            nothing_comes(first, system.looks)
            for n in range(5):
                group = system.open("t", f"from {n}")
                expected = {*range(n + 1, 6)}
                got: list[int] = []
                while not expected <= {*got}:
                    got += [each.payload for each in until(group.poll, f"more than {got} of {expected}")]
                assert len(got) == len({*got})
                group.close()


class TestPromise3AtLeastOnce:
    """A message that is not acknowledged is redelivered.

    ``test_more_than_delivery`` tests exactly once, with ``atomic``.
    """

    def test_whatever_a_dead_member_had_in_hand_comes_again(self, system: System) -> None:
        """A member dies with three of eight messages acked. Another gets the other five, as second attempts."""
        first = system.open("t", "g", "one")
        for n in range(8):
            system.publish("t", n, key=f"k{n % 2}")
        held = receive(first, 8)
        for delivery in held[:3]:
            assert delivery.ack()
        first.crash()
        second = system.open("t", "g", "two")
        got = take(second, 5)
        assert sorted(payloads(got)) == sorted(payloads(held[3:]))
        assert {each.attempt for each in got} == {2}
        nothing_comes(second, system.looks)

    def test_an_answer_of_a_rolled_back_transaction_was_none(self, system: System) -> None:
        """An ack in a transaction that is rolled back has no effect, and the message is redelivered.

        An ack in a transaction that commits is final.
        """
        subscriber = system.open("t", "g", visibility_timeout=0.5)
        system.publish("t", 1, key="a")
        (delivery,) = receive(subscriber)
        with rolled_back(system):
            assert delivery.ack()
        (again,) = receive(subscriber)
        assert again.attempt == 2
        with system.transaction():
            assert again.ack()
        outlast(system, "t", "another", 0.5)
        nothing_comes(subscriber, system.looks)


class TestPromise4OrderPerKey:
    """One worker of a group owns a partition at a time.

    With ``strict``, one message is in flight at a time, in order, whatever fails.
    """

    def test_strict_whatever_fails(self, system: System) -> None:
        """The order holds after failures, a rejection, an owner that leaves and an owner that dies."""
        members = [system.open("t", "g", "one", strict=True)]
        for n in range(10):
            system.publish("t", n, key="a")
        done: list[int] = []
        while len(done) < 10:
            (delivery,) = receive(members)
            n = delivery.payload
            assert n == len(done), f"{n} came out of turn"
            match n, delivery.attempt:
                case (2 | 8, 1):
                    assert delivery.nack(delay=0.1)
                case (3, 1):
                    members.pop().close()
                    members.append(system.open("t", "g", "two", strict=True))
                case (4, _):
                    assert delivery.reject("never")
                    done.append(n)
                case (6, 1):
                    members.pop().crash()
                    members.append(system.open("t", "g", "three", strict=True))
                case _:
                    assert delivery.ack()
                    done.append(n)
        nothing_comes(members, system.looks)

    def test_one_owner_at_a_time(self, system: System) -> None:
        """Two members share many keys. All open deliveries of one key belong to one of them."""
        members = Members(system, "t", 2, partitions=6)
        for _ in range(6):
            members.publish_round()
            members.publish_round()
            out: dict[str | None, str] = {}
            got: list[Delivery] = []

            def all_are_out() -> bool:
                for member in members.everybody:
                    for delivery in member.poll():
                        assert out.setdefault(delivery.key, member.name) == member.name  # noqa: B023
                        got.append(delivery)  # noqa: B023
                return len(got) >= 12  # noqa: B023

            until(all_are_out, "both rounds are out")
            for delivery in got:
                assert delivery.ack()


class TestPromise5NobodyIsHeldUp:
    """A waiting, failing or delayed message does not delay others, however many are behind it."""

    def test_behind_a_message_that_waits(self, system: System) -> None:
        """Five hundred messages behind a message that waits for its retry come in order."""
        subscriber = system.open("t", "g", batch_size=10)
        system.publish("t", "waits", key="a")
        (delivery,) = receive(subscriber)
        assert delivery.nack(delay=300)
        system.publish_many("t", [*range(500)], ["a"] * 500)
        assert payloads(take(subscriber, 500)) == [*range(500)]

    def test_many_that_fail_at_the_head(self, system: System) -> None:
        """More messages wait for their retry than can be in flight at once. Later messages are delivered."""
        subscriber = system.open("t", "g", batch_size=5)
        system.publish_many("t", ["fails"] * 40, ["a"] * 40)
        system.publish_many("t", ["good"] * 10, ["a"] * 10)
        good = 0

        def all_good_ones() -> bool:
            nonlocal good
            for delivery in subscriber.poll():
                if delivery.payload == "fails":
                    assert delivery.nack(delay=300)
                else:
                    assert delivery.ack()
                    good += 1
            return good == 10

        until(all_good_ones, "the good ones came")
        nothing_comes(subscriber, system.looks)

    def test_beside_an_open_transaction(self, system: System) -> None:
        """A publisher with an open transaction delays no other publisher and no consumer."""
        subscriber = system.open("t", "g")
        held = Held(system, lambda: system.publish("t", "held", key="a"))
        for n in range(30):
            system.publish("t", n, key="a" if n % 2 else "b")
        assert sorted(payloads(take(subscriber, 30))) == [*range(30)]
        held.roll_back()
