"""Promises 6 to 11, one class each. The other modules test some of them further."""

from __future__ import annotations

import itertools
import threading

import pytest

from .doing import Members, keys, nothing_comes, payloads, receive, take, take_one, until
from .handling import Notes
from .system import Delivery, Handler, System


class TestPromise6Fenced:
    """A worker that lost its lease or its delivery can no longer change anything."""

    def test_by_no_answer(self, system: System) -> None:
        """The new owner has an open delivery, which stays valid whatever the former owner tries."""
        first = system.open("t", "g", "one", max_attempts=2)
        system.publish("t", "x", key="a")
        (old,) = receive(first)
        first.stall()
        second = system.open("t", "g", "two", max_attempts=2)
        (new,) = receive(second)
        tries = (
            old.ack,
            old.nack,
            old.reject,
            old.postpone,
            lambda: old.extend(60),
            lambda: first.ack([old]),
        )
        for answer in tries:
            with pytest.raises(system.stale):
                answer()
        nothing_comes([second], system.looks)
        assert new.ack()
        nothing_comes([first, second], system.looks)
        nothing_comes(system.open(system.dead_letters("t"), "undertaker"), system.looks)

    def test_by_no_answer_to_what_nobody_has_yet(self, system: System) -> None:
        """The new owner has not received all messages yet. The former owner can no longer settle them anyway."""
        first = system.open("t", "g", "one")
        for n in range(6):
            system.publish("t", n, key="a")
        held = receive(first, 6)
        first.stall()
        second = system.open("t", "g", "two")
        taken = receive(second)
        left = [each for each in held if each.payload != taken[0].payload]
        late = (left[0].ack, left[1].nack, left[2].reject, left[3].postpone, lambda: left[4].extend(60))
        for answer in late:
            with pytest.raises(system.stale):
                answer()
        assert taken[0].ack()
        assert sorted(payloads(take([second], 5))) == sorted(payloads(left))
        nothing_comes([first, second], system.looks)

    def test_by_no_answer_after_the_other_has_finished(self, system: System) -> None:
        """The new owner has acked the message. Nothing makes it open again or a dead letter."""
        first = system.open("t", "g", "one")
        system.publish("t", "x", key="a")
        (old,) = receive(first)
        first.stall()
        take_one(system.open("t", "g", "two"))
        for answer in (old.nack, old.reject, old.postpone, old.ack):
            with pytest.raises(system.stale):
                answer()
        nothing_comes([first], system.looks)

    def test_nor_by_delivering_the_next(self, system: System) -> None:
        """A member that wakes after it lost its lease delivers no message of the new owner."""
        first = system.open("t", "g", "one", batch_size=1)
        for n in range(3):
            system.publish("t", n, key="a")
        (held,) = receive(first)
        first.stall()
        second = system.open("t", "g", "two", batch_size=1)
        (again,) = receive(second)
        assert again.payload == held.payload == 0
        for _ in range(5):
            assert payloads(first.poll()) == []
        assert again.ack()
        assert payloads(take([second], 2)) == [1, 2]

    def test_many_acked_at_once_of_which_some_are_stale(self, system: System) -> None:
        """The call acks the other deliveries."""
        subscriber = system.open("t", "g")
        for n in range(3):
            system.publish("t", n, key="a")
        held = receive(subscriber, 3)
        assert held[1].nack(delay=0.05)
        with pytest.raises(system.stale):
            subscriber.ack(held)
        assert take_one(subscriber).payload == 1
        nothing_comes(subscriber, system.looks)


class TestPromise7AttemptsAreReal:
    """Only messages passed to a handler use an attempt. A message that kills workers is dead-lettered alone."""

    def test_what_no_handler_saw_uses_no_attempt(self, system: System, notes: Notes) -> None:
        """A worker with one thread is killed in a slow handler. It may have claimed later messages in advance."""
        quick, blocks, behind = range(30), 30, range(31, 40)
        for n in quick:
            system.publish("t", {"n": n}, key="a")
        system.publish("t", {"n": blocks, "do": "wait", "door": "open"}, key="a")
        for n in behind:
            system.publish("t", {"n": n}, key="a")
        handler = Handler("t", "g", batch_size=50)
        worker = system.start_worker(handler, threads=1)
        until(lambda: blocks in notes.numbers("start"), "it blocks")
        worker.kill()
        notes.open_door("open")
        worker = system.start_worker(handler, threads=1)
        until(lambda: {*notes.numbers("end")} == {*range(40)}, "all were handled")
        attempts = {note.n: note.attempt for note in notes.all("end")}
        assert attempts[blocks] == 2
        assert {attempts[n] for n in behind} == {1}
        worker.kill()

    def test_a_poison_message_is_dead_lettered_and_its_neighbours_are_not(
        self, system: System, notes: Notes
    ) -> None:
        """The message kills every worker that handles it, while slow handlers of other messages run."""
        for n in range(6):
            nap = {"n": n, "do": "nap", "seconds": 0.3}
            system.publish("t", {"n": n, "do": "die"} if n == 2 else nap, key=f"k{n % 2}")
        letters = system.open(system.dead_letters("t"), "undertaker")
        dead: list[Delivery] = []
        worker = system.start_worker(Handler("t", "g", max_attempts=2), threads=8)

        def died_or_dead_lettered() -> bool:
            dead.extend(letters.poll())
            return bool(dead) or not worker.running

        for _ in range(10):
            until(died_or_dead_lettered, "the worker dies, or the poison is a dead letter")
            if dead:
                break
            worker.kill()
            worker = system.start_worker(Handler("t", "g", max_attempts=2), threads=8)
        else:
            pytest.fail("ten workers died, and there is no dead letter")
        until(lambda: sorted({*notes.numbers("end")}) == [0, 1, 3, 4, 5], "its neighbours were handled")
        assert [letter.payload["n"] for letter in dead] == [2]
        worker.ask_to_stop()
        assert worker.wait() == 0
        nothing_comes([letters], system.looks)


class TestPromise8GroupsAreIslands:
    """No group notices the actions of another group."""

    def test_nack_reject_postpone_crash_and_unsubscribe(self, system: System) -> None:
        """One group does everything possible to messages. The other group gets every message, unaffected."""
        quiet, wild = system.open("t", "quiet"), system.open("t", "wild", max_attempts=1)
        for n in range(6):
            system.publish("t", n, key="a")
        out = receive(wild, 6)
        assert out[0].nack(error="last one")
        assert out[1].reject("never")
        assert out[2].postpone(300)
        assert out[3].extend(300)
        assert out[4].ack()
        first = take(quiet, 6)
        assert payloads(first) == [*range(6)]
        assert {(each.attempt, each.last_error) for each in first} == {(1, "")}
        wild.crash()
        system.unsubscribe("t", "wild")
        system.publish("t", 6, key="a")
        assert take_one(quiet).payload == 6
        nothing_comes(quiet, system.looks)

    def test_a_stuck_group_slows_nobody_down(self, system: System) -> None:
        """One group settles nothing. Another group continues, message by message."""
        stuck, free = system.open("t", "stuck"), system.open("t", "free")
        for n in range(10):
            system.publish("t", n, key="a")
            stuck.poll()
            assert take_one(free).payload == n


class TestPromise9FairAndAlive:
    """Every partition with work has an owner, and shares differ by at most one.

    A member that dies is replaced within the lease.
    """

    def test_join_leave_and_die(self, system: System) -> None:
        """Shares are fair after a member joins, leaves or dies. A dead member's messages wait only for its lease."""
        members = Members(system, "t", 3, partitions=8)
        members.settle(3, 3, 2)
        members.join("late")
        members.settle(2, 2, 2, 2)
        members.leave("w1")
        members.settle(3, 3, 2)
        members.crash("w0")
        members.publish_round()
        members.take_round()
        members.settle(4, 4)

    def test_with_members_in_threads_of_their_own(self, system: System) -> None:
        """Four members poll at the same time during the publishes. Every message comes once."""
        count, got, lock, end = 400, list[int](), threading.Lock(), threading.Event()
        failures: list[BaseException] = []

        def consume(name: str) -> None:
            try:
                subscriber = system.open("t", "g", name)
                while not end.wait(0.005):
                    for delivery in subscriber.poll(20):
                        assert delivery.ack()
                        with lock:
                            got.append(delivery.payload)
                subscriber.close()
            except BaseException as error:
                failures.append(error)
            finally:
                system.close_connections()

        threads = [threading.Thread(target=consume, args=(f"w{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            for n in range(0, count, 20):
                system.publish_many("t", [*range(n, n + 20)], [keys(10)[m % 10] for m in range(20)])
            until(lambda: len(got) >= count or failures, "all came")
        finally:
            end.set()
            for thread in threads:
                thread.join()
        assert failures == []
        assert sorted(got) == [*range(count)]


class TestPromise10FlatCost:
    """Requests per poll do not grow with partitions, backlog, history or other groups.

    Requests per message fall with the number of messages.
    """

    @staticmethod
    def requests_of_idle_polls(system: System, topic: str, partitions: int, done: int) -> float:
        """Return the requests per poll of an idle member that owns ``partitions``."""
        subscriber = system.open(topic, "g")
        for _ in range(done):
            system.publish_many(topic, [0] * partitions, keys(partitions))
        take(subscriber, partitions * done)
        nothing_comes(subscriber, system.looks)
        with system.counting() as requests:
            for _ in range(100):
                subscriber.poll()
        subscriber.close()
        return len(requests) / 100

    def test_idle_polls(self, system: System) -> None:
        """An idle poll of a hundred partitions with a history costs as much as a poll of two."""
        few = self.requests_of_idle_polls(system, "few", 2, 1)
        many = self.requests_of_idle_polls(system, "many", 100, 2)
        assert many <= few * 1.5 + 1, f"{few} requests a poll with 2 partitions, {many} with 100"

    def test_messages(self, system: System) -> None:
        """The cost of a message falls with the number of messages."""
        costs = []
        for count in (5, 100):
            topic = f"t{count}"
            subscriber = system.open(topic, "g")
            nothing_comes(subscriber, system.looks)
            system.publish_many(topic, [*range(count)], [keys(50)[n % 50] for n in range(count)])
            got = 0
            with system.counting() as requests:
                while got < count:
                    deliveries = subscriber.poll()
                    assert not deliveries or subscriber.ack(deliveries)
                    got += len(deliveries)
            costs.append(len(requests) / count)
        assert costs[1] < costs[0] / 2, f"requests per message: {costs}"

    def test_publishing_many(self, system: System) -> None:
        """A publish of a thousand messages takes a few requests. A publish of one message takes one."""
        with system.counting() as many:
            system.publish_many("t", [*range(1000)], ["a"] * 1000)
        with system.transaction(), system.counting() as one:
            system.publish("t", 1, key="a")
        assert len(many) <= 10
        assert len(one) == 1


class TestPromise11OneClock:
    """The database's clock counts.

    Workers with wrong clocks take no live lease, and redeliver nothing too early.
    """

    @pytest.mark.parametrize("off_by", [-3_600, 3_600], ids=["behind", "ahead"])
    def test_a_worker_with_a_wrong_clock(self, system: System, notes: Notes, off_by: float) -> None:
        """A worker with a correct clock also runs.

        A running handler keeps its message, and a retry comes when it is due.
        """
        system.publish("t", {"n": 0, "do": "wait", "door": "long"}, key="a")
        right = system.start_worker(Handler("t", "g"))
        until(lambda: notes.numbers("start") == [0], "it runs where the clock is right")
        wrong = system.start_worker(Handler("t", "g"), clock_off_by=off_by)
        further = itertools.count(10)

        def wrong_works() -> bool:
            system.publish("t", {"n": (n := next(further))}, key=str(n % 10))
            return wrong.pid in {note.pid for note in notes.all("end")}

        until(wrong_works, "the other has partitions, too")
        assert notes.numbers("start").count(0) == 1, "the lease was not taken"
        notes.open_door("long")
        until(lambda: 0 in notes.numbers("end"), "it ended")
        right.ask_to_stop()
        assert right.wait() == 0
        system.publish("t", {"n": 1, "do": "retry", "times": 1, "delay": 0.3}, key="a")
        system.publish("t", {"n": 2}, key="b")
        until(lambda: {1, 2} <= {*notes.numbers("end")}, "the other goes on alone")
        assert [note.attempt for note in notes.all("start") if note.n == 1] == [1, 2]
        wrong.ask_to_stop()
        assert wrong.wait() == 0
