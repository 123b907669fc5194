"""The recorded steps of handlers in worker processes, and assertions about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from tests.support.shop.models import Sale, Step


def by_key(topic: str, group: str, using: str = "default") -> dict[str, list[Step]]:
    """Return each key's steps in the order of time."""
    found: dict[str, list[Step]] = defaultdict(list)
    for step in Step.objects.using(using).filter(topic=topic, consumer_group=group).order_by("at", "id"):
        found[step.key].append(step)
    return found


def sold() -> list[int]:
    """Return the numbers of all sales, in their order."""
    return sorted(Sale.objects.values_list("number", flat=True))


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
