"""The end of every story: all is well again, and what was promised to come has come."""

from __future__ import annotations

from django_mqueue.models import DeliveryState, Offset
from tests.support.subscribers import in_log, settle_and_collect
from tests.support.transactions import wait_until

from .driver import Driver, Member
from .things import Breach
from .time_passing import PERIODIC


def drain(driver: Driver) -> None:
    """Held transactions commit; whoever was there leaves or is taken for dead; one healthy worker a group acks all."""
    driver.tell("the end")
    for held in list(driver.held):
        driver.end(held, commit=True)
    for member in list(driver.members):
        driver.close(member)
    for worker in {h.worker for h in driver.model.handouts}:
        driver.notice(worker)
    groups = sorted(driver.model.groups)
    for place, group in enumerate(groups):
        driver.open(group, "last", strict=place % 2 == 0)
    driver.wait()
    for member in driver.members:
        _serve(driver, member)
    if groups:
        _forget(driver)


def _serve(driver: Driver, member: Member) -> None:
    """Ack whatever comes until the group is owed nothing."""
    group = member.worker.group
    try:
        wait_until(lambda: _is_done(driver, member), "the group is done", seconds=10)
    except AssertionError as error:
        if isinstance(error, Breach):
            raise
        progress = driver.model.groups[group]
        raise Breach(
            f"{group} is still owed {[(o, progress[o]) for o in driver.model.owed(group)]}"
        ) from error


def _is_done(driver: Driver, member: Member) -> bool:
    got = driver.poll(member, 100, PERIODIC)
    for delivery, handout in driver.answers[len(driver.answers) - len(got) :]:
        driver.answer(delivery, handout, "ack", delay=False)
    driver.look()
    return not driver.model.owed(member.worker.group)


def _forget(driver: Driver) -> None:
    """Nobody needs anything any more: the log, the state and the positions are empty soon."""
    members = list(driver.members)

    def is_empty() -> bool:
        for member in members:
            settle_and_collect(member.subscription)
            driver.idle(member)
            driver.poll(member, 100, PERIODIC)
        driver.look()
        return not left()

    def left() -> list[object]:
        positions = Offset.objects.filter(topic=driver.topic).exclude(partition_key="")
        return [*in_log(driver.topic), *DeliveryState.objects.filter(topic=driver.topic), *positions]

    try:
        wait_until(is_empty, "log, state and positions are empty", seconds=5)
    except AssertionError as error:
        if isinstance(error, Breach):
            raise
        raise Breach(f"left behind when all is done: {left()}") from error
