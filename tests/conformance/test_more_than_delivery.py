"""Atomic effects, retries, filters and kinds, messages for one group, redrive, purge, pause, reset."""

from __future__ import annotations

from itertools import pairwise

import pytest

from .doing import (
    is_in_log,
    nothing_comes,
    payloads,
    polled_until,
    receive,
    rolled_back,
    take,
    take_one,
    until,
)
from .handling import Notes
from .system import Delivery, Handler, Subscriber, System


def given_up(system: System, *ids: str, group: str = "g") -> None:
    """Publish messages with these ids and let the group reject them."""
    subscriber = system.open("t", group)
    for id in ids:
        system.publish("t", {"id": id}, key="a", id=id, kind="thing", headers={"h": 1})
    for delivery in receive(subscriber, len(ids)):
        assert delivery.reject(f"no {delivery.id}")
    subscriber.close()


# Exactly once, with ``atomic``


def test_effects_and_ack_are_one_commit(system: System) -> None:
    """A block's publishes and the ack are one commit.

    If the block raises, nothing of it is stored, and the message is redelivered.
    """
    subscriber, effects = system.open("t", "g"), system.open("effects", "g")
    system.publish("t", 1, key="a")
    (delivery,) = receive(subscriber)
    with pytest.raises(KeyError):
        fail_after_an_effect(system, delivery)
    assert delivery.nack()
    (again,) = receive(subscriber)
    with again.atomic():
        system.publish("effects", "once", key="a")
        nothing_of_another_transaction(system)
    assert take_one(effects).payload == "once"
    nothing_comes([subscriber, effects], system.looks)


def fail_after_an_effect(system: System, delivery: Delivery) -> None:
    with delivery.atomic():
        system.publish("effects", "never", key="a")
        raise KeyError


def nothing_of_another_transaction(system: System) -> None:
    """Roll back a nested block: it is a part of the outer transaction."""
    with rolled_back(system):
        system.publish("effects", "undone", key="a")


def test_no_effect_of_a_delivery_that_is_anothers(system: System) -> None:
    """A member that lost its lease meanwhile stores no effect."""
    first, effects = system.open("t", "g", "one"), system.open("effects", "g")
    system.publish("t", 1, key="a")
    (delivery,) = receive(first)
    first.stall()
    second = system.open("t", "g", "two")
    (again,) = receive(second)
    with pytest.raises(system.stale), delivery.atomic():
        system.publish("effects", "late", key="a")
    with again.atomic():
        system.publish("effects", "once", key="a")
    assert take_one(effects).payload == "once"
    nothing_comes(effects, system.looks)


def test_exactly_once_whoever_is_killed(system: System, notes: Notes) -> None:
    """Workers of an atomic handler die by SIGKILL, also inside the handler after its effect.

    Each effect is stored once.
    """
    for n in range(40):
        doing = {"do": "die", "times": 1} if n == 20 else {"do": "nap", "seconds": 0.02}
        system.publish("t", {"n": n, "effect": "effects", **doing}, key=f"k{n % 4}")
    handler = Handler("t", "g", atomic=True, max_attempts=5)
    workers = [system.start_worker(handler) for _ in range(2)]

    def ended() -> int:
        for worker in workers:
            if not worker.running:
                worker.kill()
        return len({*notes.numbers("end")})

    until(lambda: ended() >= 8, "some are done")
    workers[0].kill()
    workers.append(system.start_worker(handler))
    until(lambda: ended() == 40, "all have ended once")
    effects = sorted(delivery.payload["n"] for delivery in take(system.open("effects", "g"), 40))
    assert effects == [*range(40)]
    assert sum(worker.running for worker in workers) in (1, 2)
    for worker in workers:
        if worker.running:
            worker.ask_to_stop()
            assert worker.wait() == 0
    nothing_comes([system.open("effects", "g"), system.open("t", "g")], system.looks)
    assert len(notes.numbers("start")) > 40, "nobody was interrupted: this proves nothing"


# Retries, filters and kinds


def test_each_attempt_has_its_wait(system: System, notes: Notes) -> None:
    """A worker waits as its list says, one value after the other. Without retries, the first failure is the last."""
    for topic in ("t", "once"):
        system.publish(topic, {"n": 1, "do": "fail"}, key="a")
    worker = system.start_worker(
        Handler("t", "g", max_attempts=4, retry=(0.05, 0.6)), Handler("once", "g", max_attempts=4, retry=None)
    )
    last = take_one(system.open(system.dead_letters("t"), "u"))
    only = take_one(system.open(system.dead_letters("once"), "u"))
    worker.ask_to_stop()
    assert worker.wait() == 0
    assert (last.failure_count, only.failure_count) == (4, 1)
    at = [note.at for note in notes.all("start") if note.topic == "t"]
    first, *others = [after - before for before, after in pairwise(at)]
    assert first >= 0.04
    assert min(others) >= 0.59, "the second wait is the one from then on"


def test_only_what_a_handler_takes(system: System, notes: Notes) -> None:
    """A worker acks messages unread if its filter excludes them. It dead-letters other kinds at once."""
    system.publish("t", {"n": 1}, key="a", kind="placed", headers={"type": "invoice"})
    system.publish("t", {"n": 2}, key="a", kind="placed", headers={"type": "receipt"})
    system.publish("t", {"n": 3}, key="a", kind="shipped", headers={"type": "invoice"}, id="another-kind")
    system.publish("t", {"n": 4}, key="a", kind="placed", headers={"type": "invoice"})
    worker = system.start_worker(Handler("t", "g", filter={"type": "invoice"}, kinds=("placed",)))
    letter = take_one(system.open(system.dead_letters("t"), "u"))
    until(lambda: sorted(notes.numbers("end")) == [1, 4], "what it takes is handled")
    worker.ask_to_stop()
    assert worker.wait() == 0
    assert (letter.id, letter.failure_count) == ("another-kind", 1)
    assert sorted(notes.numbers("start")) == [1, 4]
    nothing_comes(system.open("t", "g"), system.looks)


# Messages for one group


def test_for_one_group_alone(system: System) -> None:
    """The target group gets the message in order. No other group gets it, not even a later one."""
    one, two = system.open("t", "one"), system.open("t", "two")
    for n in range(4):
        system.publish("t", n, key="a", group="one" if n % 2 else None)
    assert payloads(take(one, 4)) == [0, 1, 2, 3]
    assert payloads(take(two, 2)) == [0, 2]
    later = system.open("t", "later")
    assert payloads(take(later, 2)) == [0, 2]
    nothing_comes([one, two, later], system.looks)


def test_for_one_group_it_waits_for_that_group_alone(system: System) -> None:
    """Deletion of the message waits for its target group. Messages of other groups do not wait for it."""
    with system.retention(0):
        one, two = system.open("t", "one"), system.open("t", "two")
        system.publish("t", 1, key="a", id="theirs", group="two")
        system.publish("t", 2, key="a", id="everybodys")
        take(one, 1)
        theirs, everybodys = receive(two, 2)
        assert everybodys.ack()
        polled_until([one], lambda: True, "one looks")
        with rolled_back(system):
            assert not system.publish("t", 0, key="a", id="theirs", group="two").created
        assert theirs.ack()
        polled_until([one, two], lambda: not is_in_log(system, "t", "everybodys", "a"), "both have gone")


def test_for_a_group_that_nobody_knows(system: System) -> None:
    """The publish is refused and stores nothing. The transaction can continue."""
    subscriber = system.open("t", "g")
    with system.transaction():
        system.publish("t", 1, key="a")
        with pytest.raises(system.unknown):
            system.publish("t", 2, key="a", group="nobody")
        system.publish("t", 3, key="a")
    assert payloads(take(subscriber, 2)) == [1, 3]
    nothing_comes([subscriber, system.open("t", "nobody", start="latest")], system.looks)


# Redrive and purge


def test_redrive_to_the_group_that_failed(system: System) -> None:
    """The message is redriven unchanged, as a first attempt, to that group only. Its dead letter is gone."""
    other = system.open("t", "other")
    given_up(system, "bad")
    assert system.redrive("t") == 1
    assert system.redrive("t") == 0
    again = take_one(system.open("t", "g"))
    assert (again.id, again.key, again.kind, again.payload, dict(again.headers)) == (
        "bad", "a", "thing", {"id": "bad"}, {"h": 1},
    )  # fmt: skip
    assert (again.attempt, again.last_error, again.failed_group) == (1, "", None)
    assert take_one(other).id == "bad"
    nothing_comes([other, system.open(system.dead_letters("t"), "u")], system.looks)


def test_redrive_of_some(system: System) -> None:
    """Redrive selects by id, by number and by group, and can change the payload.

    Dead letters of an unregistered group stay.
    """
    given_up(system, "x", "y", "z")
    given_up(system, "w", group="gone")
    assert system.unsubscribe("t", "gone")
    with pytest.raises(system.unknown):
        system.redrive("t", group="gone")
    assert system.redrive("t", ids=["y"], edit=lambda letter: [letter.id, letter.last_error]) == 1
    subscriber = system.open("t", "g")
    assert payloads(take(subscriber, 2)) == [{"id": "w"}, ["y", "no y"]]
    assert system.redrive("t", limit=1) == 1
    assert take_one(subscriber).id == "x"
    assert system.redrive("t") == 1
    assert take_one(subscriber).id == "z"
    letters = system.open(system.dead_letters("t"), "u")
    assert take_one(letters).failed_group == "gone"
    nothing_comes([subscriber, letters], system.looks)


def test_redriven_it_may_fail_again(system: System) -> None:
    """A message may fail and be redriven any number of times. Each time, one dead letter has its first id."""
    given_up(system, "bad")
    for turn in range(3):
        assert system.redrive("t") == 1
        subscriber = system.open("t", "g")
        (delivery,) = receive(subscriber)
        assert (delivery.id, delivery.attempt) == ("bad", 1)
        assert delivery.reject(f"turn {turn}")
        subscriber.close()
    letter = take_one(system.open(system.dead_letters("t"), "u"))
    assert (letter.id, letter.last_error) == ("bad", "turn 2")


def test_purge(system: System) -> None:
    """Purged dead letters are deleted. The others stay."""
    given_up(system, "x", "y", "z")
    assert system.purge("t", ids=["y"]) == 1
    assert system.purge("t", limit=1) == 1
    assert system.redrive("t") == 1
    assert take_one(system.open("t", "g")).id == "z"
    assert system.purge("t") == 0


# Pause and reset


@pytest.mark.parametrize("whole", [False, True])
def test_pause_and_resume(system: System, whole: bool) -> None:
    """A paused group gets nothing, not even a new member of it. Deliveries in flight can be acked.

    Other groups continue, unless the whole topic is paused.
    """
    one, two = system.open("t", "one"), system.open("t", "two")
    system.publish("t", 1, key="a")
    (held,) = receive(one)
    group = None if whole else "one"
    assert system.pause("t", group) == (2 if whole else 1)
    assert system.pause("t", group) == 0
    assert held.ack()
    system.publish("t", 2, key="a")
    paused: list[Subscriber] = [one, system.open("t", "one"), *([two] if whole else [])]
    nothing_comes(paused, system.looks)
    if not whole:
        assert payloads(take(two, 2)) == [1, 2]
    assert system.resume("t", group) == (2 if whole else 1)
    assert system.resume("t", group) == 0
    assert take_one(paused[:2]).payload == 2
    if whole:
        assert payloads(take(two, 2)) == [1, 2]
    nothing_comes([*paused, two], system.looks)


def test_reset(system: System) -> None:
    """A reset to the start, to an offset or to the end redelivers later messages as new, and no earlier ones."""
    other = system.open("t", "other")
    published = [system.publish("t", n, key="a") for n in range(4)]

    subscriber = system.open("t", "g")
    assert payloads(take(subscriber, 4)) == payloads(take(other, 4)) == [0, 1, 2, 3]
    subscriber.close()
    for to, expected in (("earliest", [0, 1, 2, 3]), (published[2].offset, [2, 3]), ("latest", [])):
        system.reset("t", "g", to)
        begun = system.open("t", "g")
        again = take(begun, len(expected)) if expected else []
        assert [(delivery.payload, delivery.attempt) for delivery in again] == [(n, 1) for n in expected]
        nothing_comes([begun, other], system.looks)
        begun.close()


def test_reset_of_a_group_that_runs(system: System) -> None:
    """The reset is refused and changes nothing.

    With ``force``, the members start again, and their deliveries in flight are stale.
    """
    subscriber = system.open("t", "g")
    for n in range(3):
        system.publish("t", n, key="a")
    first, second, third = receive(subscriber, 3)
    assert first.ack()
    with pytest.raises(system.active):
        system.reset("t", "g", "earliest")
    assert second.ack()
    system.reset("t", "g", "earliest", force=True)
    with pytest.raises(system.stale):
        third.ack()
    again = take(subscriber, 3)
    assert [(delivery.payload, delivery.attempt) for delivery in again] == [(0, 1), (1, 1), (2, 1)]
    nothing_comes(subscriber, system.looks)
    with pytest.raises(system.unknown):
        system.reset("t", "nobody", "earliest")
