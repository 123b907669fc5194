"""Workers are restarted one after another while messages are published: none is lost, and none is repeated."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import connection

from django_mqueue.models import SubscriberHeartbeat
from tests.support.processes import Worker, Workers, wait_until
from tests.support.shop.models import Step
from tests.support.steps import assert_in_order, assert_never_two_at_once, by_key
from tests.support.stream import Stream
from tests.support.transactions import Background

from .children import parent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_server]

KEYS, ROUNDS = [f"k{n}" for n in range(6)], 3
GROUPS = {"orders": "billing", "ledger": "books"}
"""Each topic gets the same messages. The group of the second is strict."""


def started_by(worker: Worker) -> int:
    """Return the number of handlers that a process or its children have started."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid, COUNT(*) FROM shop_step WHERE what = 'start' GROUP BY pid")
        found = dict(cursor.fetchall())
    return sum(count for pid, count in found.items() if pid == worker.pid or is_child(pid, worker.pid))


def is_child(pid: int, of: int) -> bool:
    try:
        return parent(pid) == of
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "options", [("--threads", "2"), ("--processes", "2", "--threads", "1")], ids=" ".join
)
def test_restarts_lose_nothing_and_repeat_nothing(options: tuple[str, ...]) -> None:
    """Each worker stops by SIGTERM and starts again under its name. The next one follows when it works again.

    Each handler that starts also ends, so each message is handled exactly once, and those of a strict key in order.
    """
    stream = Stream(GROUPS, KEYS)
    with Workers() as workers, Background(stream.run):
        try:

            def start(number: int) -> Worker:
                worker = workers.start(
                    *(f"{topic}:{group}" for topic, group in GROUPS.items()), *options, "--name", f"w{number}"
                )
                wait_until(lambda: started_by(worker), f"w{number} works")
                return worker

            running = [start(number) for number in range(2)]
            for _ in range(ROUNDS):
                for number in range(2):
                    assert running[number].stop() == 0
                    running[number] = start(number)
        finally:
            stream.stopping.set()
        wait_until(lambda: stream.settled() == stream.published, "all are settled")
        assert [worker.stop() for worker in running] == [0, 0]
    assert_handled_once(stream.numbers)
    assert not SubscriberHeartbeat.objects.filter(deregistered_at=None).exists()


def assert_handled_once(numbers: int) -> None:
    """Assert that each message has one start and one end, in the first attempt."""
    wanted = Counter(dict.fromkeys([(what, 1) for what in ("start", "end")], numbers))
    for topic, group in GROUPS.items():
        steps = by_key(topic, group)
        assert set(steps) == set(KEYS)
        for key, of_key in steps.items():
            assert Counter((step.what, step.attempt) for step in of_key) == wanted, key
            assert len({(step.what, step.number) for step in of_key}) == 2 * numbers, key
            if topic == "ledger":
                assert_in_order(of_key, range(numbers))
                assert_never_two_at_once(of_key)
    assert not Step.objects.exclude(what__in=["start", "end"]).exists()
