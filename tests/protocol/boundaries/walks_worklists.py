"""Walks of work items: a message becomes an item, a handler finishes an item, and a person does."""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue.models import Message
from django_mqueue.policy.backoff import NoRetry, policy_of
from django_mqueue.policy.durations import moment
from django_mqueue.policy.encoding import decode
from django_mqueue.worklists import WorkItem, Worklist, automation, intake, registry

from .looks import Seen, acked
from .walks import DONE, Scene, Stage, walk

NAME = "walked"


class Walked(Worklist):
    """A worklist whose items have the scene's topic as their title."""

    name = NAME
    options = registry.Options("", {}, None, None, "", (), 1, policy_of(NoRetry()), 60_000, None)

    def __init__(self, topic: str = "") -> None:
        self.of_scene = topic

    def title(self, message: object) -> str:
        return self.of_scene


def an_item(topic: str, state: str) -> WorkItem:
    """Store an item without history, and declare its worklist."""
    registry.add(Walked())
    return WorkItem.objects.create(
        worklist=NAME, state=state, title=topic, message_id=topic, message_offset=hash(topic), payload={},
        created_at=moment(1),
    )  # fmt: skip


def items(topic: str) -> Seen:
    """Return (state, steps of the history, published steps) of each item of the scene."""
    return tuple(
        (item.state, history(item), published(item)) for item in WorkItem.objects.filter(title=topic)
    )


def history(item: WorkItem) -> Seen:
    return tuple(step.step for step in item.history)


def published(item: WorkItem) -> Seen:
    rows = Message.objects.filter(topic=f"worklist.{NAME}", partition_key=str(item.pk)).order_by("offset")
    return tuple(decode(bytes(row.payload), row.metadata["encoding"])["step"] for row in rows)


@walk(
    lambda topic: (acked(topic), items(topic)),
    Stage(((False,), ()), {0: 2}),
    Stage(((True,), (("unassigned", ("created",), ("created",)),)), {0: DONE}),
)
def a_message_becomes_an_item(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    yield
    with delivery.atomic():
        intake.make_item(Walked(scene.topic), delivery)


@walk(
    lambda topic: (acked(topic), items(topic)),
    Stage(((False,), (("automated", (), ()),)), {0: 2}),
    Stage(((True,), (("finished", ("finished",), ("finished",)),)), {0: DONE}),
)
def a_handler_finishes_an_item(scene: Scene) -> Iterator[None]:
    item = an_item(scene.topic, "automated")
    (delivery,) = scene.claimed(0)
    yield
    with delivery.atomic():
        automation._work(item, delivery)


@walk(
    items,
    Stage((("assigned", (), ()),), {}),
    Stage((("finished", ("finished",), ("finished",)),), {}),
)
def a_person_finishes_an_item(scene: Scene) -> Iterator[None]:
    item = an_item(scene.topic, "assigned")
    yield
    item.finish(comment="done")
