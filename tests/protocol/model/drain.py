"""The end of each story: all faults are repaired, and every group gets its remaining messages."""

from __future__ import annotations

from django_mqueue.models import DeliveryState, Offset
from tests.support.subscribers import in_log, settle_and_collect
from tests.support.transactions import wait

from .driver import Member
from .operating import Operator
from .things import Breach
from .time_passing import PERIODIC

ROUNDS, PAUSE = 60, 0.01
"""The number of polls of each member before the test fails, and the seconds between two polls.

SQL may find a message not yet due by a moment. The message then comes 20 ms later.
"""


def drain(driver: Operator) -> None:
    """Commit held transactions, remove all workers, and let one new worker of each group ack all messages."""
    driver.tell("the end")
    for held in list(driver.held):
        driver.end(held, commit=True)
    for member in list(driver.members):
        driver.close(member)
    for worker in {*driver.absent, *(h.worker for h in driver.model.handouts)}:
        driver.notice(worker)
    driver.stand_still(None, paused=False)
    groups = sorted(driver.model.groups)
    for place, group in enumerate(groups):
        driver.open(group, "last", strict=place % 2 == 0)
    driver.wait()
    for member in driver.members:
        _serve(driver, member)
    if groups:
        _forget(driver)


def _serve(driver: Operator, member: Member) -> None:
    """Ack all deliveries until the group has no remaining message."""
    group = member.worker.group
    for _ in range(ROUNDS):
        if _is_done(driver, member):
            return
        wait(PAUSE)
    progress = driver.model.groups[group]
    raise Breach(f"{group} is still owed {[(o, progress[o]) for o in driver.model.owed(group)]}")


def _is_done(driver: Operator, member: Member) -> bool:
    got = driver.poll(member, 100, PERIODIC)
    for delivery, handout in driver.answers[len(driver.answers) - len(got) :]:
        driver.answer(delivery, handout, "ack", delay=False)
    driver.look()
    return not driver.model.owed(member.worker.group)


def _forget(driver: Operator) -> None:
    """Poll, settle and collect until the log, the delivery state and the positions are empty."""
    for _ in range(ROUNDS):
        for member in driver.members:
            settle_and_collect(member.subscription)
            driver.idle(member)
            _is_done(driver, member)
        left = _left(driver)
        if not any(left):
            return
        wait(PAUSE)
    raise Breach(f"left behind when all is done: {left}")


def _left(driver: Operator) -> tuple[list[int], list[object], list[object]]:
    """Return the remaining rows of the log, of the delivery state and of the positions."""
    state = DeliveryState.objects.filter(topic=driver.topic).values_list(
        "consumer_group", "message_offset", "acked"
    )
    positions = Offset.objects.filter(topic=driver.topic).exclude(partition_key="")
    return (
        in_log(driver.topic),
        list(state),
        list(positions.values_list("consumer_group", "partition_key", "offset_acked")),
    )
