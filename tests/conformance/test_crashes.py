"""Members and processes that die or stop with messages in flight."""

from __future__ import annotations

import os
import signal

from .doing import ids, keys, nothing_comes, payloads, receive, take, take_one, until
from .handling import Notes
from .system import Handler, System


def test_crash_recovery(system: System) -> None:
    """Another member gets the message that a dead member had in flight, as a further attempt."""
    first = system.open("t", "g", "one")
    system.publish("t", "x", key="a")
    receive(first)
    first.crash()
    got = take_one(system.open("t", "g", "two"))
    assert (got.payload, got.attempt) == ("x", 2)


def test_crash_after_reject_does_not_lose_messages(system: System) -> None:
    """A member dies with A acked, B rejected and C in flight. Only C is redelivered, and B is a dead letter."""
    first = system.open("t", "g", "one")
    for name in "ABC":
        system.publish("t", name, key="same", id=name)
    a, b, _ = receive(first, 3)
    assert a.ack()
    assert b.reject("bad payload")
    first.crash()
    second = system.open("t", "g", "two")
    assert take_one(second).payload == "C"
    nothing_comes(second, system.looks)
    assert ids([take_one(system.open(system.dead_letters("t"), "undertaker"))]) == ["B"]


def test_crash_after_retry_limit_does_not_lose_messages(system: System) -> None:
    """A member dies with A acked, B dead-lettered for its last failed attempt, and C in flight."""
    first = system.open("t", "g", "one", max_attempts=2)
    for name in "ABC":
        system.publish("t", name, key="same", id=name)
    a, b, _ = receive(first, 3)
    assert a.ack()
    assert b.nack(delay=0.05)
    (b_again,) = receive(first)
    assert (b_again.payload, b_again.attempt) == ("B", 2)
    assert b_again.nack(error="again")
    first.crash()
    second = system.open("t", "g", "two", max_attempts=2)
    assert take_one(second).payload == "C"
    nothing_comes(second, system.looks)
    assert ids([take_one(system.open(system.dead_letters("t"), "undertaker"))]) == ["B"]


def test_graceful_shutdown_during_processing(system: System) -> None:
    """A member leaves with one message acked and one in flight. Only the second is redelivered, at once."""
    first = system.open("t", "g", "one")
    for n in range(5):
        system.publish("t", n, key="a")
    done, *_ = receive(first, 2)
    assert done.ack()
    first.close()
    second = system.open("t", "g", "two")
    assert sorted(payloads(take(second, 4))) == [1, 2, 3, 4]
    nothing_comes(second, system.looks)


def test_graceful_shutdown_of_a_worker(system: System, notes: Notes) -> None:
    """After SIGTERM, a worker finishes and acks the running handlers, takes no new message, and exits with 0."""
    for n in range(6):
        system.publish("t", {"n": n, "do": "wait", "door": "stop"}, key="a")
    worker = system.start_worker(Handler("t", "g"), threads=2)
    idle = system.start_worker(Handler("idle", "g"))
    until(lambda: sorted(notes.numbers("start")) == [0, 1], "two run")
    worker.ask_to_stop()
    idle.ask_to_stop()
    assert idle.wait() == 0
    assert worker.running, "it waits for them"
    notes.open_door("stop")
    assert worker.wait() == 0
    assert sorted(notes.numbers("end")) == [0, 1]
    got = take(system.open("t", "g"), 4)
    assert [each.payload["n"] for each in got] == [2, 3, 4, 5]
    assert {each.attempt for each in got} == {1}, "they were given to no handler"


def test_killed_worker_is_replaced(system: System, notes: Notes) -> None:
    """A worker is killed while its handler runs. Another worker gets the message and the messages behind it."""
    for n in range(3):
        system.publish("t", {"n": n, "do": "wait", "door": "killed"}, key="a")
    first = system.start_worker(Handler("t", "g", strict=True))
    until(lambda: notes.numbers("start") == [0], "the first handler runs")
    second = system.start_worker(Handler("t", "g", strict=True))
    first.kill()
    until(lambda: notes.numbers("start") == [0, 0], "the other worker has it")
    notes.open_door("killed")
    until(lambda: notes.numbers("end") == [0, 1, 2], "all were handled")
    assert [note.attempt for note in notes.all("start")] == [1, 2, 1, 1]
    second.kill()


def test_stalled_worker_changes_nothing_when_it_wakes(system: System, notes: Notes) -> None:
    """SIGSTOP, another worker finishes the message, SIGCONT: the late ack is refused. Nothing is redelivered."""
    system.publish("t", {"n": 0, "do": "wait", "door": "wake"}, key="a")
    stalled = system.start_worker(Handler("t", "g"))
    until(lambda: notes.numbers("start") == [0], "it runs")
    stalled.stall()
    other = system.start_worker(Handler("t", "g"))
    until(lambda: notes.numbers("start") == [0, 0], "the other has it, too")
    notes.open_door("wake")
    until(lambda: notes.numbers("end") == [0], "the other is done")
    stalled.wake()
    until(lambda: notes.numbers("end") == [0, 0], "the stalled one as well")
    system.publish("t", {"n": 1}, key="a")
    until(lambda: 1 in notes.numbers("end"), "work goes on")
    for worker in (stalled, other):
        worker.ask_to_stop()
        assert worker.wait() == 0
    assert notes.numbers("start") == [0, 0, 1]
    nothing_comes(system.open("t", "g"), system.looks)


def test_all_workers_killed_at_once(system: System, notes: Notes) -> None:
    """All workers are killed under load, and another one finishes everything.

    Nothing that ended before is lost, and only messages in flight are repeated.
    """
    count, handler = 200, Handler("t", "g")
    workers = [system.start_worker(handler) for _ in range(2)]
    system.publish_many("t", [{"n": n} for n in range(count)], [keys(10)[n % 10] for n in range(count)])
    until(lambda: len(notes.numbers("end")) > 20, "they work")
    # Kill all processes first: one that still runs would take the leases of a dead one.
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not any(worker.running for worker in workers), "all are dead")
    for worker in workers:
        worker.kill()
    in_hand = 2 * 10 * handler.batch_size
    after = system.start_worker(handler)
    until(lambda: {*notes.numbers("end")} == {*range(count)}, "all were handled")
    after.ask_to_stop()
    assert after.wait() == 0
    assert len(notes.numbers("start")) - count <= in_hand
    assert max(note.attempt for note in notes.all("start")) <= 2
    nothing_comes(system.open("t", "g"), system.looks)
