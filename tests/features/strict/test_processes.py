"""Strict order with real workers that start, stop and are killed."""

from __future__ import annotations

import random
import signal

import pytest

from django_mqueue import OutgoingMessage, publish, publish_many
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.steps import assert_in_order, assert_never_two_at_once, by_key, ended
from tests.support.subscribers import done, let_worker_die

pytestmark = pytest.mark.django_db(transaction=True)

KEYS, EACH = 8, 60


@pytest.mark.timeout(180)
def test_order_per_key_holds_while_workers_come_go_and_are_killed() -> None:
    """Every 50 messages, the test kills or stops one of three workers and starts another.

    Some messages fail once or twice, and one becomes a dead letter.
    """
    failing = {(3, 10): 2, (5, 0): 1, (5, 1): 2, (6, 30): 1_000}
    publish_many(
        "ledger",
        [
            OutgoingMessage(
                {"n": n, "do": "fail", "times": failing[k, n]}
                if (k, n) in failing
                else {"n": n, "do": "sleep", "seconds": 0.05},
                key=f"k{k}",
            )
            for n in range(EACH)
            for k in range(KEYS)
        ],
    )
    choose, killed = random.Random(7), set[int]()
    with Workers() as workers:
        alive = [workers.start("ledger:books", "--threads", "2") for _ in range(3)]
        for enough in range(50, KEYS * EACH, 50):
            wait_until(lambda: done() >= enough, f"{enough} are done")  # noqa: B023
            place = choose.randrange(len(alive))
            if len(workers.all) % 2:  # in turn, so that a quick run does both
                killed.add(alive[place].pid)
                alive[place].kill()
                let_worker_die(alive[place])
            else:
                alive[place].ask_to_stop()
            alive[place] = workers.start("ledger:books", "--threads", "2")
        wait_until(lambda: done() == KEYS * EACH, "all are done")
        for worker in workers.all:
            code = worker.stop() if worker in alive else worker.wait()
            early = "consuming" not in worker.output()  # stopped before it could handle the signal
            assert code == (-signal.SIGKILL if worker.pid in killed else -signal.SIGTERM if early else 0)
    assert len(killed) >= 2
    steps = by_key("ledger", "books")
    for k in range(KEYS):
        dead = {n for (bad, n), times in failing.items() if bad == k and times > 3}
        assert_never_two_at_once(steps[f"k{k}"], killed)
        assert_in_order(steps[f"k{k}"], range(EACH), dead=dead)


def test_a_failing_message_holds_back_its_key_only() -> None:
    """While the handler of one key's first message runs and fails, the other keys finish."""
    publish("ledger", {"n": 0, "do": "fail_after", "door": "fail", "times": 1}, key="bad")
    for n in range(1, 5):
        publish("ledger", {"n": n}, key="bad")
    for n in range(5):
        for key in ("good", "fine"):
            publish("ledger", {"n": n}, key=key)
    with Workers() as workers:
        worker = workers.start("ledger:books", "--threads", "2")
        ends, bad = Step.objects.filter(what="end"), Step.objects.filter(key="bad")
        wait_until(lambda: ends.count() == 10 and bad.exists(), "the other keys have ended")
        assert by_key("ledger", "books").keys() == {"bad", "good", "fine"}
        assert Step.objects.filter(key="bad").count() == 1
        Door.objects.create(name="fail")
        wait_until(lambda: done() == 15, "the failing one has been tried again, and its key gone on")
        assert worker.stop() == 0
    steps = by_key("ledger", "books")
    assert ended(steps["bad"]) == [0, 1, 2, 3, 4]
    assert [step.attempt for step in steps["bad"] if step.number == 0] == [1, 1, 2, 2]
    for key in ("bad", "good", "fine"):
        assert_in_order(steps[key], range(5))
