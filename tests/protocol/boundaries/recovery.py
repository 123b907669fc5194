"""Let other workers take over after a death, and check each promise that the stage implies.

The checks use the promises alone. They know the state that the operation had reached, but not the statement at which
the process died.
"""

from __future__ import annotations

import json
from contextlib import ExitStack

from django_mqueue import Subscription, resume
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease
from django_mqueue.protocol.settling import Settler
from django_mqueue.spark.database import following
from django_mqueue.store.leases import Holder
from tests.support.subscribers import collect, engine_of, settle_and_collect
from tests.support.transactions import wait_until

from .looks import letters, payloads
from .walks import WALKER, Dead, Stage, expire, make_idle


def recover(topic: str, stage: Stage, *, same_name: bool) -> None:
    """Take over and check.

    With ``same_name``, a subscriber with the dead one's name takes over at once. Otherwise the leases expire, and a
    subscriber with another name takes over.
    """
    wanted = {p for fates in stage.fates.values() for p, fate in fates.items() if not _is_over(fate)}
    wanted |= {p for payloads in stage.reads.values() for p in payloads}
    expire(topic, but=WALKER if same_name else "")
    collect(topic)
    held = payloads(topic)
    assert len(set(held)) == len(held), f"twice in the log: {held}"
    somewhere = {*held, *payloads(f"{topic}_scheduled")}
    assert wanted <= somewhere, f"gone from the log: {wanted - somewhere}"
    for group in stage.paused:
        _show_that_it_stands_still(topic, group)
    for group, rest in stage.reads.items():
        _read_on(topic, group, rest, WALKER if same_name else "stranger")
    with ExitStack() as stack:
        members = []
        for group in stage.fates:
            member = Subscription(topic, group, WALKER if same_name else "stranger")
            members.append(stack.enter_context(member))
            _consume(member, stage)
            settle_and_collect(member)
        _check_letters(topic, stage)
        assert payloads(topic) == (), "every group is done, and the log still holds some"
        for member in members:
            _leave_drained(member)
    _check_nothing_stays(topic)


def _show_that_it_stands_still(topic: str, group: str) -> None:
    """Check that the paused group gets no message and that deletion waits for it. Then resume the group."""
    held = payloads(topic)
    with Subscription(topic, group, "bystander") as member:
        for _ in range(3):
            assert member.poll() == [], f"{group} is paused"
    collect(topic)
    assert payloads(topic) == held, f"deleted while {group} is paused"
    assert resume(topic, group) == 1


def _read_on(topic: str, group: str, rest: tuple[int, ...], name: str) -> None:
    """Join as the group's reader, read on from its position, and move it to the end of the log."""
    me = Holder(group, topic, name, name)
    following.join_all([me], using="default")
    place = following.position(topic, group, using="default")
    assert place is not None, f"{group} reads the log by itself no more"
    rows = Message.objects.filter(topic=topic, offset__gt=place.above).order_by("offset")
    assert tuple(json.loads(bytes(row.payload)) for row in rows) == rest, f"what {group} has yet to read"
    settler, newest = Settler("default", topic), max((row.offset for row in rows), default=0)
    wait_until(
        lambda: (settler.advance(), settler.shared_settled)[1] >= newest,
        "the topic is settled, and all know it",
    )
    following.move(topic, group, place.generation, newest, using="default")
    following.leave(me, using="default")
    collect(topic)


def _is_over(fate: int | Dead) -> bool:
    return not isinstance(fate, int) or fate == 0


def _consume(member: Subscription, stage: Stage) -> None:
    """Poll until no message is left. The group must get exactly its expected messages, with the right attempts."""
    expected = {p: fate for p, fate in stage.fates[member.group].items() if not _is_over(fate)}
    got: dict[int, int] = {}

    def all_came() -> bool:
        found = member.poll()
        if engine_of(member).state.resetting:
            engine_of(member).membership.discover_now()  # The next discovery would be a minute away.
        for delivery in found:
            assert delivery.payload not in got, (
                f"{member.group}: {delivery.payload} was acked, and comes again"
            )
            got[delivery.payload] = delivery.attempt
        if found:
            member.ack(found)
        return not found and expected.keys() <= got.keys()

    try:
        wait_until(all_came, f"{member.group} gets what is due to it", every=0.005)
    finally:
        assert got == expected, f"{member.group} got {got} (payload: attempt), not {expected}"


def _check_letters(topic: str, stage: Stage) -> None:
    expected = [
        (payload, group, fate.failures)
        for group, fates in stage.fates.items()
        for payload, fate in fates.items()
        if isinstance(fate, Dead)
    ]
    assert sorted(letters(topic)) == sorted(expected)


def _leave_drained(member: Subscription) -> None:
    """Make all partitions idle for longer than two lease durations, so that the member gives them up."""
    engine = engine_of(member)
    make_idle(engine)
    engine.membership.discover_now()


def _check_nothing_stays(topic: str) -> None:
    """Check that only the registrations are left."""
    assert not DeliveryState.objects.filter(topic=topic).exists(), "state without a message"
    assert not PartitionLease.objects.filter(topic=topic).exists(), "a lease of a drained partition"
    positions = Offset.objects.filter(topic=topic).exclude(partition_key="")
    assert not positions.exists(), "the position of a drained partition"
