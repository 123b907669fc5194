"""The recorded steps of handlers in worker processes, and assertions about them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from tests.support.shop.models import Sale, Step

from .threads import Background, raw_connection
from .waiting import PATIENCE

COUNTS = (
    "SELECT (SELECT COUNT(*) FROM shop_sale), (SELECT COUNT(*) FROM queue_delivery_state WHERE acked = 1),"
    " (SELECT COUNT(*) FROM queue_messages WHERE topic = 'sold')"
)


def by_key(topic: str, group: str, using: str = "default") -> dict[str, list[Step]]:
    """Return each key's steps in the order of time."""
    found: dict[str, list[Step]] = defaultdict(list)
    for step in Step.objects.using(using).filter(topic=topic, consumer_group=group).order_by("at", "id"):
        found[step.key].append(step)
    return found


def sold() -> list[int]:
    """Return the numbers of all sales, in their order."""
    return sorted(Sale.objects.values_list("number", flat=True))


def has_sold(count: int) -> bool:
    return Sale.objects.count() >= count


@contextmanager
def equal_counts() -> Iterator[Callable[[], None]]:
    """Count the sales, acks and messages of ``sold`` in another connection during the block. They are always equal.

    Yield a function that waits until the connection has counted again.
    """
    seen: set[tuple[int, ...]] = set()
    looked, over = threading.Event(), threading.Event()

    def look() -> None:
        with raw_connection() as other:
            while not over.is_set():
                seen.add(other.execute(COUNTS)[0])
                other.commit()
                looked.set()

    def wait_for_a_look() -> None:
        looked.clear()
        looked.wait(PATIENCE)

    with Background(look) as looking:
        try:
            yield wait_for_a_look
        finally:
            over.set()
        looking.result()
    assert all(sales == acks == messages for sales, acks, messages in seen)
    assert len(seen) > 10, "it looked in between"


def started(steps: list[Step]) -> list[int]:
    return [step.number for step in steps if step.what == "start"]


def ended(steps: list[Step]) -> list[int]:
    return [step.number for step in steps if step.what == "end"]


def assert_in_order(steps: list[Step], numbers: Collection[int], *, dead: Collection[int] = ()) -> None:
    """Assert that the handlers of a key ran in order. A message may run again, but never after a later message.

    All of ``numbers`` ended, except the ``dead`` letters. A message starts only after the previous one has ended.
    """
    newest, done = -1, set(dead)
    for step in steps:
        assert step.number >= newest, f"{step} came after {newest}"
        if step.what == "start":
            assert step.number <= newest + 1, f"{step} left out some after {newest}"
            assert set(range(step.number)) <= done, f"{step} started before those before it had ended"
        elif step.what == "end":
            done.add(step.number)
        newest = step.number
    assert done == set(numbers)


def assert_never_two_at_once(steps: list[Step], killed: Collection[int] = ()) -> None:
    """Assert that no two processes ran handlers of a key at the same time. ``killed`` processes do not count."""
    running: dict[int, int] = defaultdict(int)
    for step in steps:
        if step.what == "start":
            others = {pid for pid, count in running.items() if count and pid not in {step.pid, *killed}}
            assert not others, f"{step} while {others} had the key too"
            running[step.pid] += 1
        else:
            running[step.pid] -= 1
